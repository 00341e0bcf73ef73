//! Blocks of commands: each is run, or a comment says why not.

use super::book::Chapter;
use crate::paths;
use crate::programs::program_cases::{Isolation, ProgramCases};
use crate::test_counts::TestCounts;
use anyhow::Context;
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use std::path::Path;

/// A block of code.
#[derive(Debug, Default, PartialEq, Eq)]
struct CodeBlock {
    language: String,
    text: String,
    /// Why it is not run here, or by what.
    reason: Option<String>,
    line: usize,
}

/// The beginnings of comments that say why a block is not run.
const REASONS: [&str; 2] = ["<!-- not run: ", "<!-- run by: "];

fn blocks(text: &str) -> Vec<CodeBlock> {
    let mut blocks = Vec::new();
    let mut reason = None;
    let mut open: Option<CodeBlock> = None;
    for (event, range) in Parser::new(text).into_offset_iter() {
        match event {
            Event::Html(html) => reason = reason_of(&html).or(reason),
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                let line = text[..range.start].lines().count() + 1;
                open = Some(CodeBlock { language: language.to_string(), text: String::new(), reason: reason.take(), line });
            }
            Event::Text(part) => open.iter_mut().for_each(|block| block.text.push_str(&part)),
            Event::End(TagEnd::CodeBlock) => blocks.extend(open.take()),
            Event::Start(Tag::HtmlBlock) | Event::End(TagEnd::HtmlBlock) => {}
            // A comment belongs to the block that follows at once.
            _ if open.is_none() => reason = None,
            _ => {}
        }
    }
    blocks
}

fn reason_of(html: &str) -> Option<String> {
    let reason = REASONS.iter().find_map(|start| html.strip_prefix(start))?;
    let reason = reason.trim_end().strip_suffix("-->")?.trim();
    (!reason.is_empty()).then(|| reason.to_owned())
}

impl CodeBlock {
    fn is_run_here(&self) -> bool {
        self.language == "sh" && self.reason.is_none()
    }

    fn is_accounted_for(&self) -> bool {
        matches!(self.language.as_str(), "sh" | "text" | "crates") || self.reason.is_some()
    }
}

/// The blocks of which nothing says whether they work.
pub(super) fn check(chapters: &[Chapter]) -> anyhow::Result<Vec<String>> {
    let mut offences = Vec::new();
    for chapter in chapters {
        let unknown = blocks(&chapter.text).into_iter().filter(|block| !block.is_accounted_for());
        offences.extend(unknown.map(|block| {
            let language = if block.language.is_empty() { "no language" } else { &block.language };
            format!("{}:{}: a block in {language}: say `text`, or above it what runs it, or why nothing does", chapter.path, block.line)
        }));
    }
    Ok(offences)
}

/// Runs the commands of all chapters where io_uring is blocked, each chapter's in a folder of its
/// own.
pub(super) fn run_all(chapters: &[Chapter], uringlet: &Path) -> anyhow::Result<TestCounts> {
    let mut counts = TestCounts::default();
    for chapter in chapters {
        let blocks: Vec<_> = blocks(&chapter.text).into_iter().filter(CodeBlock::is_run_here).collect();
        if !blocks.is_empty() {
            counts.add(run_chapter(chapter, &blocks, uringlet)?);
        }
    }
    Ok(counts)
}

fn run_chapter(chapter: &Chapter, blocks: &[CodeBlock], uringlet: &Path) -> anyhow::Result<TestCounts> {
    let mut cases = ProgramCases::new("docs", None)?;
    let bin = uringlet.parent().context("the program has no folder")?;
    let path = std::env::var("PATH").unwrap_or_default();
    cases.set_env("PATH", &format!("{}:{path}", bin.display()));
    cases.set_env("LIB", &bin.display().to_string());
    let home = cases.dir().join("home");
    std::fs::create_dir(&home)?;
    cases.set_env("HOME", home.to_str().context("the folder's path is not UTF-8")?);
    cases.set_env("CHECKOUT", paths::root().to_str().context("the checkout's path is not UTF-8")?);
    for block in blocks {
        cases.case(&format!("{}:{}", chapter.path, block.line), |cases| {
            cases.run_bare(Isolation::Docker, &["sh", "-eu", "-c", &block.text])?.ok().map(drop)
        });
    }
    cases.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_above_a_block_says_why_it_is_not_run() {
        let text = "a\n\n```sh\nfirst\n```\n\n<!-- not run: needs a disk -->\n```sh\nsecond\n```\n\n```sh\nthird\n```\n";
        let found = blocks(text);
        let run: Vec<_> = found.iter().map(|block| (block.text.trim(), block.is_run_here(), block.line)).collect();
        assert_eq!(run, [("first", true, 3), ("second", false, 8), ("third", true, 12)]);
        assert_eq!(found[1].reason.as_deref(), Some("needs a disk"));
    }

    #[test]
    fn comment_without_a_reason_counts_for_nothing() {
        assert_eq!(reason_of("<!-- not run: -->\n"), None);
        assert_eq!(reason_of("<!-- run by: cargo xtask containers -->\n").as_deref(), Some("cargo xtask containers"));
        assert_eq!(reason_of("<!-- else -->"), None);
    }

    #[test]
    fn block_in_another_language_needs_a_comment() {
        let found = blocks("```yaml\na: 1\n```\n\n```text\nx\n```\n\n<!-- run by: a test -->\n\n```yaml\nb: 1\n```\n");
        let accounted: Vec<_> = found.iter().map(CodeBlock::is_accounted_for).collect();
        assert_eq!(accounted, [false, true, true]);
    }
}
