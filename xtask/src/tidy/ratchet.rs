//! Numbers that may only fall: unsafe blocks of a crate, lengths, casts, what is not yet as the
//! rules want it.
//!
//! `xtask/ratchet.txt`, one number a line: `KIND NAME NUMBER`. A number that differs from the one
//! found is an offence in both directions, so that a gain is written down and kept.

use super::findings::{FindingKey, TidyFindings};
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A kind of number that the ratchet knows.
#[derive(Debug)]
pub(crate) struct NumberKind {
    pub(crate) name: &'static str,
    /// What to do about a number that has risen.
    advice: &'static str,
    /// `--update` writes any number, not only a lower one.
    may_rise: bool,
}

pub(crate) const UNSAFE: &str = "unsafe-blocks";
pub(crate) const FILE: &str = "file-lines";
pub(crate) const FUNCTION: &str = "function-lines";
pub(crate) const UPWARD: &str = "upward-paths";
pub(crate) const CIRCLES: &str = "circle-imports";
pub(crate) const WIDE: &str = "wide-prose";
pub(crate) const OPENERS: &str = "prose-openers";
pub(crate) const RETIRED: &str = "retired-words";
pub(crate) const SAME_NAMES: &str = "same-type-names";
/// Measured by clippy: `cargo xtask lint`.
pub(crate) const CASTS: &str = "casts";

const KINDS: &[NumberKind] = &[
    NumberKind { name: UNSAFE, advice: "if it must be: `cargo xtask tidy --update`", may_rise: true },
    NumberKind { name: FILE, advice: "at most 500 lines: split it", may_rise: false },
    NumberKind { name: FUNCTION, advice: "at most 70 lines: split it", may_rise: false },
    NumberKind { name: UPWARD, advice: "make the dependency point down", may_rise: false },
    NumberKind { name: CIRCLES, advice: "move the shared definitions into a module below both", may_rise: false },
    NumberKind { name: WIDE, advice: "prose has at most 100 columns", may_rise: false },
    NumberKind { name: OPENERS, advice: "plain technical English: subject, verb, object", may_rise: false },
    NumberKind { name: RETIRED, advice: "docs/glossary.md has the field's word", may_rise: false },
    NumberKind { name: SAME_NAMES, advice: "rename one, or give the reason in xtask/same-names.txt", may_rise: false },
    NumberKind { name: CASTS, advice: "use From, TryFrom, cast_signed() or cast_unsigned()", may_rise: false },
];

const HEADING: &str = "# Numbers that only fall; `cargo xtask tidy --update` (casts: `cargo xtask lint --update`) writes them.\n";

/// Which numbers an update may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Update {
    No,
    /// Lower ones.
    Shrink,
    /// Any.
    AsFound,
}

impl Update {
    /// Takes `--update` and `--allow-worse`; `false`: it is another option.
    pub(crate) fn take_option(&mut self, name: &str) -> bool {
        *self = match (name, *self) {
            ("update", Self::No) => Self::Shrink,
            ("update", other) => other,
            ("allow-worse", _) => Self::AsFound,
            _ => return false,
        };
        true
    }
}

#[derive(Debug)]
pub(crate) struct Ratchet {
    path: PathBuf,
    listed: BTreeMap<FindingKey, usize>,
    /// The kinds that this run measures; others are kept as they are.
    kinds: fn(&str) -> bool,
}

