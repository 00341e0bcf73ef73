//! Independent servers, unmodified: rublk, and the tests of rublk and of its library, each of them
//! a process that reaches the broker through `uringlet run`.

use super::block;
use super::broker::{FSCK, MAKE_FILESYSTEM, TestBroker, wait_until};
use crate::programs::program_cases::ProgramCases;
use crate::{build, paths};
use anyhow::{Context, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

const RUBLK: (&str, &str) = ("rublk", "0.2.15");
/// The library that rublk uses.
const LIBUBLK: (&str, &str) = ("libublk", "0.4.8");
/// Environment variable with the broker's runtime directory.
const DIR_VARIABLE: &str = "URINGLET_UBLK_DIR";
/// Expected results of the tests: a line each, `name pass` or `name skip REASON`.
const LISTS: &str = "conformance";

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let uringlet = build::uringlet()?;
    let program = installed()?;
    if let Some(why) = block::missing() {
        // Its tests and servers need the block device.
        cases.skip("all of it", &why);
        return Ok(());
    }
    let dir = cases.dir().join("test_broker");
    let test_broker = TestBroker::start(&uringlet, &dir, &[])?;
    cases.set_env(DIR_VARIABLE, dir.to_str().context("the directory's path is not UTF-8")?);
    let rublk = Rublk { uringlet: uringlet.display().to_string(), program: program.display().to_string() };
    cases.case("added, listed, deleted, each time by another process", |cases| add_list_delete(cases, &rublk));
    cases.case("ext4 on a file, the server killed, the next one goes on, fsck", |cases| recover_after_kill(cases, &rublk, &test_broker));
    for (name, version) in [RUBLK, LIBUBLK] {
        own_tests(cases, &rublk, name, version)?;
    }
    Ok(())
}

struct Rublk {
    uringlet: String,
    program: String,
}

impl Rublk {
    fn run(&self, cases: &ProgramCases, words: &[&str]) -> anyhow::Result<String> {
        // Its servers outlive this process: nothing that ends with its parent.
        let mut command = Command::new(&self.uringlet);
        command.args(["run", "--", &self.program]).args(words).current_dir(cases.dir()).env(DIR_VARIABLE, cases.dir().join("test_broker"));
        let output = command.output().context("starting rublk")?;
        let output_text = [output.stdout, output.stderr].concat();
        let output_text = String::from_utf8_lossy(&output_text).into_owned();
        ensure!(output.status.success(), "rublk {words:?} ended with {}:\n{output_text}", output.status);
        Ok(output_text)
    }
}

impl Rublk {
    /// rublk stops the device, whose server then deletes it, and deletes it again; the second
    /// deletion may fail.
    fn delete(&self, cases: &ProgramCases, number: &str) -> anyhow::Result<()> {
        let deleted = self.run(cases, &["del", "-n", number]);
        let left = cases.run_outside(&[&self.uringlet, "ublk", "list", "--json"])?.ok()?;
        ensure!(left.trim() == "[]", "device {number} is still there: {left}\n{deleted:?}");
        Ok(())
    }
}

/// Installs the crate's program, once.
fn installed() -> anyhow::Result<PathBuf> {
    let (name, version) = RUBLK;
    let root = paths::cache().join(format!("{name}-{version}"));
    let program = root.join("bin").join(name);
    if !program.exists() {
        let root = root.to_str().context("the cache's path is not UTF-8")?;
        let what = ["install", name, "--version", version, "--locked", "--no-default-features", "--quiet", "--root", root];
        crate::stream::sh("cargo", &what)?;
    }
    Ok(program)
}

fn add_list_delete(cases: &ProgramCases, rublk: &Rublk) -> anyhow::Result<()> {
    let number = (super::broker::NUMBER + 10).to_string();
    rublk.run(cases, &["add", "null", "-n", &number])?;
    let listed = rublk.run(cases, &["list", "-n", &number])?;
    ensure!(listed.contains("state LIVE"), "the list says:\n{listed}");
    let node = format!("/dev/ublkb{number}");
    cases.run_outside(&["dd", &format!("if={node}"), "of=/dev/null", "bs=1M", "count=64", "iflag=direct", "status=none"])?.ok()?;
    rublk.delete(cases, &number)?;
    ensure!(!Path::new(&node).exists(), "{node} is still there");
    Ok(())
}

fn recover_after_kill(cases: &ProgramCases, rublk: &Rublk, test_broker: &TestBroker) -> anyhow::Result<()> {
    let id = super::broker::NUMBER + 11;
    let number = id.to_string();
    let node = format!("/dev/ublkb{number}");
    cases.run_outside(&["truncate", "-s", "256M", "image"])?.ok()?;
    rublk.run(cases, &["add", "loop", "-n", &number, "-f", "image", "-r"])?;
    cases.run_outside(&["sh", "-euc", MAKE_FILESYSTEM, "sh", &node, "mnt", "ext4"])?.ok()?;
    let write = "dd if=/dev/urandom of=data bs=1M count=32 status=none; cp data mnt/before; sync -f mnt";
    cases.run_outside(&["sh", "-euc", write])?.ok()?;
    let state = test_broker.state(id)?;
    let server = state.split("\"server\":").nth(1).and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    crate::stream::sh("kill", &["-9", server.with_context(|| format!("no server in {state}"))?])?;
    wait_until("the device waits", || Ok(test_broker.state(id)?.contains("QUIESCED")))?;
    rublk.run(cases, &["recover", "-n", &number])?;
    wait_until("the device add_list_delete", || Ok(test_broker.state(id)?.contains("LIVE")))?;
    let went_on =
        cases.run_outside(&["sh", "-euc", "cp data mnt/after; sync -f mnt; cmp data mnt/before; cmp data mnt/after; umount mnt"])?;
    went_on.ok()?;
    cases.run_outside(&["sh", "-euc", FSCK, "sh", &node, "ext4"])?.ok()?;
    rublk.delete(cases, &number)
}

