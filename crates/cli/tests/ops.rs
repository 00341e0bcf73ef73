//! `uringlet ops`, and the file that is made of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

fn ops(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uringlet")).arg("ops").args(args).output().unwrap()
}

fn stdout(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_document_is_what_is_printed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/support.md");
    let printed = stdout(ops(&["--markdown"]));
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(printed == written, "docs/support.md is old: `uringlet ops --markdown > docs/support.md`");
}

#[test]
fn a_name_selects() {
    let text = stdout(ops(&["msg_ring"]));
    assert!(text.contains("  MSG_RING ") && text.contains("SEND_MSG_RING") && !text.contains("NOP"), "{text}");
    assert!(stdout(ops(&["IORING_SETUP_SQPOLL"])).contains("partial"));
}

#[test]
fn an_unknown_name_is_an_error() {
    let output = ops(&["no_such_thing"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no_such_thing"));
}

#[test]
fn json_has_every_row() {
    let rows: serde_json::Value = serde_json::from_str(&stdout(ops(&["--json"]))).unwrap();
    let names: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    for name in
        ["IORING_OP_NOP", "IORING_REGISTER_PERSONALITY", "IORING_SETUP_IOPOLL", "IORING_FEAT_NODROP", "IOSQE_ASYNC", "IORING_CQE_F_MORE"]
    {
        assert!(names.contains(&name), "{name}");
    }
}

/// Operations newer than the kernel that the fuzzer's answers are compared with.
const NEWER: [&str; 2] = ["BPF_FILTER", "ZCRX_CTRL"];

#[test]
fn each_register_operation_is_fuzzed() {
    let source = include_str!("c/robust_fuzz.c");
    let list = source.split_once("static const uint8_t ops[] = {").and_then(|(_, rest)| rest.split_once('}')).expect("a list").0;
    let fuzzed: Vec<u32> = list.split(',').map(|number| number.trim().parse().expect("a number")).collect();
    for entry in uringlet_abi::support::REGISTER.entries {
        let should_be = entry.is_supported() && !NEWER.contains(&entry.name);
        assert_eq!(fuzzed.contains(&entry.number), should_be, "{}", entry.name);
    }
}

/// What the tests name, without underscores and in capitals: constants of the C programs, variants
/// and constants of the differential test's generator, and what the program of feature bits tests.
/// A word in small letters elsewhere is no test: read() is a function of libc's, too.
fn names_in_tests() -> BTreeSet<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![here.join("tests/c"), here.join("../../conformance/differential/src")];
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of tests") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let is_rust = path.extension().is_some_and(|extension| extension == "rs");
                let tests_features = path.file_name().is_some_and(|name| name == "features.c");
                let is_name = |word: &&str| {
                    let is_constant =
                        word.starts_with(|c: char| c.is_ascii_uppercase()) && !word.contains(|c: char| c.is_ascii_lowercase());
                    let is_variant = word.starts_with(|c: char| c.is_ascii_uppercase()) && !word.contains('_');
                    is_constant || (is_rust && is_variant) || tests_features
                };
                let code =
                    text.lines().filter(|line| !["//", "/*", " *"].iter().any(|mark| line.trim_start().starts_with(mark.trim_start())));
                for line in code {
                    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    found.extend(words.filter(is_name).map(|word| format!("_{}", word.to_ascii_uppercase())));
                }
            }
        }
    }
    found
}

#[test]
fn every_supported_entry_is_named_by_a_test() {
    let names = names_in_tests();
    // Rust's variants have no underscores.
    let plain: BTreeSet<String> = names.iter().map(|name| name.replace('_', "")).collect();
    // A prefix such as SETUP_ may be there.
    let is_named = |name: &str| plain.contains(&name.replace('_', "")) || names.iter().any(|known| known.ends_with(&format!("_{name}")));
    assert!(!is_named("NO_SUCH_ENTRY") && !is_named("PTHREAD_CREATE"));
    let entries = uringlet_abi::support::GROUPS.iter().flat_map(|group| group.entries);
    let missing: Vec<_> = entries.filter(|entry| entry.is_supported() && !is_named(entry.name)).map(|entry| entry.name).collect();
    assert!(missing.is_empty(), "no test names {missing:?}");
}
