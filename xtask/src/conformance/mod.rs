//! `xtask conformance`: liburing's own tests, run on our engine, compared with a manifest.
//!
//! Each test runs as `sandbox --kill -- uringlet run -- TEST`: a call that reaches the kernel's
//! io_uring kills it, so a test that passes used our engine. With `--native` the same tests run on
//! the kernel's ring: the baseline.

mod kill_log;
mod manifest;
mod needs;
mod source;
mod suite;

use crate::test_counts::{Failure, TestCounts};
use crate::{build, paths};
use anyhow::{Context, bail, ensure};
use manifest::{Manifest, ManifestDifference, TestVerdict};
use source::Release;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;
use suite::{Suite, TestEnd};

const USAGE: &str = "\
usage: cargo xtask conformance [--liburing V] [--native] [--filter PAT] [--jobs N] [--timeout S]
                               [--update [--allow-regress]]

  --liburing V     the tests of this version: 2.3 (Debian 12; the default) or 2.15 (Debian testing)
  --native         on the kernel's own ring instead of ours
  --filter PAT     only tests whose name contains PAT
  --jobs N         so many at a time (default 2)
  --timeout S      seconds until a test counts as hanging (default 150; the slowest takes 12 on an idle machine)
  --update         write what was found into the manifest; refuses to list a pass as a failure
  --allow-regress  let --update do that too
  --list           only name the tests

Exit status 0 only if every test did what the manifest in conformance/ lists.";

#[derive(Debug)]
struct ConformanceOptions {
    release: Release,
    native: bool,
    filter: String,
    jobs: usize,
    timeout: Duration,
    update: bool,
    allow_regress: bool,
    list: bool,
}

/// Fetches, builds, runs, compares.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    let Some(options) = parse(args)? else {
        println!("{USAGE}");
        return Ok(TestCounts::default());
    };
    let mut tests = source::tests(options.release)?;
    tests.retain(|test| test.name.contains(&options.filter));
    ensure!(!tests.is_empty(), "no test's name contains `{}`", options.filter);
    if options.list {
        tests.iter().for_each(|test| println!("{}", test.name));
        return Ok(TestCounts::default());
    }
    let manifest = Manifest::read(&manifest_path(&options, options.native))?;
    let left_out = needs::leave_out(&mut tests)?;
    let suite = Suite {
        launcher: launcher(options.native)?,
        kind: format!("{}-{}", if options.native { "native" } else { "uringlet" }, options.release.version),
        jobs: options.jobs,
        timeout: options.timeout,
        manifest: &manifest,
    };
    let ended = suite.run(&tests)?;
    println!("logs: {}", suite.logs().display());
    let verdicts = ended.iter().map(|(name, ended)| (name.clone(), ended.verdict.clone())).collect();
    let mut counts = conclude(&options, &manifest, &verdicts)?;
    counts.failures.iter_mut().for_each(|failure| explain(failure, &suite, &ended));
    let is_late = |ended: &TestEnd| ended.verdict == TestVerdict::Pass && !ended.before.is_empty();
    counts.skipped += left_out;
    counts.repeated = ended.iter().filter(|(_, ended)| is_late(ended)).map(|(name, ended)| repeated(name, ended)).collect();
    Ok(counts)
}

/// What the test said: at its first attempt, for what came later may be another story.
fn explain(failure: &mut Failure, suite: &Suite<'_>, ended: &BTreeMap<String, TestEnd>) {
    failure.output = suite.said(&failure.item, 1);
    let before = &ended[&failure.item].before;
    if !before.is_empty() {
        failure.verdict += &format!("; earlier attempts: {}", list(before));
    }
}

/// How a test that passed at last did so.
fn repeated(name: &str, ended: &TestEnd) -> String {
    format!("{name}: passed at attempt {}, alone; before: {}", ended.before.len() + 1, list(&ended.before))
}

fn list(verdicts: &[TestVerdict]) -> String {
    verdicts.iter().map(TestVerdict::to_string).collect::<Vec<_>>().join(", ")
}

/// Compares with the manifest, or writes it; the failures are named, not yet explained.
fn conclude(options: &ConformanceOptions, manifest: &Manifest, results: &BTreeMap<String, TestVerdict>) -> anyhow::Result<TestCounts> {
    let count = |word: &str| results.values().filter(|verdict| verdict.word() == word).count() as u32;
    let ManifestDifference { worse, unlisted } = manifest.compare(results);
    worse.iter().for_each(|(name, how)| println!("WORSE   {name}: {how}"));
    unlisted.iter().for_each(|(name, how)| println!("UPDATE  {name}: {how}"));
    let mut surprises = Vec::new();
    if options.update {
        if !worse.is_empty() && !options.allow_regress {
            bail!("--update lists no pass as a failure unless --allow-regress says so");
        }
        manifest.write(results)?;
    } else {
        if !unlisted.is_empty() {
            println!("not as the manifest lists: run it with --update and commit the manifest");
        }
        surprises.extend(worse.into_iter().chain(unlisted).map(|(name, how)| Failure::new(name, how, "")));
    }
    if !options.native {
        let kernel = Manifest::read(&manifest_path(options, true))?.count_pass();
        println!("the kernel's own ring passes {kernel} of all of them");
    }
    let (passed, failed, skipped) = (count("pass"), count("fail"), count("skip"));
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    // A surprise may also be a test that passes and should not.
    let unlisted = surprises.len() as u32;
    let known = failed.saturating_sub(unlisted);
    Ok(TestCounts { passed, failed: unlisted, skipped, known, failures: surprises, ..TestCounts::default() })
}

fn manifest_path(options: &ConformanceOptions, native: bool) -> std::path::PathBuf {
    let suffix = if native { ".kernel" } else { "" };
    paths::root().join(format!("conformance/liburing-{}{suffix}.txt", options.release.version))
}

fn launcher(native: bool) -> anyhow::Result<Vec<OsString>> {
    let sandbox = [paths::SELF_EXE, "sandbox", "--die-with-parent"];
    let mut argv: Vec<OsString> = sandbox.map(OsString::from).to_vec();
    if native {
        argv.push("--".into());
    } else {
        let uringlet = build::uringlet()?;
        argv.extend(["--kill".into(), "--".into(), uringlet.into(), "run".into(), "--".into()]);
    }
    Ok(argv)
}

fn parse(args: Vec<OsString>) -> anyhow::Result<Option<ConformanceOptions>> {
    use lexopt::prelude::*;
    let mut options = ConformanceOptions {
        release: source::OLDER,
        native: false,
        filter: String::new(),
        jobs: 2,
        timeout: Duration::from_secs(150),
        update: false,
        allow_regress: false,
        list: false,
    };
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(None),
            Long("liburing") => {
                let version = parser.value()?.string()?;
                options.release = source::release(&version).with_context(|| format!("there are no manifests for liburing {version}"))?;
            }
            Long("native") => options.native = true,
            Long("filter") => options.filter = parser.value()?.string()?,
            Long("jobs") => options.jobs = parser.value()?.parse()?,
            Long("timeout") => options.timeout = Duration::from_secs(parser.value()?.parse()?),
            Long("update") => options.update = true,
            Long("allow-regress") => options.allow_regress = true,
            Long("list") => options.list = true,
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    ensure!(options.jobs > 0, "--jobs must be at least 1");
    ensure!(options.update || !options.allow_regress, "--allow-regress goes with --update");
    Ok(Some(options))
}