/// The tests of a crate, one at a time, as they examine all devices.
fn own_tests(cases: &mut ProgramCases, rublk: &Rublk, name: &str, version: &str) -> anyhow::Result<()> {
    let program = test_program(name, version)?;
    let known = ExpectedResults::read(name, version)?;
    let program = program.to_str().context("the path of a test program is not UTF-8")?;
    let argv = [&rublk.uringlet, "run", "--", program];
    let listed = cases.run_outside(&[&argv[..], &["--list", "--format=terse"]].concat())?.ok()?;
    let tests: Vec<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    ensure!(!tests.is_empty(), "{name} has no tests:\n{listed}");
    for test in tests {
        let title = format!("{name}: {test}");
        match known.of(test) {
            Some(Some(why)) => cases.skip(&title, why),
            Some(None) => cases.case(&title, |cases| {
                let ran = cases.run_outside(&[&argv[..], &["--exact", test, "--nocapture", "--test-threads=1"]].concat())?.ok()?;
                ensure!(ran.contains("1 passed"), "it did not run:\n{ran}");
                Ok(())
            }),
            None => cases.case(&title, |_| bail!("no expected result: add a line to {}", known.path.display())),
        }
    }
    Ok(())
}

/// Fetches a crate by making a package depend on it.
const FETCH: &str = r#"
mkdir -p "$3/fetch/src"
: >"$3/fetch/src/lib.rs"
printf '[package]\nname = "fetch"\nedition = "2021"\n[dependencies]\n%s = "=%s"\n[workspace]\n' "$1" "$2" >"$3/fetch/Cargo.toml"
cargo fetch --quiet --manifest-path "$3/fetch/Cargo.toml"
cp -r "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$1-$2" "$3/new"
printf '\n[workspace]\n' >>"$3/new/Cargo.toml"
mv "$3/new" "$3/sources"
"#;

/// Builds the crate's tests in a copy of its sources.
fn test_program(name: &str, version: &str) -> anyhow::Result<PathBuf> {
    let home = paths::cache().join(format!("{name}-{version}-tests"));
    let sources = home.join("sources");
    if !sources.exists() {
        let home = home.to_str().context("the cache's path is not UTF-8")?;
        crate::stream::sh("sh", &["-euc", FETCH, "sh", name, version, home])?;
    }
    // Tests start the examples as servers.
    build(&sources, name, &["build", "--examples"])?;
    let output = build(&sources, name, &["test", "--no-run", "--test", "basic", "--message-format=json"])?;
    let messages = String::from_utf8_lossy(&output);
    let program =
        messages.lines().filter(|line| line.contains(r#""name":"basic""#)).find_map(|line| line.split(r#""executable":""#).nth(1));
    let program = program.and_then(|rest| rest.split('"').next()).with_context(|| format!("cargo names no test program of {name}"))?;
    Ok(program.into())
}

/// Runs cargo in a crate's directory; returns its output.
fn build(sources: &Path, name: &str, words: &[&str]) -> anyhow::Result<Vec<u8>> {
    let mut cargo = Command::new("cargo");
    cargo.args(words).arg("--locked").current_dir(sources).env("CARGO_TARGET_DIR", sources.with_file_name("target"));
    // Default features are not needed and would need more packages.
    if name == RUBLK.0 {
        cargo.arg("--no-default-features");
    }
    let output = cargo.output().context("starting cargo")?;
    ensure!(output.status.success(), "{name} does not build:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

/// The expected results of a crate's tests.
struct ExpectedResults {
    path: PathBuf,
    lines: Vec<(String, Option<String>)>,
}

impl ExpectedResults {
    fn read(name: &str, version: &str) -> anyhow::Result<Self> {
        let path = paths::root().join(LISTS).join(format!("{name}-{version}.txt"));
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines = lines.map(|line| {
            let mut words = line.splitn(3, char::is_whitespace);
            match (words.next(), words.next(), words.next()) {
                (Some(test), Some("pass"), None) => Ok((test.to_owned(), None)),
                (Some(test), Some("skip"), Some(why)) => Ok((test.to_owned(), Some(why.trim().to_owned()))),
                _ => bail!("{}: not `name pass` or `name skip REASON`: {line}", path.display()),
            }
        });
        Ok(Self { lines: lines.collect::<anyhow::Result<_>>()?, path: path.clone() })
    }

    /// `None`: unknown. Otherwise the reason to skip it, if any.
    fn of(&self, test: &str) -> Option<Option<&str>> {
        self.lines.iter().find(|(name, _)| name == test).map(|(_, why)| why.as_deref())
    }
}
