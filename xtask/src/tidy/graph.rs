//! The modules of a crate and what they import from one another, resolved through re-exports.
//!
//! Each module knows its items, its child modules and the names that `use` brings in. A path is
//! resolved to the module that *defines* what it names: a name that a parent re-exports from a
//! child is an import of the child. Modules under `cfg(test)` and `cfg(loom)` are left out. Names
//! that macros make, and methods, are not seen.

use anyhow::Context;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Macro, UseTree, Visibility};

/// One module: a file, or a `mod` with a body inside a file.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// From the checkout's top.
    pub(super) file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// What `use` names here: the name, and the path that it stands for.
    aliases: BTreeMap<String, Vec<String>>,
    /// `use path::*`.
    globs: Vec<Vec<String>>,
    items: BTreeSet<String>,
    /// Every path in the module's code, private `use` included.
    paths: Vec<Vec<String>>,
    /// The types it defines, with their lines.
    pub(super) types: Vec<(String, usize)>,
}

/// The modules of one target of a crate; the first one is its root.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) modules: Vec<Module>,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Module(usize),
    /// Something that this module defines.
    Item(usize),
}

/// Re-exports of re-exports: more than anybody writes.
const DEPTH_MAX: usize = 16;

impl Graph {
    /// Reads the target whose root is `file`, a path from `top`.
    pub(super) fn read(top: &Path, file: &Path) -> anyhow::Result<Self> {
        let mut graph = Self::default();
        graph.read_file(top, file, None, true)?;
        Ok(graph)
    }

    fn read_file(&mut self, top: &Path, file: &Path, parent: Option<usize>, is_root: bool) -> anyhow::Result<usize> {
        let text = std::fs::read_to_string(top.join(file)).with_context(|| format!("reading {}", file.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("parsing {}", file.display()))?;
        let folder = file.parent().unwrap_or(Path::new(""));
        let stem = file.file_stem().unwrap_or_default();
        let children = if is_root || stem == "mod" { folder.to_path_buf() } else { folder.join(stem) };
        let module = self.push(file, parent);
        self.read_items(top, module, &children, parsed.items)?;
        Ok(module)
    }

    fn push(&mut self, file: &Path, parent: Option<usize>) -> usize {
        self.modules.push(Module { file: file.display().to_string(), parent, ..Module::default() });
        self.modules.len() - 1
    }

    fn read_items(&mut self, top: &Path, module: usize, children: &Path, items: Vec<Item>) -> anyhow::Result<()> {
        for item in items.into_iter().filter(|item| !is_for_tests(attributes(item))) {
            match item {
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let folder = children.join(&name);
                    let index = match child.content {
                        Some((_, items)) => {
                            let file = PathBuf::from(&self.modules[module].file);
                            let index = self.push(&file, Some(module));
                            self.read_items(top, index, &folder, items)?;
                            index
                        }
                        None => self.read_file(top, &module_file(top, children, &name), Some(module), false)?,
                    };
                    self.modules[module].children.insert(name, index);
                }
                item => self.modules[module].add(&item),
            }
        }
        Ok(())
    }

    /// Imports between files: importer, exporter, and the path's text.
    pub(super) fn imports(&self) -> BTreeSet<(String, String, String)> {
        let mut imports = BTreeSet::new();
        for (index, module) in self.modules.iter().enumerate() {
            for path in &module.paths {
                let Some(Found::Item(definer)) = self.resolve(index, path, 0) else { continue };
                let definer = &self.modules[definer].file;
                if *definer != module.file {
                    imports.insert((module.file.clone(), definer.clone(), path.join("::")));
                }
            }
        }
        imports
    }

    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<Found> {
        let mut at = Found::Module(from);
        for (index, name) in path.iter().enumerate() {
            let Found::Module(module) = at else { return Some(at) };
            at = match name.as_str() {
                "crate" if index == 0 => Found::Module(0),
                "self" => at,
                "super" => Found::Module(self.parent(module)?),
                name => self.lookup(module, name, depth)?,
            };
        }
        Some(at)
    }

    fn parent(&self, module: usize) -> Option<usize> {
        self.modules[module].parent
    }

    fn lookup(&self, module: usize, name: &str, depth: usize) -> Option<Found> {
        if depth == DEPTH_MAX {
            return None;
        }
        let it = &self.modules[module];
        if let Some(&child) = it.children.get(name) {
            return Some(Found::Module(child));
        }
        if it.items.contains(name) {
            return Some(Found::Item(module));
        }
        if let Some(path) = it.aliases.get(name) {
            // `use name;` of another crate stands for itself.
            return if path.first().is_some_and(|first| first == name) { None } else { self.resolve(module, path, depth + 1) };
        }
        it.globs.iter().find_map(|path| {
            let Some(Found::Module(from)) = self.resolve(module, path, depth + 1) else { return None };
            if from == module { None } else { self.lookup(from, name, depth + 1) }
        })
    }
}

impl Module {
    fn add(&mut self, item: &Item) {
        let (name, is_type) = match item {
            Item::Struct(item) => (Some(&item.ident), true),
            Item::Enum(item) => (Some(&item.ident), true),
            Item::Union(item) => (Some(&item.ident), true),
            Item::Trait(item) => (Some(&item.ident), true),
            Item::Type(item) => (Some(&item.ident), true),
            Item::Fn(item) => (Some(&item.sig.ident), false),
            Item::Const(item) => (Some(&item.ident), false),
            Item::Static(item) => (Some(&item.ident), false),
            Item::Macro(item) => (item.ident.as_ref(), false),
            _ => (None, false),
        };
        if let Some(name) = name {
            self.items.insert(name.to_string());
            if is_type {
                self.types.push((name.to_string(), name.span().start().line));
            }
        }
        Paths(self).visit_item(item);
    }

