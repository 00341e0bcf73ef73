//! `xtask lint`: clippy in every target. A warning is a failure; `as` casts that may lose something
//! are counted against `xtask/ratchet.txt`, crate by crate.

use crate::paths;
use crate::test_counts::{Failure, TestCounts};
use crate::tidy::findings::TidyFindings;
use crate::tidy::ratchet::{CASTS, Ratchet, Update};
use crate::tidy::ratchet_path;
use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::{Command, Stdio};

const USAGE: &str = "\
usage: cargo xtask lint [--update [--allow-worse]] [--list]

Runs clippy on the workspace. Any warning fails, except casts, which may not become more than xtask/ratchet.txt lists.
  --update       write lower numbers of casts to xtask/ratchet.txt
  --allow-worse  let --update also write higher numbers
  --list         print every cast that is counted";

/// Lints whose warnings are counted.
const COUNTED: &[&str] =
    &["clippy::cast_lossless", "clippy::cast_possible_truncation", "clippy::cast_possible_wrap", "clippy::cast_sign_loss"];

/// What clippy said.
#[derive(Debug, Default, PartialEq, Eq)]
struct ClippyReport {
    /// File, line and text of each counted cast: a file that belongs to two targets is linted
    /// twice.
    casts: BTreeSet<(String, u64, String)>,
    warnings: Vec<String>,
}

/// Lints the checkout.
pub(crate) fn main(args: Vec<OsString>) -> anyhow::Result<TestCounts> {
    use lexopt::prelude::*;
    let (mut update, mut is_listed) = (Update::No, false);
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => {
                println!("{USAGE}");
                return Ok(TestCounts::default());
            }
            Long(name) if update.take_option(name) => {}
            Long("list") => is_listed = true,
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    let report = clippy()?;
    let found = count(&report);
    if is_listed {
        found.all_texts("").for_each(|text| println!("{text}"));
    }
    let mut ratchet = Ratchet::read(&ratchet_path(), |kind| kind == CASTS)?;
    if update != Update::No {
        ratchet.update(&found, update)?;
    }
    let offences = [report.warnings, ratchet.check(&found)].concat();
    offences.iter().for_each(|offence| println!("{offence}"));
    println!("{} casts, {} offences", report.casts.len(), offences.len());
    let failed = || TestCounts::failure(Failure::new("clippy", format!("{} offences", offences.len()), &offences.join("\n")));
    Ok(if offences.is_empty() { TestCounts::PASSED } else { failed() })
}

fn clippy() -> anyhow::Result<ClippyReport> {
    let mut command = Command::new("cargo");
    command.args(["clippy", "--workspace", "--all-targets", "--message-format=json", "--quiet", "--"]);
    COUNTED.iter().for_each(|lint| {
        command.args(["-W", lint]);
    });
    let out = command.current_dir(paths::root()).stderr(Stdio::inherit()).output().context("starting cargo clippy")?;
    let mut report = ClippyReport::default();
    String::from_utf8_lossy(&out.stdout).lines().for_each(|line| read_message(line, &mut report));
    if !out.status.success() && report.warnings.is_empty() {
        report.warnings.push(format!("cargo clippy ended with {}", out.status));
    }
    Ok(report)
}

/// One line of cargo's JSON.
fn read_message(line: &str, report: &mut ClippyReport) {
    let Ok(line) = serde_json::from_str::<Value>(line) else { return };
    let message = &line["message"];
    if line["reason"] != "compiler-message" || !matches!(message["level"].as_str(), Some("warning" | "error")) {
        return;
    }
    let code = message["code"]["code"].as_str().unwrap_or_default();
    let text = message["message"].as_str().unwrap_or_default();
    let span = message["spans"].as_array().and_then(|spans| spans.iter().find(|span| span["is_primary"] == true));
    match span {
        Some(span) if COUNTED.contains(&code) => {
            let place = |key: &str| span[key].as_u64().unwrap_or_default();
            // A line may hold several casts.
            let text = format!("column {}: {text}", place("column_start"));
            report.casts.insert((span["file_name"].as_str().unwrap_or_default().to_owned(), place("line_start"), text));
        }
        _ if text.ends_with("warnings emitted") || text.ends_with("warning emitted") => {}
        _ => report.warnings.push(message["rendered"].as_str().unwrap_or(text).to_owned()),
    }
}

fn count(report: &ClippyReport) -> TidyFindings {
    let mut found = TidyFindings::default();
    for (file, line, text) in &report.casts {
        let depth = if file.starts_with("crates/") || file.starts_with("conformance/") { 2 } else { 1 };
        let package = file.split('/').take(depth).collect::<Vec<_>>().join("/");
        found.add(CASTS, &package, format!("{file}:{line}: {text}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(code: &str, level: &str) -> String {
        let span = r#"{"is_primary":true,"file_name":"crates/sys/src/io.rs","line_start":7,"column_start":3}"#;
        format!(
            r#"{{"reason":"compiler-message","message":{{"level":"{level}","message":"m","rendered":"r","code":{{"code":"{code}"}},"spans":[{span}]}}}}"#
        )
    }

    #[test]
    fn casts_are_counted_once_and_other_warnings_fail() {
        let mut report = ClippyReport::default();
        read_message(&message(COUNTED[0], "warning"), &mut report);
        read_message(&message(COUNTED[0], "warning"), &mut report);
        read_message(&message("clippy::needless_return", "warning"), &mut report);
        read_message(&message("E0308", "error"), &mut report);
        assert_eq!((report.casts.len(), report.warnings.len()), (1, 2));
        assert_eq!(count(&report).numbers.get(&(CASTS, "crates/sys".to_owned())), Some(&1));
    }
}
