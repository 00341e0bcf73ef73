//! What mdBook asks for before it makes the book: names of documents become links to chapters.

use super::links::named_file;
use anyhow::Context;
use pulldown_cmark::{Event, Parser, Tag, TagEnd};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::Path;

/// The argument of `cargo xtask docs` that docs/book.toml has.
pub(super) const NAME: &str = "preprocess";

/// A call of mdBook's: `supports RENDERER` asks whether there is something to do, which there is
/// for any. Otherwise the book comes on standard input, and goes back changed.
pub(super) fn main(arguments: &[OsString]) -> anyhow::Result<()> {
    if arguments.first().is_some_and(|argument| argument == "supports") {
        return Ok(());
    }
    let mut input = String::new();
    io::stdin().read_to_string(&mut input)?;
    let mut parts: Vec<Value> = serde_json::from_str(&input).context("mdBook's input")?;
    let mut book = parts.pop().context("mdBook sent no book")?;
    let mut chapters = Vec::new();
    each_chapter(&mut book, &mut |chapter| chapters.extend(path_of(chapter)));
    each_chapter(&mut book, &mut |chapter| {
        let Some(path) = path_of(chapter) else { return };
        if let Some(Value::String(content)) = chapter.get_mut("content") {
            *content = with_links(content, &path, &chapters);
        }
    });
    io::stdout().write_all(serde_json::to_string(&book)?.as_bytes())?;
    Ok(())
}

fn path_of(chapter: &Value) -> Option<String> {
    chapter.get("path")?.as_str().map(str::to_owned)
}

fn each_chapter(book: &mut Value, body: &mut impl FnMut(&mut Value)) {
    for list in ["items", "sub_items"] {
        let Some(items) = book.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for chapter in items.iter_mut().filter_map(|item| item.get_mut("Chapter")) {
            body(chapter);
            each_chapter(chapter, body);
        }
    }
}

/// The text, in which each code span that names a chapter is a link to it.
fn with_links(text: &str, from: &str, chapters: &[String]) -> String {
    let up = "../".repeat(Path::new(from).components().count() - 1);
    let mut result = String::new();
    let mut copied = 0;
    let mut is_link = false;
    for (event, range) in Parser::new(text).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { .. }) => is_link = true,
            Event::End(TagEnd::Link) => is_link = false,
            Event::Code(span) if !is_link => {
                let Some(name) = chapter_of(&span, chapters).filter(|name| *name != from) else { continue };
                let link = format!("[{}]({up}{name})", &text[range.clone()]);
                result.push_str(&text[copied..range.start]);
                result.push_str(&link);
                copied = range.end;
            }
            _ => {}
        }
    }
    result + &text[copied..]
}

/// The chapter that a code span names, by its path in docs/.
fn chapter_of<'s>(span: &'s str, chapters: &[String]) -> Option<&'s str> {
    let name = named_file(span)?.strip_prefix("docs/")?;
    chapters.iter().any(|known| known == name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_spans_of_chapters_become_links() {
        let chapters = ["a.md".to_owned(), "decisions/b.md".to_owned()];
        let text = "see `docs/a.md`, `docs/other.md` and [`docs/a.md`](a.md)\n\n```sh\n`docs/a.md`\n```\n";
        let linked = "see [`docs/a.md`](../a.md), `docs/other.md` and [`docs/a.md`](a.md)\n\n```sh\n`docs/a.md`\n```\n";
        assert_eq!(with_links(text, "decisions/b.md", &chapters), linked);
        assert_eq!(with_links("`docs/a.md`", "a.md", &chapters), "`docs/a.md`");
    }

    #[test]
    fn every_renderer_is_supported() {
        assert!(main(&["supports".into(), "html".into()]).is_ok());
    }

    #[test]
    fn every_chapter_of_a_book_is_seen() {
        let mut book = serde_json::json!({"items": [
            {"Chapter": {"path": "a.md", "content": "", "sub_items": [{"Chapter": {"path": "b.md", "sub_items": []}}]}},
            "Separator",
        ]});
        let mut seen = Vec::new();
        each_chapter(&mut book, &mut |chapter| seen.extend(path_of(chapter)));
        assert_eq!(seen, ["a.md", "b.md"]);
    }
}
