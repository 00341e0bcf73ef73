//! The chapters: the documents that docs/SUMMARY.md names.

use crate::paths;
use anyhow::{Context, ensure};
use pulldown_cmark::{Event, LinkType, Parser, Tag};
use std::fs;
use std::path::PathBuf;

/// Documents that are no chapters, and checked like them.
const OTHERS: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "crates/liburing/README.md"];

/// A document.
#[derive(Debug)]
pub(super) struct Chapter {
    /// Its path in the checkout.
    pub(super) path: String,
    pub(super) text: String,
}

/// All chapters in the book's order, and the other documents that are checked.
pub(super) fn chapters() -> anyhow::Result<Vec<Chapter>> {
    let summary = read("docs/SUMMARY.md")?;
    let mut chapters = vec![summary];
    let names: Vec<String> = destinations(&chapters[0].text).map(|name| format!("docs/{name}")).collect();
    ensure!(!names.is_empty(), "docs/SUMMARY.md names no chapter");
    for name in names.iter().map(String::as_str).chain(OTHERS.iter().copied()) {
        chapters.push(read(name)?);
    }
    Ok(chapters)
}

fn read(path: &str) -> anyhow::Result<Chapter> {
    let text = fs::read_to_string(paths::root().join(path)).with_context(|| format!("reading {path}"))?;
    Ok(Chapter { path: path.to_owned(), text })
}

/// Where the links of a document lead to.
pub(super) fn destinations(text: &str) -> impl Iterator<Item = String> {
    Parser::new(text).filter_map(|event| match event {
        Event::Start(Tag::Link { link_type, dest_url, .. }) if link_type != LinkType::Email => Some(dest_url.to_string()),
        _ => None,
    })
}

/// The documents in docs/ and docs/decisions/, by their paths in the checkout.
pub(super) fn documents() -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in ["docs", "docs/decisions"] {
        for entry in fs::read_dir(paths::root().join(folder)).with_context(|| format!("listing {folder}"))? {
            let name = PathBuf::from(entry?.file_name());
            if name.extension().is_some_and(|end| end == "md") {
                found.push(format!("{folder}/{}", name.display()));
            }
        }
    }
    found.sort();
    Ok(found)
}