    fn add_use(&mut self, tree: &UseTree, prefix: &[String], is_exported: bool) {
        match tree {
            UseTree::Path(path) => self.add_use(&path.tree, &joined(prefix, &path.ident.to_string()), is_exported),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_use(tree, prefix, is_exported)),
            UseTree::Glob(_) => self.globs.push(prefix.to_vec()),
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                let path = if name == "self" { prefix.to_vec() } else { joined(prefix, &name) };
                self.add_alias(path.last().cloned().unwrap_or_default(), path, is_exported);
            }
            UseTree::Rename(rename) => self.add_alias(rename.rename.to_string(), joined(prefix, &rename.ident.to_string()), is_exported),
        }
    }

    fn add_alias(&mut self, name: String, path: Vec<String>, is_exported: bool) {
        if !is_exported {
            self.paths.push(path.clone());
        }
        self.aliases.insert(name, path);
    }
}

fn joined(prefix: &[String], name: &str) -> Vec<String> {
    [prefix, &[name.to_owned()]].concat()
}

/// Collects the paths of an item, those inside macro calls included.
struct Paths<'a>(&'a mut Module);

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_exported = !matches!(item.vis, Visibility::Inherited);
        self.0.add_use(&item.tree, &[], is_exported);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.0.paths.push(call.path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        collect_tokens(call.tokens.clone(), &mut self.0.paths);
    }

    /// `pub(in path)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// `a::b::c` in a macro call's tokens.
fn collect_tokens(tokens: TokenStream, paths: &mut Vec<Vec<String>>) {
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                if colons != 2 {
                    paths.push(std::mem::take(&mut path));
                }
                path.push(name.to_string());
                colons = 0;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' && !path.is_empty() => colons += 1,
            TokenTree::Group(group) => {
                paths.push(std::mem::take(&mut path));
                colons = 0;
                collect_tokens(group.stream(), paths);
            }
            _ => {
                paths.push(std::mem::take(&mut path));
                colons = 0;
            }
        }
    }
    paths.push(path);
    paths.retain(|path| !path.is_empty());
}

fn module_file(top: &Path, folder: &Path, name: &str) -> PathBuf {
    let flat = folder.join(format!("{name}.rs"));
    if top.join(&flat).exists() { flat } else { folder.join(name).join("mod.rs") }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `cfg(test)`, `cfg(loom)`, or a combination that asks for one of them.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.meta.require_list().is_ok_and(|list| asks_for_tests(list.tokens.clone()))
    })
}

fn asks_for_tests(tokens: TokenStream) -> bool {
    let mut is_negated = false;
    for token in tokens {
        match token {
            TokenTree::Ident(word) if word == "test" || word == "loom" || word == "shuttle" => return true,
            TokenTree::Ident(word) => is_negated = word == "not",
            TokenTree::Group(group) if !is_negated && asks_for_tests(group.stream()) => return true,
            _ => is_negated = false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the files into a folder of their own; the imports of the crate whose root is
    /// `lib.rs`.
    fn imports(name: &str, files: &[(&str, &str)]) -> Vec<(String, String)> {
        let top = std::env::temp_dir().join(format!("tidy-graph-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&top).unwrap();
        for (file, text) in files {
            std::fs::create_dir_all(top.join(file).parent().unwrap()).unwrap();
            std::fs::write(top.join(file), text).unwrap();
        }
        let graph = Graph::read(&top, Path::new("lib.rs")).unwrap();
        std::fs::remove_dir_all(&top).unwrap();
        let pairs: BTreeSet<_> = graph.imports().into_iter().map(|(from, to, _)| (from, to)).collect();
        pairs.into_iter().collect()
    }

    fn pair(from: &str, to: &str) -> (String, String) {
        (from.to_owned(), to.to_owned())
    }

    #[test]
    fn a_re_export_is_an_import_of_its_definer() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod c; pub(crate) use c::Thing;"),
            ("a/c.rs", "pub(crate) struct Thing;"),
            ("b.rs", "use crate::a::Thing; fn f(_: Thing) {}"),
        ];
        assert_eq!(imports("export", &files), [pair("b.rs", "a/c.rs")]);
    }

    #[test]
    fn a_child_that_uses_its_parents_item_imports_the_parent() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod c; use c::g; struct Thing; fn f() { g() }"),
            ("a/c.rs", "use super::Thing; pub(super) fn g() {}"),
        ];
        assert_eq!(imports("parent", &files), [pair("a/c.rs", "a/mod.rs"), pair("a/mod.rs", "a/c.rs")]);
    }

    #[test]
    fn tests_and_models_do_not_count() {
        let files = [
            ("lib.rs", "mod a; mod b; #[cfg(all(test, not(loom)))] mod tests { use crate::a::T; } #[cfg(not(test))] use a::T as _;"),
            ("a.rs", "pub(crate) struct T; #[cfg(loom)] use crate::b::U;"),
            ("b.rs", "pub(crate) struct U;"),
        ];
        assert_eq!(imports("tests", &files), [pair("lib.rs", "a.rs")]);
    }

    #[test]
    fn paths_inside_macro_calls_count() {
        let files = [("lib.rs", "mod a; mod b;"), ("a.rs", "pub(crate) const N: u32 = 1;"), ("b.rs", "fn f() { g!(crate::a::N, 2) }")];
        assert_eq!(imports("macros", &files), [pair("b.rs", "a.rs")]);
    }
}
