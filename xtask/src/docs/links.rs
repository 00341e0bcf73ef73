//! Links lead somewhere: to a file of the checkout, to a heading. A path in a code span is a link,
//! too.

use super::book::{Chapter, destinations, documents};
use crate::paths;
use pulldown_cmark::{Event, Parser, Tag, TagEnd};
use std::path::Path;

/// The checkout's folders. A code span that begins with one names a file.
const FOLDERS: &[&str] = &["bench/", "conformance/", "crates/", "docs/", "packaging/", "xtask/"];

/// What leads nowhere, and the documents that no chapter of the book is.
pub(super) fn check(chapters: &[Chapter]) -> anyhow::Result<Vec<String>> {
    let mut offences = Vec::new();
    for chapter in chapters {
        let dead = destinations(&chapter.text).filter(|link| !leads_somewhere(&chapter.path, link, chapters));
        offences.extend(dead.map(|link| format!("{}: the link {link} leads nowhere", chapter.path)));
        let dead = named_files(&chapter.text).filter(|file| !paths::root().join(file).exists());
        offences.extend(dead.map(|file| format!("{}: there is no `{file}`", chapter.path)));
    }
    let is_missing = |document: &String| chapters.iter().all(|chapter| chapter.path != *document);
    let missing = documents()?.into_iter().filter(is_missing);
    offences.extend(missing.map(|document| format!("docs/SUMMARY.md: {document} is no chapter")));
    Ok(offences)
}

fn leads_somewhere(from: &str, link: &str, chapters: &[Chapter]) -> bool {
    if link.starts_with("https://") || link.starts_with("http://") {
        return true;
    }
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let target = if file.is_empty() { Path::new(from).to_path_buf() } else { folder.join(file) };
    if !paths::root().join(&target).exists() {
        return false;
    }
    let target = chapters.iter().find(|chapter| Path::new(&chapter.path) == target);
    heading.is_empty() || target.is_some_and(|chapter| headings(&chapter.text).any(|known| known == heading))
}

/// The names by which headings are linked to.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let mut heading: Option<String> = None;
    Parser::new(text).filter_map(move |event| {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => return heading.take().map(|text| anchor(&text)),
            Event::Text(part) | Event::Code(part) => heading.iter_mut().for_each(|text| text.push_str(&part)),
            _ => {}
        }
        None
    })
}

/// As mdBook makes it of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Files that code spans name. A pattern or a command is none.
fn named_files(text: &str) -> impl Iterator<Item = String> {
    Parser::new(text).filter_map(|event| match event {
        Event::Code(span) => named_file(&span).map(str::to_owned),
        _ => None,
    })
}

/// The file that a code span names.
pub(super) fn named_file(span: &str) -> Option<&str> {
    let is_path = FOLDERS.iter().any(|folder| span.starts_with(folder)) && !span.contains([' ', '*', '{', '$']);
    // A number of a decision stands for its file.
    let is_number = span.strip_prefix("docs/decisions/").is_some_and(|name| name.len() == 4 && name.bytes().all(|b| b.is_ascii_digit()));
    (is_path && !is_number).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_found_by_their_anchors() {
        let found: Vec<_> = headings("# The `run` command\n\ntext\n\n## URINGLET: only when needed\n").collect();
        assert_eq!(found, ["the-run-command", "uringlet-only-when-needed"]);
    }

    #[test]
    fn code_spans_of_paths_name_files() {
        assert_eq!(named_file("docs/STATUS.md"), Some("docs/STATUS.md"));
        assert_eq!(named_file("docs/decisions/0006"), None);
        assert_eq!(named_file("crates/*/src"), None);
        assert_eq!(named_file("cargo xtask docs"), None);
    }

    #[test]
    fn links_to_missing_files_and_headings_lead_nowhere() {
        let chapter = |path: &str, text: &str| Chapter { path: path.to_owned(), text: text.to_owned() };
        let chapters = [chapter("docs/STATUS.md", "# Status\n"), chapter("README.md", "")];
        assert!(leads_somewhere("README.md", "docs/STATUS.md", &chapters));
        assert!(leads_somewhere("README.md", "docs/STATUS.md#status", &chapters));
        assert!(leads_somewhere("docs/STATUS.md", "#status", &chapters));
        assert!(!leads_somewhere("README.md", "docs/STATUS.md#nothing", &chapters));
        assert!(!leads_somewhere("README.md", "docs/no-such-file.md", &chapters));
        assert!(leads_somewhere("README.md", "https://example.org/", &chapters));
    }
}
