//! Numbers that may only fall: unsafe blocks a crate, what is still too long, what still looks up to a higher layer.
//!
//! `xtask/ratchet.txt`, one number a line: `KIND NAME NUMBER`. A number that differs from what is found is an offence either way,
//! so that a gain is written down and kept.

use super::layers;
use super::source::Source;
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

const UNSAFE: &str = "unsafe-blocks";
const FILE: &str = "file-lines";
const FUNCTION: &str = "function-lines";
const UPWARD: &str = "upward-paths";

const HEADING: &str = "# Numbers that only fall; `cargo xtask tidy --update` writes them.\n";

type Numbers = BTreeMap<(String, String), usize>;

#[derive(Debug)]
pub(super) struct Ratchet {
    path: PathBuf,
    listed: Numbers,
}

impl Ratchet {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            other => other.with_context(|| format!("reading {}", path.display()))?,
        };
        let listed = parse(&text).with_context(|| format!("reading {}", path.display()))?;
        Ok(Self { path: path.to_path_buf(), listed })
    }

    /// What differs from the list.
    pub(super) fn check(&self, sources: &[Source]) -> Vec<String> {
        let found = measure(sources);
        let is_new = |path: &str| {
            let key = (UPWARD.to_owned(), path.to_owned());
            found.get(&key) > self.listed.get(&key)
        };
        let breaches = layers::check(sources).into_iter().filter(|breach| is_new(&breach.path)).map(|breach| breach.text);
        let keys = self.listed.keys().chain(found.keys().filter(|key| !self.listed.contains_key(*key)));
        breaches.chain(keys.filter_map(|key| offence(key, self.listed.get(key).copied(), found.get(key).copied()))).collect()
    }

    /// Unsafe blocks as found; of the rest only what has fallen, unless worse is allowed.
    pub(super) fn update(&mut self, sources: &[Source], may_be_worse: bool) -> anyhow::Result<()> {
        let mut updated = Numbers::new();
        for (key, found) in measure(sources) {
            let listed = self.listed.get(&key).copied();
            let is_free = key.0 == UNSAFE || may_be_worse;
            let number = if is_free { Some(found) } else { listed.map(|listed| listed.min(found)) };
            updated.extend(number.map(|number| (key, number)));
        }
        self.listed = updated;
        std::fs::write(&self.path, self.render()).with_context(|| format!("writing {}", self.path.display()))
    }

    fn render(&self) -> String {
        let lines = self.listed.iter().map(|((kind, name), number)| format!("{kind} {name} {number}\n"));
        HEADING.to_owned() + &lines.collect::<String>()
    }
}

fn offence((kind, name): &(String, String), listed: Option<usize>, found: Option<usize>) -> Option<String> {
    let (was, is) = (listed.unwrap_or(0), found.unwrap_or(0));
    let advice = match kind.as_str() {
        _ if was == is => return None,
        _ if is < was => "run `cargo xtask tidy --update` to keep it so",
        UNSAFE => "if it must be: `cargo xtask tidy --update`",
        FILE => "at most 500 lines: split it",
        UPWARD => "turn them round (they are told above)",
        _ => "at most 70 lines: split it",
    };
    Some(format!("{name}: {kind} {is}, listed {was}: {advice}"))
}

/// Unsafe blocks of each crate that has some, lengths of what is too long.
fn measure(sources: &[Source]) -> Numbers {
    let mut numbers = Numbers::new();
    for breach in layers::check(sources) {
        *numbers.entry((UPWARD.to_owned(), breach.path)).or_default() += 1;
    }
    for source in sources {
        if source.unsafe_blocks > 0 {
            *numbers.entry((UNSAFE.to_owned(), source.package().to_owned())).or_default() += source.unsafe_blocks;
        }
        if source.lines > FILE_LINES_MAX {
            numbers.insert((FILE.to_owned(), source.path.clone()), source.lines);
        }
        for function in source.functions.iter().filter(|function| function.lines > FUNCTION_LINES_MAX) {
            numbers.insert((FUNCTION.to_owned(), format!("{}::{}", source.path, function.name)), function.lines);
        }
    }
    numbers
}

fn parse(text: &str) -> anyhow::Result<Numbers> {
    let mut numbers = Numbers::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        ensure!(words.len() == 3, "expected `KIND NAME NUMBER`, got `{line}`");
        let number = words[2].parse().with_context(|| format!("in `{line}`"))?;
        numbers.insert((words[0].to_owned(), words[1].to_owned()), number);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratchet(text: &str) -> Ratchet {
        Ratchet { path: PathBuf::new(), listed: parse(text).unwrap() }
    }

    fn source(text: &str) -> [Source; 1] {
        [Source::parse("crates/sys/src/a.rs", text).unwrap()]
    }

    #[test]
    fn one_unsafe_block_more_or_less_is_an_offence() {
        let two = source("fn f() { unsafe { a() }; unsafe { b() } }");
        assert_eq!(ratchet("unsafe-blocks crates/sys 2").check(&two), Vec::<String>::new());
        assert_eq!(ratchet("unsafe-blocks crates/sys 1").check(&two).len(), 1);
        assert_eq!(ratchet("unsafe-blocks crates/sys 3").check(&two).len(), 1);
        assert_eq!(ratchet("unsafe-blocks crates/gone 3\nunsafe-blocks crates/sys 2").check(&two).len(), 1);
    }

    #[test]
    fn a_new_look_upward_is_told_by_its_line() {
        let upward = [Source::parse("crates/core/src/ops/a.rs", "use crate::submit::b;").unwrap()];
        let offences = ratchet("").check(&upward);
        assert_eq!(offences.len(), 2);
        assert!(offences[0].starts_with("crates/core/src/ops/a.rs:1: "), "{offences:?}");
        assert_eq!(ratchet("upward-paths crates/core/src/ops/a.rs 1").check(&upward), Vec::<String>::new());
    }

    #[test]
    fn what_is_too_long_is_an_offence_unless_listed() {
        let long = source(&format!("fn f() {{\n{}}}\n", "g();\n".repeat(FUNCTION_LINES_MAX - 1)));
        assert_eq!(ratchet("").check(&long).len(), 1);
        assert_eq!(ratchet("function-lines crates/sys/src/a.rs::f 71").check(&long), Vec::<String>::new());
        let fits = source(&format!("fn f() {{\n{}}}\n", "g();\n".repeat(FUNCTION_LINES_MAX - 2)));
        assert_eq!(ratchet("").check(&fits), Vec::<String>::new());
        assert_eq!(ratchet("").check(&source(&"\n".repeat(FILE_LINES_MAX + 1))).len(), 1);
    }
}
