//! The expected result of each test: a text file, one line a test, `NAME  VERDICT  REASON`. Results
//! may only get better.
//!
//! `pass`, `skip` and `fail` are results of tests. `varies` is written by hand for a test whose
//! result depends on the machine or on chance: any result is accepted, and no update overwrites it.
//! A `pass` with a reason, written by hand, is a test that may be repeated: it also fails on the
//! kernel's ring when the machine is busy. The reason says why. No other test may be repeated.

use anyhow::{Context, bail};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// What a test says about us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TestVerdict {
    Pass,
    /// The test itself found that it cannot be run; why.
    Skip(String),
    /// Why, as far as known.
    Fail(String),
    /// On what the answer depends. Never a result, only an expectation.
    Varies(String),
}

impl TestVerdict {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Skip(_) => "skip",
            Self::Fail(_) => "fail",
            Self::Varies(_) => "varies",
        }
    }

    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Pass => "",
            Self::Skip(reason) | Self::Fail(reason) | Self::Varies(reason) => reason,
        }
    }

    /// What it is worth; `None` where nothing is expected.
    fn rank(&self) -> Option<u8> {
        match self {
            Self::Fail(_) => Some(0),
            Self::Skip(_) => Some(1),
            Self::Pass => Some(2),
            Self::Varies(_) => None,
        }
    }

    /// How `is` compares with what was expected.
    fn against(&self, is: &Self) -> Ordering {
        match (self.rank(), is.rank()) {
            (Some(was), Some(is)) => is.cmp(&was),
            _ => Ordering::Equal,
        }
    }
}

impl fmt::Display for TestVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            "" => f.write_str(self.word()),
            reason => write!(f, "{} ({reason})", self.word()),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Manifest {
    path: PathBuf,
    /// The lines above the first test, kept as they are.
    heading: String,
    lines: BTreeMap<String, TestVerdict>,
    /// Why these may fail once, though they are listed as passes.
    repeatable: BTreeMap<String, String>,
}

/// What differs between the manifest and a run: tests, and how.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ManifestDifference {
    /// Worse than listed: errors.
    pub(super) worse: Vec<(String, String)>,
    /// Better than listed, or not listed: the manifest must be updated.
    pub(super) unlisted: Vec<(String, String)>,
}

