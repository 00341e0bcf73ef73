//! The library's symbols: exactly those of `liburing.map`, with their versions, and the same as in
//! the distribution's library; and what the object must not need.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The names in `liburing.map` with their nodes, and the nodes in order.
fn map() -> (BTreeMap<String, String>, Vec<String>) {
    let text = std::fs::read_to_string(common::crate_dir().join("liburing.map")).expect("liburing.map");
    let (mut names, mut nodes) = (BTreeMap::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(node) = line.strip_suffix(" {") {
            nodes.push(node.to_owned());
        } else if let Some(name) = line.strip_suffix(';').filter(|name| name.contains("io_uring_")) {
            let node = nodes.last().expect("a name is inside a node").clone();
            assert_eq!(names.insert(name.to_owned(), node), None, "{name} is listed twice");
        }
    }
    (names, nodes)
}

#[test]
fn exports_are_those_of_the_map() {
    assert_eq!(common::exports(&common::our_library().join("liburing.so.2")), map().0);
}

#[test]
fn map_has_the_nodes_of_all_releases() {
    let releases: Vec<String> = (0..=15).map(|minor| format!("LIBURING_2.{minor}")).collect();
    assert_eq!(map().1, releases);
}

/// Up to the distribution's release, both libraries export the same.
#[test]
fn distribution_exports_the_same_up_to_its_release() {
    let theirs = common::exports(&common::their_library());
    let (mut ours, nodes) = map();
    let known: BTreeSet<&String> = theirs.values().collect();
    let newest = nodes.iter().rposition(|node| known.contains(node)).expect("a common node");
    ours.retain(|_, node| nodes.iter().position(|n| n == node) <= Some(newest));
    assert_eq!(ours, theirs);
}

#[test]
fn object_needs_no_library_and_no_thread_local_storage() {
    let library = common::our_library().join("liburing.so.2");
    let dynamic = common::stdout(Command::new("readelf").arg("-dW").arg(&library));
    assert!(dynamic.contains("soname: [liburing.so.2]"), "{dynamic}");
    assert!(!dynamic.contains("(NEEDED)"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    let segments = common::stdout(Command::new("readelf").arg("-lW").arg(&library));
    assert!(!segments.contains(" TLS "), "{segments}");
    assert!(!segments.contains("RWE"), "{segments}");
}

/// The library works without a symbol that is missing in the process.
#[test]
fn undefined_symbols_are_weak() {
    let listing = common::stdout(Command::new("nm").args(["-D", "--undefined-only"]).arg(common::our_library().join("liburing.so.2")));
    for symbol in listing.lines().map(str::trim) {
        assert!(symbol.starts_with("w "), "the library cannot be loaded without {symbol}");
    }
}

/// `uringlet stat` finds the engine by the note, without a symbol.
#[test]
fn object_has_the_engines_note() {
    let notes = common::stdout(Command::new("readelf").arg("-nW").arg(common::our_library().join("liburing.so.2")));
    assert!(notes.lines().any(|line| line.trim_start().starts_with("uringlet")), "{notes}");
}
