//! Retired words: names that the field's own have replaced. `xtask/retired-words.txt` lists them.

use super::findings::TidyFindings;
use super::ratchet::RETIRED;
use anyhow::{Context, ensure};
use std::collections::BTreeMap;

/// Files that must name retired words.
const EXEMPT: &[&str] = &["docs/glossary.md", "xtask/retired-words.txt"];

/// A retired word and the one to use.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    words: BTreeMap<String, String>,
}

impl Vocabulary {
    /// Reads lines of the form `WORD -> REPLACEMENT`.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut words = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            let (word, instead) = line.split_once(" -> ").with_context(|| format!("expected `WORD -> REPLACEMENT`, got `{line}`"))?;
            ensure!(is_word(word), "`{word}` is not one word");
            ensure!(words.insert(word.to_owned(), instead.to_owned()).is_none(), "`{word}` is listed twice");
        }
        Ok(Self { words })
    }

    /// Records every retired word in the code, comments and prose of one text.
    pub(super) fn measure(&self, path: &str, text: &str, found: &mut TidyFindings) {
        let is_checked = [".rs", ".c", ".h", ".md", ".sh", ".toml"].iter().any(|end| path.ends_with(end));
        if !is_checked || EXEMPT.contains(&path) {
            return;
        }
        for (index, line) in text.lines().enumerate() {
            for word in line.split(|c: char| !is_letter(c)) {
                if let Some(instead) = self.words.get(word) {
                    found.add(RETIRED, path, format!("{path}:{}: `{word}` is retired: {instead}", index + 1));
                }
            }
        }
    }
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_word(word: &str) -> bool {
    !word.is_empty() && word.chars().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(path: &str, text: &str) -> usize {
        let mut found = TidyFindings::default();
        Vocabulary::parse("# comment\nold_one -> new_one\n").unwrap().measure(path, text, &mut found);
        found.all_texts("").count()
    }

    #[test]
    fn whole_words_are_refused_in_code_and_comments() {
        assert_eq!(offences("a.rs", "fn old_one() {} // old_one\n"), 2);
        assert_eq!(offences("a.rs", "fn very_old_one() {}\n"), 0);
    }

    #[test]
    fn the_glossary_may_name_them() {
        assert_eq!(offences("docs/glossary.md", "old_one"), 0);
    }

    #[test]
    fn a_line_without_a_replacement_is_an_error() {
        assert!(Vocabulary::parse("old_one\n").is_err());
        assert!(Vocabulary::parse("a -> b\na -> c\n").is_err());
    }
}
