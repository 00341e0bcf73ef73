//! plocate: a small reader through liburing.so.2 that falls back to plain reads where there is no
//! ring.

use super::program_cases::{Isolation, ProgramCases, ProgramRun};
use crate::paths;
use anyhow::{Context, ensure};
use std::fs;

/// The installed programs (Debian's paths).
const PLOCATE: &str = "/usr/bin/plocate";
const UPDATEDB: &str = "/usr/sbin/updatedb.plocate";

const PATTERNS: &[(&str, usize)] = &[("needle-7.txt", 40), ("folder-39/needle", 50), ("needle", 2000), ("no such name", 0)];

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    // A copy has no set-gid bit: a set-gid program cannot be attached.
    let plocate = cases.dir().join("plocate");
    fs::copy(PLOCATE, &plocate)?;
    let plocate = plocate.to_string_lossy().into_owned();
    let tree = make_tree(cases)?;
    cases.run_outside(&[UPDATEDB, "-l", "0", "-o", "names.db", "-U", &tree, "--prunepaths", "", "--prunefs", ""])?.ok()?;
    // With --docker it falls back to plain reads; with --kill a real call kills it.
    cases.needs_uringlet(Isolation::Kill, &[&plocate, "-d", "names.db", "needle-7"]);
    for &isolation in cases.isolations() {
        for &(pattern, expected) in PATTERNS {
            let argv = [&plocate, "-d", "names.db", pattern];
            cases.case(&format!("{} finds {expected} of `{pattern}`", isolation.option()), |cases| {
                count(cases.run(isolation, &argv)?, &tree, pattern, expected)
            });
        }
    }
    gets_its_ring(cases, &plocate)
}

fn make_tree(cases: &ProgramCases) -> anyhow::Result<String> {
    let tree = cases.dir().join("tree");
    for folder in 0..40 {
        let folder = tree.join(format!("folder-{folder}"));
        fs::create_dir_all(&folder)?;
        (0..50).try_for_each(|file| fs::write(folder.join(format!("needle-{file}.txt")), ""))?;
    }
    Ok(tree.to_string_lossy().into_owned())
}

fn count(ran: ProgramRun, tree: &str, pattern: &str, expected: usize) -> anyhow::Result<()> {
    // Like grep, it exits with 1 if it finds nothing.
    let output = if expected == 0 { ran.output } else { ran.ok()? };
    let found = output.lines().filter(|line| line.starts_with(tree) && line.contains(pattern)).count();
    ensure!(found == expected && output.lines().count() == expected, "found {found}:\n{output}");
    Ok(())
}

/// Checks the answer to its queue_init: below 0 it would use plain reads, with the same results.
fn gets_its_ring(cases: &mut ProgramCases, plocate: &str) -> anyhow::Result<()> {
    let source = paths::root().join("conformance/ring-spy.c").to_string_lossy().into_owned();
    cases.run_outside(&["cc", "-shared", "-fPIC", "-o", "ring-spy.so", &source])?.ok().context("building the spy")?;
    cases.set_env("LD_PRELOAD", &cases.dir().join("ring-spy.so").to_string_lossy());
    for &isolation in cases.isolations() {
        cases.case(&format!("{} gets the ring it asks for", isolation.option()), |cases| {
            let output = cases.run(isolation, &[plocate, "-d", "names.db", "needle-7.txt"])?.ok()?;
            let answer = output.lines().find(|line| line.starts_with("ring of ")).context("it asked for no ring")?;
            ensure!(answer.ends_with(": 0"), "{answer}");
            Ok(())
        });
    }
    Ok(())
}
