//! The processes of a tree.

use std::collections::BTreeMap;
use std::fs;

/// The process, and all that descend from it, by number.
pub(super) fn with_descendants(pid: i32) -> Vec<i32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for child in numbers {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        if let Some(parent) = parent_in(&stat) {
            children.entry(parent).or_default().push(child);
        }
    }
    let mut all = vec![pid];
    let mut at = 0;
    while at < all.len() {
        all.extend(children.remove(&all[at]).unwrap_or_default());
        at += 1;
    }
    all[1..].sort_unstable();
    all
}

/// The parent in `/proc/PID/stat`: the second field behind the name, which may hold anything.
fn parent_in(stat: &str) -> Option<i32> {
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        assert_eq!(parent_in("12 (a) b (c) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in(""), None);
    }

    #[test]
    fn children_follow_their_parent() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let all = with_descendants(std::process::id().cast_signed());
        assert_eq!(all[0], std::process::id().cast_signed());
        assert!(all[1..].contains(&child.id().cast_signed()), "{all:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
