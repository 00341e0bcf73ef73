//! Types of one name: each name stands for one concept in the whole workspace.
//!
//! `xtask/same-names.txt` lists the exceptions, one a line: `NAME: reason`.

use super::findings::TidyFindings;
use super::ratchet::SAME_NAMES;
use anyhow::{Context, ensure};
use std::collections::{BTreeMap, BTreeSet};

/// Names that may occur more than once.
#[derive(Debug, Default)]
pub(super) struct Exceptions(BTreeSet<String>);

impl Exceptions {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut names = BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            let (name, reason) = line.split_once(": ").with_context(|| format!("expected `NAME: reason`, got `{line}`"))?;
            ensure!(!reason.trim().is_empty(), "`{name}` has no reason");
            names.insert(name.to_owned());
        }
        Ok(Self(names))
    }

    /// Records each name with more than one definition, and exceptions that are none.
    pub(super) fn measure(&self, types: &BTreeSet<(String, String)>, found: &mut TidyFindings) {
        let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, place) in types {
            places.entry(name).or_default().push(place);
        }
        let is_double = |name: &str| places.get(name).is_some_and(|places| places.len() > 1);
        for (name, places) in places.iter().filter(|(name, places)| places.len() > 1 && !self.0.contains(**name)) {
            found.add(SAME_NAMES, name, format!("{name}: {}", places.join(", ")));
        }
        for name in self.0.iter().filter(|name| !is_double(name)) {
            found.add(SAME_NAMES, name, format!("xtask/same-names.txt: {name} has one definition: strike it"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(exceptions: &str, types: &[(&str, &str)]) -> usize {
        let types = types.iter().map(|(name, place)| (name.to_string(), place.to_string())).collect();
        let mut found = TidyFindings::default();
        Exceptions::parse(exceptions).unwrap().measure(&types, &mut found);
        found.all_texts("").count()
    }

    #[test]
    fn a_second_type_of_a_name_needs_a_reason() {
        assert_eq!(offences("", &[("Ring", "a.rs:1"), ("Sq", "a.rs:2")]), 0);
        assert_eq!(offences("", &[("Ring", "a.rs:1"), ("Ring", "b.rs:2")]), 1);
        assert_eq!(offences("Ring: two views of one ring", &[("Ring", "a.rs:1"), ("Ring", "b.rs:2")]), 0);
    }

    #[test]
    fn an_exception_that_is_none_is_an_offence() {
        assert_eq!(offences("Ring: was two", &[("Ring", "a.rs:1")]), 1);
        assert!(Exceptions::parse("Ring: ").is_err());
    }
}
