//! What each test is known to do: a text file, one line a test, `NAME  VERDICT  REASON`. It only ratchets upward.
//!
//! `pass`, `skip` and `fail` are what tests say. `varies` is written by hand for a test whose answer depends on the machine or
//! on luck: any result is taken, and nothing overwrites it.

use anyhow::{Context, bail};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// What a test says about us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    /// The test itself found that it cannot be run; why.
    Skip(String),
    /// Why, as far as known.
    Fail(String),
    /// On what the answer depends. Never a result, only an expectation.
    Varies(String),
}

impl Verdict {
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

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            "" => f.write_str(self.word()),
            reason => write!(f, "{} ({reason})", self.word()),
        }
    }
}

#[derive(Debug)]
pub(super) struct Manifest {
    path: PathBuf,
    /// The lines above the first test, kept as they are.
    heading: String,
    lines: BTreeMap<String, Verdict>,
}

/// What differs between the manifest and a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// Worse than listed: errors.
    pub(super) worse: Vec<String>,
    /// Better than listed, or not listed: the manifest must be updated.
    pub(super) unlisted: Vec<String>,
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
        let mut manifest = Self { path: path.to_path_buf(), heading: String::new(), lines: BTreeMap::new() };
        for (index, line) in text.lines().enumerate() {
            if line.starts_with('#') || line.is_empty() {
                manifest.heading += &format!("{line}\n");
                continue;
            }
            let (name, verdict) = parse_line(line).with_context(|| format!("{}:{}", path.display(), index + 1))?;
            if manifest.lines.insert(name.to_owned(), verdict).is_some() {
                bail!("{}:{}: {name} is listed twice", path.display(), index + 1);
            }
        }
        Ok(manifest)
    }

    pub(super) fn is_listed_as_pass(&self, name: &str) -> bool {
        self.lines.get(name) == Some(&Verdict::Pass)
    }

    pub(super) fn count_pass(&self) -> usize {
        self.lines.values().filter(|verdict| **verdict == Verdict::Pass).count()
    }

    /// Compares what was run with what is listed. Reasons are for people, not compared.
    pub(super) fn compare(&self, results: &BTreeMap<String, Verdict>) -> Difference {
        let mut difference = Difference::default();
        for (name, is) in results {
            let Some(was) = self.lines.get(name) else {
                difference.unlisted.push(format!("{name}: not listed, is {is}"));
                continue;
            };
            match was.against(is) {
                Ordering::Less => difference.worse.push(format!("{name}: was {was}, is {is}")),
                Ordering::Greater => difference.unlisted.push(format!("{name}: was {was}, is {is}")),
                Ordering::Equal => {}
            }
        }
        difference
    }

    /// Takes the results over. A reason that somebody wrote stays while its verdict does.
    pub(super) fn update(&mut self, results: &BTreeMap<String, Verdict>) {
        for (name, is) in results {
            let listed = self.lines.get(name);
            if listed.is_none_or(|was| was.against(is) != Ordering::Equal) {
                self.lines.insert(name.clone(), is.clone());
            }
        }
    }

    pub(super) fn write(&self) -> anyhow::Result<()> {
        std::fs::write(&self.path, self.render()).with_context(|| format!("writing {}", self.path.display()))
    }

    fn render(&self) -> String {
        let width = self.lines.keys().map(String::len).max().unwrap_or(0);
        let mut text = self.heading.clone();
        for (name, verdict) in &self.lines {
            let line = format!("{name:width$}  {:<6}  {}", verdict.word(), verdict.reason());
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

fn parse_line(line: &str) -> anyhow::Result<(&str, Verdict)> {
    let mut words = line.splitn(2, char::is_whitespace);
    let name = words.next().unwrap_or_default();
    let rest = words.next().unwrap_or_default().trim();
    let (word, reason) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let reason = reason.trim().to_owned();
    let verdict = match word {
        "pass" if reason.is_empty() => Verdict::Pass,
        "skip" if !reason.is_empty() => Verdict::Skip(reason),
        "fail" if !reason.is_empty() => Verdict::Fail(reason),
        "varies" if !reason.is_empty() => Verdict::Varies(reason),
        _ => {
            bail!("expected `NAME pass`, or `NAME skip | fail | varies` and a REASON, got `{line}`")
        }
    };
    Ok((name, verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(text: &str) -> Manifest {
        Manifest::parse(Path::new("m"), text).unwrap()
    }

    fn results(list: &[(&str, Verdict)]) -> BTreeMap<String, Verdict> {
        list.iter().map(|(name, verdict)| ((*name).to_owned(), verdict.clone())).collect()
    }

    fn fail(why: &str) -> Verdict {
        Verdict::Fail(why.to_owned())
    }

    #[test]
    fn a_listed_pass_that_fails_is_worse() {
        let found = manifest("a pass\n").compare(&results(&[("a", fail("exit 1"))]));
        assert_eq!(found.worse, ["a: was pass, is fail (exit 1)"]);
        assert_eq!(found.unlisted, Vec::<String>::new());
    }

    #[test]
    fn a_listed_failure_that_passes_must_be_listed_anew() {
        let found = manifest("a fail hang\n").compare(&results(&[("a", Verdict::Pass)]));
        assert_eq!(found.unlisted, ["a: was fail (hang), is pass"]);
        assert_eq!(found.worse, Vec::<String>::new());
    }

    #[test]
    fn updating_keeps_headings_and_written_reasons() {
        let mut manifest = manifest("# heading\nlong-name fail hang: nobody wakes it\nb fail exit 1\n");
        manifest.update(&results(&[("long-name", fail("hang")), ("b", Verdict::Pass)]));
        assert_eq!(manifest.render(), "# heading\nb          pass\nlong-name  fail    hang: nobody wakes it\n");
    }

    #[test]
    fn what_varies_may_do_anything_and_stays() {
        let mut manifest = manifest("a varies needs a fast disk\n");
        let found = results(&[("a", fail("exit 1"))]);
        assert_eq!(manifest.compare(&found), Difference::default());
        manifest.update(&found);
        assert_eq!(manifest.render(), "a  varies  needs a fast disk\n");
    }

    #[test]
    fn a_failure_needs_a_reason() {
        assert!(Manifest::parse(Path::new("m"), "a fail\n").is_err());
        assert!(Manifest::parse(Path::new("m"), "a pass\na pass\n").is_err());
    }
}
