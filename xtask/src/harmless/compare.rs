//! Runs a script in each way and compares the outcomes.

use crate::job::Ending;
use crate::paths;
use crate::programs::program_cases::{Isolation, ProgramCases, ProgramRun};
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// Runs of a case whose outcomes differ: tests of time and load do not always pass without uringlet
/// either.
const ATTEMPTS: usize = 3;
/// Lines that are shown of those that differ.
const SHOWN: usize = 12;

/// How a script is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunWay {
    Plain,
    Attached,
    /// Attached, where a real io_uring call kills.
    Blocked,
}

/// What a script did.
#[derive(Debug, PartialEq, Eq)]
struct ScriptOutcome {
    ending: Ending,
    lines: Vec<String>,
}

impl ScriptOutcome {
    fn of(run: &ProgramRun) -> Self {
        let lines = run.output.lines().filter(|line| line.starts_with("= ")).map(str::to_owned).collect();
        Self { ending: run.ending, lines }
    }
}

/// Where a script and its folder are, and what comes before a command there.
#[derive(Debug)]
pub(super) struct Place {
    /// As the script sees it.
    pub(super) script: PathBuf,
    /// The folder for the script's files, as seen here and by the script.
    pub(super) dir: PathBuf,
    pub(super) seen_dir: PathBuf,
    /// As the script sees it.
    pub(super) uringlet: PathBuf,
    /// Enters the place.
    pub(super) enter: Vec<String>,
}

impl Place {
    /// On this machine as it is.
    pub(super) fn here(script: &str, dir: &Path, uringlet: &Path) -> Self {
        let script = scripts().join(format!("{script}.sh"));
        let dir = dir.join("run");
        Self { script, dir: dir.clone(), seen_dir: dir, uringlet: uringlet.to_path_buf(), enter: Vec::new() }
    }

    fn argv(&self, way: RunWay, word: &str) -> anyhow::Result<Vec<String>> {
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is not UTF-8");
        let mut argv = self.enter.clone();
        if way != RunWay::Plain {
            argv.extend([text(&self.uringlet)?, "run".to_owned(), "--".to_owned()]);
        }
        let is_attached = if way == RunWay::Plain { "no" } else { "yes" };
        argv.extend(["bash".to_owned(), text(&self.script)?, text(&self.seen_dir)?, is_attached.to_owned()]);
        argv.extend((!word.is_empty()).then(|| word.to_owned()));
        Ok(argv)
    }

    /// Runs the script in an empty folder.
    fn run(&self, cases: &ProgramCases, way: RunWay, word: &str) -> anyhow::Result<ProgramRun> {
        paths::fresh_dir(&self.dir)?;
        let argv = self.argv(way, word)?;
        let run = if way == RunWay::Blocked { cases.run_bare(Isolation::Kill, &argv) } else { cases.run_outside(&argv) };
        fs::remove_dir_all(&self.dir).with_context(|| format!("removing {}", self.dir.display()))?;
        run
    }
}

/// The folder of the scripts.
pub(super) fn scripts() -> PathBuf {
    paths::root().join("conformance/harmless")
}

/// Runs the script plainly, then in each way under uringlet.
pub(super) fn check(cases: &mut ProgramCases, place: &Place, word: &str) {
    let mut plain = Vec::new();
    cases.case(&format!("{word} plain"), |cases| {
        let run = place.run(cases, RunWay::Plain, word)?;
        let outcome = ScriptOutcome::of(&run);
        run.ok()?;
        ensure!(!outcome.lines.is_empty(), "the script says no outcome");
        plain.push(outcome);
        Ok(())
    });
    if plain.is_empty() {
        return;
    }
    for (way, name) in [(RunWay::Attached, "attached"), (RunWay::Blocked, "attached, blocked")] {
        let name = format!("{word} {name}");
        let mut repeated = None;
        cases.case(&name, |cases| {
            repeated = same(cases, place, way, word, &mut plain)?;
            Ok(())
        });
        if let Some(why) = repeated {
            cases.note_repeated(&format!("{name}: {why}"));
        }
    }
}

/// Runs until an outcome is one that a plain run had. `Some`: the first run's was none, and how it
/// differed.
fn same(cases: &ProgramCases, place: &Place, way: RunWay, word: &str, plain: &mut Vec<ScriptOutcome>) -> anyhow::Result<Option<String>> {
    let mut seen = Vec::new();
    for attempt in 1..=ATTEMPTS {
        if attempt > 1 {
            plain.push(ScriptOutcome::of(&place.run(cases, RunWay::Plain, word)?));
        }
        let run = place.run(cases, way, word)?;
        seen.push((ScriptOutcome::of(&run), run));
        if seen.iter().any(|(outcome, _)| plain.contains(outcome)) {
            let first = plain.first().context("no plain run")?;
            let why = || format!("as plain at attempt {attempt}; before that\n{}", difference(first, &seen[0].0));
            return Ok((attempt > 1).then(why));
        }
    }
    let (outcome, run) = seen.swap_remove(0);
    let first = plain.first().context("no plain run")?;
    anyhow::bail!("{}\n{}", difference(first, &outcome), run.tail())
}

/// How two outcomes differ: the endings, and lines that only one of them has.
fn difference(plain: &ScriptOutcome, attached: &ScriptOutcome) -> String {
    let mut text = String::new();
    if plain.ending != attached.ending {
        text += &format!("plain: {:?}, attached: {:?}\n", plain.ending, attached.ending);
    }
    let only = |of: &ScriptOutcome, other: &ScriptOutcome, sign: &str| -> String {
        let lines: Vec<_> = of.lines.iter().filter(|line| !other.lines.contains(line)).map(|line| format!("{sign}{line}\n")).collect();
        let more = lines.len().saturating_sub(SHOWN);
        let shown: String = lines.into_iter().take(SHOWN).collect();
        if more > 0 { format!("{shown}{sign} and {more} more\n") } else { shown }
    };
    text += &only(plain, attached, "plain    ");
    text += &only(attached, plain, "attached ");
    if text.is_empty() { "the same lines in another order or number".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ending: i32, lines: &[&str]) -> ScriptOutcome {
        let output = lines.join("\n");
        ScriptOutcome::of(&ProgramRun { ending: Ending::Exited(ending), output })
    }

    #[test]
    fn only_marked_lines_are_an_outcome() {
        assert_eq!(outcome(0, &["noise", "= a", " = b", "= c"]).lines, ["= a", "= c"]);
        assert_ne!(outcome(0, &["= a"]), outcome(1, &["= a"]));
    }

    #[test]
    fn a_difference_names_both_sides() {
        let text = difference(&outcome(0, &["= a", "= b"]), &outcome(3, &["= a", "= c"]));
        assert_eq!(text, "plain: Exited(0), attached: Exited(3)\nplain    = b\nattached = c\n");
        let text = difference(&outcome(0, &["= a", "= b"]), &outcome(0, &["= b", "= a"]));
        assert!(text.contains("order"), "{text}");
    }
}
