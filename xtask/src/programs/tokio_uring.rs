//! tokio-uring's own tests, from its source on crates.io: files, directories, registered buffers,
//! provided buffers, a TCP echo. It is built on the `io-uring` crate, whose own test program is not
//! published.

use super::program_cases::ProgramCases;
use crate::{paths, stream};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const CRATE: &str = "tokio-uring";
/// The last release.
const VERSION: &str = "0.5.0";
/// Tests that make no ring.
const WITHOUT_RING: &str = "buf";
/// Left out, as on the kernel's ring: these close a number twice, for which today's Rust ends the
/// process.
const LEFT_OUT: [&str; 2] = ["--skip=explicit_close", "--skip=drop_off_runtime"];
/// The manifest that has it as a dependency.
const MANIFEST: &str = "conformance/embedding/Cargo.toml";

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let folder = paths::cache().join(format!("{CRATE}-{VERSION}"));
    if !folder.join("Cargo.toml").exists() {
        let source = fetched()?;
        let (from, to) = (source.to_str().context("a path is not UTF-8")?, folder.to_str().context("a path is not UTF-8")?);
        stream::sh("cp", &["-r", from, to])?;
        keep_out_of_workspace(&folder.join("Cargo.toml"))?;
    }
    for (name, program) in build_tests(&folder)? {
        for &isolation in cases.isolations() {
            let argv = [&[program.as_str()], &LEFT_OUT[..]].concat();
            cases.needs_uringlet(isolation, &argv);
            cases.case(&format!("{} {name}", isolation.option()), |cases| {
                let output = cases.run(isolation, &argv)?.ok()?;
                ensure!(output.contains("test result: ok") && !output.contains(" 0 passed"), "{output}");
                Ok(())
            });
        }
    }
    Ok(())
}

/// The folder in which cargo keeps the crate's source.
fn fetched() -> anyhow::Result<PathBuf> {
    let manifest = paths::root().join(MANIFEST);
    let known: Value = serde_json::from_str(&cargo(&manifest, &["metadata", "--format-version=1", "--all-features", "--locked"])?)?;
    let mut packages = known["packages"].as_array().into_iter().flatten();
    let package = packages.find(|package| package["name"] == CRATE && package["version"] == VERSION);
    let manifest =
        package.and_then(|package| package["manifest_path"].as_str()).with_context(|| format!("{MANIFEST} has no {CRATE} {VERSION}"))?;
    Path::new(manifest).parent().map(Path::to_path_buf).context("a manifest without a folder")
}

/// The cache is inside this workspace, of which the crate is no member.
fn keep_out_of_workspace(manifest: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(manifest)? + "\n[workspace]\n";
    std::fs::write(manifest, text).with_context(|| format!("writing {}", manifest.display()))
}

/// Builds its tests. Returns their names and paths.
fn build_tests(folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let messages = cargo(&folder.join("Cargo.toml"), &["test", "--no-run", "--tests", "--quiet", "--message-format=json"])?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_test = |message: &Value| message["target"]["kind"][0] == "test";
    let programs = messages.filter(is_test).filter_map(|message| {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some((text(&message["target"]["name"])?, text(&message["executable"])?))
    });
    let programs: Vec<(String, String)> = programs.filter(|(name, _)| name != WITHOUT_RING).collect();
    ensure!(!programs.is_empty(), "{CRATE} has no tests in {}", folder.display());
    Ok(programs)
}

/// What cargo prints.
fn cargo(manifest: &Path, args: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("cargo");
    command.args(args).arg("--manifest-path").arg(manifest).env("CARGO_TARGET_DIR", paths::cache().join(format!("{CRATE}-target")));
    let output = command.current_dir(paths::cache()).output().context("starting cargo")?;
    ensure!(output.status.success(), "cargo {} failed:\n{}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
