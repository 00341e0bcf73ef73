//! Comments and documents: their width, and openers that are not plain technical English.

use super::findings::TidyFindings;
use super::ratchet::{OPENERS, WIDE};

/// Columns of a line of prose.
const WIDTH: usize = 100;

/// Words with which no comment, heading or paragraph starts: they make riddles of facts.
const BAD_OPENERS: &[&str] = &[
    "Who ",
    "Whoever ",
    "Whom ",
    "Whose ",
    "Nobody ",
    "Somebody ",
    "Nor ",
    "What of ",
    "For so long ",
    "So it ",
    "It has none",
    "Of the two ",
    "There is somebody ",
];

/// Words with which no test starts: a test's name is a subject and a statement.
const BAD_TEST_OPENERS: &[&str] = &["fn who_", "fn whoever_", "fn nobody_", "fn somebody_", "fn nor_", "fn what_", "fn neither_"];

/// A kind of text by how its prose is told from the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Rust,
    C,
    Markdown,
}

fn language(path: &str) -> Option<Language> {
    match path.rsplit('.').next() {
        Some("rs") => Some(Language::Rust),
        Some("c" | "h") => Some(Language::C),
        Some("md") => Some(Language::Markdown),
        _ => None,
    }
}

/// Records what is wrong with the prose of one text.
pub(super) fn measure(path: &str, text: &str, found: &mut TidyFindings) {
    let Some(language) = language(path) else { return };
    let mut is_fenced = false;
    for (index, line) in text.lines().enumerate() {
        let at = index + 1;
        if language == Language::Rust && BAD_TEST_OPENERS.iter().any(|opener| line.trim_start().starts_with(opener)) {
            found.add(OPENERS, path, format!("{path}:{at}: name a test (or function) as subject and statement: `{}`", line.trim()));
        }
        let Some(prose) = prose_of(language, line) else { continue };
        if prose.starts_with("```") {
            is_fenced = !is_fenced;
        }
        // A list's entry that is a link cannot be broken.
        let is_link = prose.contains("](") && prose.ends_with(".md)");
        if is_fenced || is_link || prose.starts_with('|') || prose.contains("://") {
            continue;
        }
        let columns = line.chars().count();
        if columns > WIDTH {
            found.add(WIDE, path, format!("{path}:{at}: {columns} columns of prose"));
        }
        if let Some(opener) = BAD_OPENERS.iter().find(|opener| prose.starts_with(**opener)) {
            found.add(OPENERS, path, format!("{path}:{at}: starts with `{}`", opener.trim_end()));
        }
    }
}

/// The prose of a line: a comment's text, or a document's line. Code with a comment behind it has
/// none.
fn prose_of(language: Language, line: &str) -> Option<&str> {
    let line = line.trim_start();
    let marks: &[&str] = match language {
        Language::Rust => &["//!", "///", "//"],
        Language::C => &["///", "//", "/**", "/*", "* "],
        Language::Markdown => &["- ", "* ", ""],
    };
    marks.iter().find_map(|mark| line.strip_prefix(mark)).map(str::trim_start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(path: &str, text: &str) -> usize {
        let mut found = TidyFindings::default();
        measure(path, text, &mut found);
        found.all_texts("").count()
    }

    #[test]
    fn wide_comments_are_offences_and_wide_code_is_not() {
        let words = "word ".repeat(25);
        assert_eq!(offences("a.rs", &format!("/// {words}\n")), 1);
        assert_eq!(offences("a.rs", &format!("let a = \"{words}\";\n")), 0);
        assert_eq!(offences("a.md", &words), 1);
    }

    #[test]
    fn tables_and_drawings_may_be_wide() {
        let words = "word ".repeat(25);
        assert_eq!(offences("a.md", &format!("| {words} |\n```text\n{words}\n```\n")), 0);
        assert_eq!(offences("a.rs", &format!("//! ```text\n//! {words}\n//! ```\n")), 0);
    }

    #[test]
    fn openers_count_in_comments_and_documents() {
        let opener = BAD_OPENERS[0];
        assert_eq!(offences("a.rs", &format!("// {opener}waits\nlet x = \"{opener}\";\n")), 1);
        assert_eq!(offences("a.c", &format!("/* {opener}waits */\n")), 1);
        assert_eq!(offences("a.md", &format!("- {opener}waits\n")), 1);
    }
}
