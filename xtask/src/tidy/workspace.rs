//! The workspace as cargo knows it, and as ARCHITECTURE.md draws it.

use super::circles;
use super::findings::TidyFindings;
use super::graph::Graph;
use super::same_names::Exceptions;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The line above the drawing of the crates in ARCHITECTURE.md.
const DRAWING: &str = "```crates";

/// A package of the workspace.
#[derive(Debug)]
pub(super) struct Package {
    /// Its folder, from the checkout's top.
    folder: String,
    name: String,
    /// Roots of its libraries and programs; not of tests, examples and build scripts.
    roots: Vec<String>,
    /// Packages of the workspace that it is built with, by name.
    uses: BTreeSet<String>,
}

/// Asks cargo.
pub(super) fn read(top: &Path) -> anyhow::Result<Vec<Package>> {
    let out = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(top)
        .output()
        .context("starting cargo metadata")?;
    ensure!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).context("reading cargo metadata")?;
    let list = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let names: BTreeSet<&str> = list.iter().filter_map(|package| package["name"].as_str()).collect();
    list.iter().map(|package| read_one(top, package, &names)).collect()
}

fn read_one(top: &Path, package: &Value, names: &BTreeSet<&str>) -> anyhow::Result<Package> {
    let relative = |path: &Value| -> anyhow::Result<String> {
        let path = Path::new(path.as_str().context("cargo metadata: a path is missing")?);
        Ok(path.strip_prefix(top).with_context(|| format!("{} lies outside the checkout", path.display()))?.display().to_string())
    };
    let manifest = relative(&package["manifest_path"])?;
    let is_root = |target: &&Value| {
        let kinds = ["lib", "rlib", "cdylib", "staticlib", "bin", "proc-macro"];
        target["kind"].as_array().is_some_and(|kind| kind.iter().any(|kind| kinds.iter().any(|known| kind == known)))
    };
    let targets = package["targets"].as_array().context("cargo metadata names no targets")?;
    let roots = targets.iter().filter(is_root).map(|target| relative(&target["src_path"])).collect::<anyhow::Result<_>>()?;
    let dependencies = package["dependencies"].as_array().context("cargo metadata names no dependencies")?;
    let used = dependencies.iter().filter(|dependency| dependency["kind"].is_null()).filter_map(|dependency| dependency["name"].as_str());
    Ok(Package {
        folder: manifest.trim_end_matches("Cargo.toml").trim_end_matches('/').to_owned(),
        name: package["name"].as_str().unwrap_or_default().to_owned(),
        roots,
        uses: used.filter(|name| names.contains(name)).map(str::to_owned).collect(),
    })
}

/// Records import circles, and types of one name.
pub(super) fn measure(top: &Path, packages: &[Package], exceptions: &Exceptions, found: &mut TidyFindings) -> anyhow::Result<()> {
    let mut types = BTreeSet::new();
    for package in packages {
        for root in &package.roots {
            let graph = Graph::read(top, Path::new(root))?;
            circles::measure(&package.folder, &graph.imports(), found);
            for module in &graph.modules {
                types.extend(module.types.iter().map(|(name, line)| (name.clone(), format!("{}:{line}", module.file))));
            }
        }
    }
    exceptions.measure(&types, found);
    Ok(())
}

/// What differs between the crates that ARCHITECTURE.md draws and those that there are.
///
/// The drawing is a fenced block that starts with `` ```crates ``: a line for each package,
/// `folder -> folder, folder`, with the packages of the workspace that it is built with.
pub(super) fn check_drawing(architecture: &str, packages: &[Package]) -> Vec<String> {
    let drawn = drawing(architecture);
    let folders: BTreeMap<&str, &str> = packages.iter().map(|package| (package.name.as_str(), package.folder.as_str())).collect();
    let mut offences = Vec::new();
    for package in packages {
        let real: BTreeSet<&str> = package.uses.iter().filter_map(|name| folders.get(name.as_str()).copied()).collect();
        let Some(arrows) = drawn.get(package.folder.as_str()) else {
            offences.push(format!("ARCHITECTURE.md: {} is not drawn", package.folder));
            continue;
        };
        let missing = real.difference(arrows).map(|to| format!("ARCHITECTURE.md: {} -> {to} is not drawn", package.folder));
        let wrong = arrows.difference(&real).map(|to| format!("ARCHITECTURE.md: {} -> {to} is drawn, and is not there", package.folder));
        offences.extend(missing.chain(wrong));
    }
    let is_gone = |folder: &&&str| packages.iter().all(|package| package.folder != ***folder);
    offences.extend(drawn.keys().filter(is_gone).map(|folder| format!("ARCHITECTURE.md: there is no package {folder}")));
    offences
}

fn drawing(architecture: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let lines = architecture.lines().skip_while(|line| *line != DRAWING).skip(1).take_while(|line| *line != "```");
    lines
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let (from, to) = line.split_once("->").unwrap_or((line, ""));
            (from.trim(), to.split(',').map(str::trim).filter(|name| !name.is_empty()).collect())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str, uses: &[&str]) -> Package {
        let uses = uses.iter().map(|name| name.to_string()).collect();
        Package { folder: folder.to_owned(), name: folder.to_owned(), roots: Vec::new(), uses }
    }

    #[test]
    fn a_drawing_holds_exactly_the_real_arrows() {
        let packages = [package("core", &["sys"]), package("sys", &[])];
        let check = |lines: &str| check_drawing(&format!("text\n{DRAWING}\n{lines}\n```\n"), &packages).len();
        assert_eq!(check("core -> sys\nsys"), 0);
        assert_eq!(check("core -> sys, abi\nsys"), 1);
        assert_eq!(check("core\nsys"), 1);
        assert_eq!(check("core -> sys"), 1);
        assert_eq!(check("core -> sys\nsys\nabi"), 1);
    }
}
