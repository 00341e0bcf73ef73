//! Words that do not belong into the repository: marks of unfinished work, and paths of one
//! machine.

/// Each word is split, so that this file can be checked too.
const UNFINISHED: &[&str] =
    &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("to", "do!"), concat!("unimple", "mented!")];

/// Folders of checkouts and homes: a path into them is one machine's.
const MACHINE_PATHS: &[&str] = &[concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// Hosts of packages: packages are named, and come from the mirror that the machine is set up for.
const HOSTS: &[&str] = &[concat!("deb.deb", "ian.org"), concat!("registry.npm", "js"), concat!("static.cra", "tes.io")];

/// All offences of one text.
pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    // Cargo writes this file.
    if path == "Cargo.lock" || path.ends_with("/Cargo.lock") {
        return Vec::new();
    }
    let mut offences = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut found = |what: &str, word: &str| offences.push(format!("{path}:{}: {what} `{word}`", index + 1));
        UNFINISHED.iter().filter(|word| has_word(line, word)).for_each(|word| found("unfinished:", word));
        MACHINE_PATHS.iter().filter(|dir| has_path(line, dir)).for_each(|dir| found("path of one machine:", dir));
        HOSTS.iter().filter(|host| line.contains(**host)).for_each(|host| found("host of packages:", host));
    }
    offences
}

/// Whole words only: mkstemp's pattern of six such letters does not count.
fn has_word(line: &str, word: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(is_letter);
        let after = !word.ends_with('!') && line[at + word.len()..].chars().next().is_some_and(is_letter);
        !before && !after
    })
}

/// An absolute path only, not a folder of that name below another one.
fn has_path(line: &str, dir: &str) -> bool {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "._-/}".contains(c);
    line.match_indices(dir).any(|(at, _)| !line[..at].chars().next_back().is_some_and(is_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_unfinished_work_are_found_and_lookalikes_are_not() {
        let promise = UNFINISHED[0];
        assert_eq!(check("a.rs", &format!("// {promise}: later\n")).len(), 1);
        assert_eq!(check("a.rs", &format!("// {promise}S\n/tmp/a{0}{0}\n", UNFINISHED[2])).len(), 0);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let home = MACHINE_PATHS[1];
        assert_eq!(check("a.md", &format!("see {home}me/x")).len(), 1);
        assert_eq!(check("a.md", &format!("see target{home}me/x")).len(), 0);
    }
}