impl Manifest {
    /// Reads the file; an absent one is an empty manifest.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            other => other.with_context(|| format!("reading {}", path.display()))?,
        };
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> anyhow::Result<Self> {
        let mut manifest = Self { path: path.to_path_buf(), heading: String::new(), lines: BTreeMap::new(), repeatable: BTreeMap::new() };
        for (index, line) in text.lines().enumerate() {
            if line.starts_with('#') || line.is_empty() {
                manifest.heading += &format!("{line}\n");
                continue;
            }
            let (name, verdict, why) = parse_line(line).with_context(|| format!("{}:{}", path.display(), index + 1))?;
            if let Some(why) = why {
                manifest.repeatable.insert(name.to_owned(), why.to_owned());
            }
            if manifest.lines.insert(name.to_owned(), verdict).is_some() {
                bail!("{}:{}: {name} is listed twice", path.display(), index + 1);
            }
        }
        Ok(manifest)
    }

    pub(super) fn is_listed_as_pass(&self, name: &str) -> bool {
        self.lines.get(name) == Some(&TestVerdict::Pass)
    }

    pub(super) fn is_repeatable(&self, name: &str) -> bool {
        self.repeatable.contains_key(name)
    }

    /// Whether it is known never to end.
    pub(super) fn is_listed_as_hanging(&self, name: &str) -> bool {
        matches!(self.lines.get(name), Some(TestVerdict::Fail(why)) if why.starts_with("hang"))
    }

    pub(super) fn count_pass(&self) -> usize {
        self.lines.values().filter(|verdict| **verdict == TestVerdict::Pass).count()
    }

    /// Compares what was run with what is listed. Reasons are for people, not compared.
    pub(super) fn compare(&self, results: &BTreeMap<String, TestVerdict>) -> ManifestDifference {
        let mut difference = ManifestDifference::default();
        for (name, is) in results {
            let Some(was) = self.lines.get(name) else {
                difference.unlisted.push((name.clone(), format!("not listed, is {is}")));
                continue;
            };
            let how = (name.clone(), format!("was {was}, is {is}"));
            match was.against(is) {
                Ordering::Less => difference.worse.push(how),
                Ordering::Greater => difference.unlisted.push(how),
                Ordering::Equal => {}
            }
        }
        difference
    }

    /// Takes the results over. A reason that somebody wrote stays while its verdict does.
    fn update(&mut self, results: &BTreeMap<String, TestVerdict>) {
        for (name, is) in results {
            let listed = self.lines.get(name);
            if listed.is_none_or(|was| was.against(is) != Ordering::Equal) {
                self.lines.insert(name.clone(), is.clone());
            }
        }
    }

    /// Writes the file with the results taken over.
    pub(super) fn write(&self, results: &BTreeMap<String, TestVerdict>) -> anyhow::Result<()> {
        let mut new = self.clone();
        new.update(results);
        std::fs::write(&self.path, new.render()).with_context(|| format!("writing {}", self.path.display()))
    }

    fn render(&self) -> String {
        let width = self.lines.keys().map(String::len).max().unwrap_or(0);
        let mut text = self.heading.clone();
        for (name, verdict) in &self.lines {
            let repeatable = self.repeatable.get(name).filter(|_| *verdict == TestVerdict::Pass);
            let reason = repeatable.map_or(verdict.reason(), String::as_str);
            let line = format!("{name:width$}  {:<6}  {reason}", verdict.word());
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// The name, the verdict, and for a pass perhaps why it may be repeated.
fn parse_line(line: &str) -> anyhow::Result<(&str, TestVerdict, Option<&str>)> {
    let mut words = line.splitn(2, char::is_whitespace);
    let name = words.next().unwrap_or_default();
    let rest = words.next().unwrap_or_default().trim();
    let (word, reason) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let reason = reason.trim();
    let verdict = match word {
        "pass" => TestVerdict::Pass,
        "skip" if !reason.is_empty() => TestVerdict::Skip(reason.to_owned()),
        "fail" if !reason.is_empty() => TestVerdict::Fail(reason.to_owned()),
        "varies" if !reason.is_empty() => TestVerdict::Varies(reason.to_owned()),
        _ => {
            bail!("expected `NAME pass`, or `NAME skip | fail | varies` and a REASON, got `{line}`")
        }
    };
    let why = Some(reason).filter(|why| verdict == TestVerdict::Pass && !why.is_empty());
    Ok((name, verdict, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(text: &str) -> Manifest {
        Manifest::parse(Path::new("m"), text).unwrap()
    }

    fn results(list: &[(&str, TestVerdict)]) -> BTreeMap<String, TestVerdict> {
        list.iter().map(|(name, verdict)| ((*name).to_owned(), verdict.clone())).collect()
    }

    fn fail(why: &str) -> TestVerdict {
        TestVerdict::Fail(why.to_owned())
    }

    #[test]
    fn a_listed_pass_that_fails_is_worse() {
        let found = manifest("a pass\n").compare(&results(&[("a", fail("exit 1"))]));
        assert_eq!(found.worse, [("a".to_owned(), "was pass, is fail (exit 1)".to_owned())]);
        assert!(found.unlisted.is_empty());
    }

    #[test]
    fn a_listed_failure_that_passes_must_be_listed_anew() {
        let found = manifest("a fail hang\n").compare(&results(&[("a", TestVerdict::Pass)]));
        assert_eq!(found.unlisted, [("a".to_owned(), "was fail (hang), is pass".to_owned())]);
        assert!(found.worse.is_empty());
    }

    #[test]
    fn updating_keeps_headings_and_written_reasons() {
        let mut manifest = manifest("# heading\nlong-name fail hang: nobody wakes it\nb fail exit 1\n");
        manifest.update(&results(&[("long-name", fail("hang")), ("b", TestVerdict::Pass)]));
        assert_eq!(manifest.render(), "# heading\nb          pass\nlong-name  fail    hang: nobody wakes it\n");
    }

    #[test]
    fn a_test_that_varies_takes_any_result() {
        let mut manifest = manifest("a varies needs a fast disk\n");
        let found = results(&[("a", fail("exit 1"))]);
        assert_eq!(manifest.compare(&found), ManifestDifference::default());
        manifest.update(&found);
        assert_eq!(manifest.render(), "a  varies  needs a fast disk\n");
    }

    #[test]
    fn a_pass_with_a_reason_may_be_repeated_and_keeps_it() {
        let text = "a  pass    measures time\nb  pass\n";
        let mut manifest = manifest(text);
        assert!(manifest.is_repeatable("a") && !manifest.is_repeatable("b"));
        manifest.update(&results(&[("a", TestVerdict::Pass), ("b", TestVerdict::Pass)]));
        assert_eq!(manifest.render(), text);
    }

    #[test]
    fn a_failure_needs_a_reason() {
        assert!(Manifest::parse(Path::new("m"), "a fail\n").is_err());
        assert!(Manifest::parse(Path::new("m"), "a pass\na pass\n").is_err());
    }
}
