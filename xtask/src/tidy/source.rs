//! A Rust file as tokens: macro bodies count, comments and strings do not.

use anyhow::anyhow;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct FunctionSize {
    pub(super) name: String,
    pub(super) lines: usize,
}

#[derive(Debug)]
pub(super) struct RustSource {
    /// From the checkout's top, `/` between folders.
    pub(super) path: String,
    pub(super) lines: usize,
    pub(super) functions: Vec<FunctionSize>,
    /// `unsafe { ... }`.
    pub(super) unsafe_blocks: usize,
    /// Every `unsafe`: blocks, functions, impls, externs, attributes.
    pub(super) unsafe_words: usize,
    pub(super) forbids_unsafe: bool,
    /// The `a::b` of each `crate::a::b::C`, with the line it stands in.
    pub(super) crate_paths: Vec<(String, usize)>,
}

impl RustSource {
    pub(super) fn parse(path: &str, text: &str) -> anyhow::Result<Self> {
        let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{path}: {error}"))?;
        let mut source = Self {
            path: path.to_owned(),
            lines: text.lines().count(),
            functions: Vec::new(),
            unsafe_blocks: 0,
            unsafe_words: 0,
            forbids_unsafe: false,
            crate_paths: Vec::new(),
        };
        source.walk(tokens);
        Ok(source)
    }

    /// `crates/NAME`, `conformance/NAME`, `bench` or `xtask`.
    pub(super) fn package(&self) -> &str {
        let depth = if ["xtask/", "bench/"].iter().any(|room| self.path.starts_with(room)) { 1 } else { 2 };
        let end = self.path.match_indices('/').nth(depth - 1).map_or(self.path.len(), |(at, _)| at);
        &self.path[..end]
    }

    /// Goes into what users run, as opposed to tests and benches.
    pub(super) fn is_product(&self) -> bool {
        self.path[self.package().len()..].starts_with("/src/")
    }

    fn walk(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.walk(group.stream()),
                TokenTree::Ident(ident) => self.word(&ident.to_string(), &tokens[index..]),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    /// `tokens` starts with the word itself.
    fn word(&mut self, word: &str, tokens: &[TokenTree]) {
        match word {
            "unsafe" => {
                self.unsafe_words += 1;
                self.unsafe_blocks += usize::from(is_brace(tokens.get(1)));
            }
            "forbid" => self.forbids_unsafe |= tokens.get(1).is_some_and(|list| list.to_string().contains("unsafe_code")),
            "fn" => self.functions.extend(function(tokens)),
            "crate" => self.crate_paths.extend(crate_paths(tokens)),
            _ => {}
        }
    }
}

fn is_brace(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace)
}

/// `fn name ... { ... }`: from the line of `fn` to that of the last brace. Nothing for a type or a
/// mere declaration.
fn function(tokens: &[TokenTree]) -> Option<FunctionSize> {
    let TokenTree::Ident(name) = tokens.get(1)? else { return None };
    let is_semicolon = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';');
    let body = tokens.iter().take_while(|token| !is_semicolon(token)).find(|token| is_brace(Some(token)))?;
    let lines = body.span().end().line - tokens[0].span().start().line + 1;
    Some(FunctionSize { name: name.to_string(), lines })
}

/// `crate::a::b::C` gives a::b, the first two names; `crate::{a, b::c}` gives a and b::c.
/// `pub(crate)` gives nothing.
fn crate_paths(tokens: &[TokenTree]) -> Vec<(String, usize)> {
    if !is_path_separator(&tokens[1..]) {
        return Vec::new();
    }
    match tokens.get(3) {
        Some(TokenTree::Ident(_)) => first_names(&tokens[3..]).into_iter().collect(),
        Some(TokenTree::Group(list)) => {
            let list: Vec<TokenTree> = list.stream().into_iter().collect();
            let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
            list.split(is_comma).filter_map(first_names).collect()
        }
        _ => Vec::new(),
    }
}

fn is_path_separator(tokens: &[TokenTree]) -> bool {
    let is_colon = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == ':');
    is_colon(tokens.first()) && is_colon(tokens.get(1))
}

/// `a` or `a::b` from the start of `a::b::C`, with the line it stands in.
fn first_names(tokens: &[TokenTree]) -> Option<(String, usize)> {
    let TokenTree::Ident(first) = tokens.first()? else { return None };
    let line = first.span().start().line;
    match tokens.get(3) {
        Some(TokenTree::Ident(second)) if is_path_separator(&tokens[1..]) => Some((format!("{first}::{second}"), line)),
        _ => Some((first.to_string(), line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> RustSource {
        RustSource::parse("crates/core/src/a.rs", text).unwrap()
    }

    #[test]
    fn functions_are_measured_from_fn_to_brace() {
        let source = parse("impl A {\n  fn long()\n  where T: B\n  {\n    x\n  }\n}\ntrait T { fn declared(); }\ntype F = fn(u32);\n");
        assert_eq!(source.functions, [FunctionSize { name: "long".to_owned(), lines: 5 }]);
    }

    #[test]
    fn unsafe_in_macros_counts_and_in_comments_does_not() {
        let source = parse("// unsafe { }\nmacro_rules! m { () => { unsafe { f() } } }\nunsafe fn g() {}\n");
        assert_eq!((source.unsafe_blocks, source.unsafe_words), (1, 2));
    }

    #[test]
    fn every_way_to_name_a_module_is_seen() {
        let source = parse("use crate::a::B;\nuse crate::{c, d::{E, f}};\nfn g() { crate::h::i() }\npub(crate) fn j() {}\n");
        let names: Vec<_> = source.crate_paths.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a::B", "c", "d", "h::i"]);
    }

    #[test]
    fn packages_are_told_by_folder() {
        let source = |path: &str| RustSource::parse(path, "").unwrap();
        assert_eq!(source("crates/core/tests/a.rs").package(), "crates/core");
        assert!(!source("crates/core/tests/a.rs").is_product());
        assert_eq!(source("xtask/src/main.rs").package(), "xtask");
        assert!(source("xtask/src/main.rs").is_product());
    }
}
