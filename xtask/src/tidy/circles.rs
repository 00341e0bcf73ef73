//! Import circles: files of one crate that import each other, directly or by way of others.

use super::findings::TidyFindings;
use super::ratchet::CIRCLES;
use std::collections::{BTreeMap, BTreeSet};

/// Records every import that is part of a circle. An import is importer, exporter, and what it
/// names.
pub(super) fn measure(package: &str, imports: &BTreeSet<(String, String, String)>, found: &mut TidyFindings) {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to, _) in imports {
        next.entry(from).or_default().insert(to);
    }
    let reached: BTreeMap<_, _> = next.keys().map(|&from| (from, reachable(from, &next))).collect();
    let mut told = BTreeSet::new();
    for (from, to, path) in imports {
        let is_circular = reached.get(to.as_str()).is_some_and(|files| files.contains(from.as_str()));
        if is_circular && told.insert((from, to)) {
            found.add(CIRCLES, package, format!("{from}: imports {to} (`{path}`), which leads back to it"));
        }
    }
}

fn reachable<'a>(from: &'a str, next: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for &to in next.get(file).into_iter().flatten() {
            if seen.insert(to) {
                open.push(to);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(pairs: &[(&str, &str)]) -> usize {
        let imports = pairs.iter().map(|(from, to)| (from.to_string(), to.to_string(), String::new())).collect();
        let mut found = TidyFindings::default();
        measure("crates/a", &imports, &mut found);
        found.all_texts("").count()
    }

    #[test]
    fn every_import_of_a_circle_is_an_offence() {
        assert_eq!(offences(&[("a", "b"), ("b", "c"), ("a", "c")]), 0);
        assert_eq!(offences(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]), 3);
    }
}
