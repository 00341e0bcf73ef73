//! What tidy found: numbers that the ratchet compares, each with the lines that explain it.

use std::collections::BTreeMap;

/// What is counted, and where: a kind of offence, and a crate, file or function.
pub(crate) type FindingKey = (&'static str, String);

/// Numbers by key, and one line of text for every single offence.
#[derive(Debug, Default)]
pub(crate) struct TidyFindings {
    pub(crate) numbers: BTreeMap<FindingKey, usize>,
    texts: BTreeMap<FindingKey, Vec<String>>,
}

impl TidyFindings {
    /// Counts one more offence of this key; `text` names the place and what to do.
    pub(crate) fn add(&mut self, kind: &'static str, name: &str, text: String) {
        let key = (kind, name.to_owned());
        *self.numbers.entry(key.clone()).or_default() += 1;
        self.texts.entry(key).or_default().push(text);
    }

    /// Adds to a number that has no single offences, such as a length.
    pub(crate) fn increase(&mut self, kind: &'static str, name: &str, by: usize) {
        *self.numbers.entry((kind, name.to_owned())).or_default() += by;
    }

    /// The single offences of a key.
    pub(crate) fn texts(&self, key: &FindingKey) -> &[String] {
        self.texts.get(key).map_or(&[], Vec::as_slice)
    }

    /// Every single offence whose file or crate starts with `prefix`.
    pub(crate) fn all_texts<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a String> {
        self.texts.iter().filter(move |((_, name), _)| name.starts_with(prefix)).flat_map(|(_, texts)| texts)
    }
}