impl Ratchet {
    /// Reads the list at `path`; an absent one is empty. `kinds` tells which kinds the caller
    /// measures.
    pub(crate) fn read(path: &Path, kinds: fn(&str) -> bool) -> anyhow::Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            other => other.with_context(|| format!("reading {}", path.display()))?,
        };
        let listed = parse(&text).with_context(|| format!("reading {}", path.display()))?;
        Ok(Self { path: path.to_path_buf(), listed, kinds })
    }

    /// What differs from the list; a number that has risen is followed by its single offences.
    pub(crate) fn check(&self, found: &TidyFindings) -> Vec<String> {
        let listed = self.listed.keys().filter(|key| (self.kinds)(key.0));
        let keys = listed.chain(found.numbers.keys().filter(|key| !self.listed.contains_key(*key)));
        keys.flat_map(|key| self.compare(key, found)).collect()
    }

    fn compare(&self, key: &FindingKey, found: &TidyFindings) -> Vec<String> {
        let was = self.listed.get(key).copied().unwrap_or(0);
        let is = found.numbers.get(key).copied().unwrap_or(0);
        let (kind, name) = key;
        let advice = match is.cmp(&was) {
            std::cmp::Ordering::Equal => return Vec::new(),
            std::cmp::Ordering::Less => "write the gain down with --update",
            std::cmp::Ordering::Greater => advice(kind),
        };
        let mut lines = if is > was { found.texts(key).to_vec() } else { Vec::new() };
        lines.push(format!("{name}: {kind} {is}, listed {was}: {advice}"));
        lines
    }

    /// Writes the numbers that may be written.
    pub(crate) fn update(&mut self, found: &TidyFindings, update: Update) -> anyhow::Result<()> {
        let mut updated: BTreeMap<_, _> = self.listed.clone().into_iter().filter(|(key, _)| !(self.kinds)(key.0)).collect();
        for (key, &number) in &found.numbers {
            let is_free = update == Update::AsFound || KINDS.iter().any(|kind| kind.name == key.0 && kind.may_rise);
            let allowed = if is_free { Some(number) } else { self.listed.get(key).map(|&listed| listed.min(number)) };
            updated.extend(allowed.map(|number| (key.clone(), number)));
        }
        self.listed = updated;
        std::fs::write(&self.path, self.render()).with_context(|| format!("writing {}", self.path.display()))
    }

    fn render(&self) -> String {
        let lines = self.listed.iter().map(|((kind, name), number)| format!("{kind} {name} {number}\n"));
        HEADING.to_owned() + &lines.collect::<String>()
    }
}

fn advice(kind: &str) -> &'static str {
    KINDS.iter().find(|known| known.name == kind).map_or("", |known| known.advice)
}

fn parse(text: &str) -> anyhow::Result<BTreeMap<FindingKey, usize>> {
    let mut numbers = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        ensure!(words.len() == 3, "expected `KIND NAME NUMBER`, got `{line}`");
        let kind = KINDS.iter().find(|kind| kind.name == words[0]).with_context(|| format!("no such kind: `{line}`"))?;
        let number = words[2].parse().with_context(|| format!("in `{line}`"))?;
        numbers.insert((kind.name, words[1].to_owned()), number);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratchet(text: &str) -> Ratchet {
        Ratchet { path: PathBuf::new(), listed: parse(text).unwrap(), kinds: |kind| kind != CASTS }
    }

    fn two_unsafe_blocks() -> TidyFindings {
        let mut found = TidyFindings::default();
        found.increase(UNSAFE, "crates/sys", 2);
        found
    }

    #[test]
    fn a_number_that_differs_is_an_offence_in_both_directions() {
        let two = two_unsafe_blocks();
        assert_eq!(ratchet("unsafe-blocks crates/sys 2").check(&two), Vec::<String>::new());
        assert_eq!(ratchet("unsafe-blocks crates/sys 1").check(&two).len(), 1);
        assert_eq!(ratchet("unsafe-blocks crates/sys 3").check(&two).len(), 1);
        assert_eq!(ratchet("unsafe-blocks crates/gone 3\nunsafe-blocks crates/sys 2").check(&two).len(), 1);
    }

    #[test]
    fn a_new_offence_is_shown_with_its_line() {
        let mut found = TidyFindings::default();
        found.add(UPWARD, "a.rs", "a.rs:1: names b".to_owned());
        let offences = ratchet("").check(&found);
        assert_eq!(offences.len(), 2);
        assert!(offences[0].starts_with("a.rs:1: "), "{offences:?}");
        assert_eq!(ratchet("upward-paths a.rs 1").check(&found), Vec::<String>::new());
    }

    #[test]
    fn kinds_of_other_runs_are_neither_compared_nor_lost() {
        assert_eq!(ratchet("casts crates/sys 9\nunsafe-blocks crates/sys 2").check(&two_unsafe_blocks()), Vec::<String>::new());
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        assert!(parse("unsafe-block crates/sys 2").is_err());
    }
}
