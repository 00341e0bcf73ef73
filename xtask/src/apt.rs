//! Debian packages by name: programs that tests need, and sources of test suites.
//!
//! apt runs on private package lists under the cache, made from the system's list of mirrors plus
//! `deb-src`; the system's lists and its choice of repositories stay as they are.

use crate::paths;
use anyhow::{Context, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Installs the packages that are missing. The error tells an ordinary user what to do.
pub(crate) fn ensure_installed(packages: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<_> = packages.iter().copied().filter(|name| !is_installed(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !rustix::process::geteuid().is_root() {
        bail!("these packages are needed: {list}; as root: apt-get install {list}");
    }
    println!("installing {list}");
    let lists = PackageLists::prepare(Repository::Installed)?;
    let install = || {
        let mut command = lists.apt_get();
        command.args(["install", "-y", "--no-install-recommends"]).args(&missing);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        finished(command)
    };
    // The first attempt fails without lists, or with lists older than the mirror's packages.
    if install().is_err() {
        lists.update()?;
        install().with_context(|| format!("installing {list}"))?;
    }
    Ok(())
}

/// Where packages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repository {
    /// Those of the system.
    Installed,
    /// Debian testing, on the system's mirror.
    Testing,
}

/// The mirror that this machine's own packages come from.
pub(crate) fn mirror() -> anyhow::Result<String> {
    let mut targets = Command::new("apt-get");
    targets.args(["indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"]);
    let out = targets.output().context("starting apt-get (this needs a Debian)")?;
    let text = String::from_utf8_lossy(&out.stdout);
    // Updates have a suite of their own: `bookworm-security`.
    let base = text.lines().filter_map(|line| line.split_once(' ')).find(|(_, suite)| !suite.contains('-'));
    match base {
        Some((uri, _)) => Ok(uri.to_owned()),
        None => bail!("apt names no mirror; run apt-get update"),
    }
}

/// Unpacks the source package's newest version into `dir`. Returns the folder that apt made.
pub(crate) fn fetch_source(package: &str, repository: Repository, dir: &Path) -> anyhow::Result<PathBuf> {
    ensure_installed(&["dpkg-dev"])?;
    paths::fresh_dir(dir)?;
    let lists = PackageLists::prepare(repository)?;
    lists.update()?;
    let mut command = lists.apt_get();
    command.args(["source", package]).current_dir(dir);
    finished(command).with_context(|| format!("fetching the source of {package}"))?;
    let prefix = format!("{package}-");
    let unpacked =
        fs::read_dir(dir)?.flatten().find(|entry| entry.path().is_dir() && entry.file_name().to_string_lossy().starts_with(&prefix));
    Ok(unpacked.with_context(|| format!("no folder {prefix}* was unpacked"))?.path())
}

/// Downloads a package of Debian testing and unpacks it into `dir`, without installing it.
pub(crate) fn unpack_testing(name: &str, dir: &Path) -> anyhow::Result<()> {
    let lists = PackageLists::prepare(Repository::Testing)?;
    lists.update()?;
    unpack(&lists, name, dir)
}

/// Downloads the newest package whose name matches the regular expression and unpacks it into
/// `dir`, without installing it.
pub(crate) fn unpack_newest(pattern: &str, dir: &Path) -> anyhow::Result<()> {
    let lists = PackageLists::prepare(Repository::Installed)?;
    lists.update()?;
    let mut search = lists.tool("apt-cache");
    search.args(["search", "--names-only", pattern]);
    let found = String::from_utf8_lossy(&finished(search)?.stdout).into_owned();
    let names = found.lines().filter_map(|line| line.split_whitespace().next());
    let name = names.max_by_key(|name| numbers(name)).with_context(|| format!("no package is named like {pattern}"))?;
    unpack(&lists, name, dir)
}

fn unpack(lists: &PackageLists, name: &str, dir: &Path) -> anyhow::Result<()> {
    paths::fresh_dir(dir)?;
    println!("fetching {name}");
    let mut download = lists.apt_get();
    download.args(["download", name]).current_dir(dir);
    finished(download).with_context(|| format!("fetching {name}"))?;
    let is_package = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
    let package = fs::read_dir(dir)?.flatten().map(|entry| entry.path()).find(is_package).context("no package was fetched")?;
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("-x").arg(package).arg(dir);
    finished(unpack).map(drop)
}

/// The numbers in a name, to sort versions by.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// Name and version of each package, for the log.
pub(crate) fn versions(packages: &[&str]) -> anyhow::Result<Vec<String>> {
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f", "${Package} ${Version}\n"]).args(packages);
    Ok(String::from_utf8_lossy(&finished(query)?.stdout).lines().map(str::to_owned).collect())
}

fn is_installed(package: &str) -> bool {
    let query = Command::new("dpkg-query").args(["-W", "-f", "${db:Status-Status}", package]).output();
    query.is_ok_and(|out| out.status.success() && out.stdout == b"installed")
}

fn finished(mut command: Command) -> anyhow::Result<Output> {
    let out = command.output().context("starting apt-get (this task needs a Debian)")?;
    ensure!(
        out.status.success(),
        "{command:?} ended with {}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    Ok(out)
}

/// Private package lists.
#[derive(Debug)]
struct PackageLists {
    dir: PathBuf,
}

impl PackageLists {
    fn prepare(repository: Repository) -> anyhow::Result<Self> {
        let name = if repository == Repository::Testing { "apt-testing" } else { "apt" };
        let lists = Self { dir: paths::cache().join(name) };
        let sources = lists.dir.join("sources.list.d");
        paths::fresh_dir(&sources)?;
        for sub in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(lists.dir.join(sub))?;
        }
        match repository {
            Repository::Installed => copy_sources(&sources)?,
            Repository::Testing => {
                fs::write(sources.join("testing.list"), format!("deb {0} testing main\ndeb-src {0} testing main\n", mirror()?))?
            }
        }
        Ok(lists)
    }

    fn update(&self) -> anyhow::Result<()> {
        println!("reading the package lists");
        let mut command = self.apt_get();
        command.arg("update");
        let out = command.output().context("starting apt-get (this task needs a Debian)")?;
        if !out.status.success() {
            // A repository without sources is no reason to stop: the package may be in another one.
            eprintln!("apt-get update: {}", String::from_utf8_lossy(&out.stderr).trim());
        }
        Ok(())
    }

    fn apt_get(&self) -> Command {
        self.tool("apt-get")
    }

    /// A program of apt, on the private lists.
    fn tool(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let dir = self.dir.display();
        for option in [
            "Dir::Etc::sourcelist=/dev/null".to_owned(),
            format!("Dir::Etc::sourceparts={dir}/sources.list.d"),
            format!("Dir::State::lists={dir}/lists"),
            format!("Dir::Cache={dir}/cache"),
            // apt's download user may not be allowed to read the checkout.
            "APT::Sandbox::User=root".to_owned(),
            // A mirror that is a snapshot has a release file of an earlier day.
            "Acquire::Check-Valid-Until=false".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        command
    }
}

/// Copies the system's lists of mirrors, with sources.
fn copy_sources(sources: &Path) -> anyhow::Result<()> {
    let system = Path::new("/etc/apt");
    let listed = fs::read_dir(system.join("sources.list.d")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut copied = 0;
    for file in listed.chain([system.join("sources.list")]) {
        let Some(text) = with_sources(&file) else {
            continue;
        };
        fs::write(sources.join(file.file_name().context("a list without a name")?), text)?;
        copied += 1;
    }
    ensure!(copied > 0, "/etc/apt names no mirror (looked at sources.list and sources.list.d/)");
    Ok(())
}

/// A list of mirrors with `deb-src` beside each `deb`; `None` when the file is no such list.
fn with_sources(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    match file.extension()?.to_str()? {
        "sources" => Some(deb822_with_sources(&text)),
        "list" => Some(lines_with_sources(&text)),
        _ => None,
    }
}

fn deb822_with_sources(text: &str) -> String {
    let line = |line: &str| match line.split_once(':') {
        Some((field, _)) if field.eq_ignore_ascii_case("types") => "Types: deb deb-src\n".to_owned(),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn lines_with_sources(text: &str) -> String {
    let binary = text.lines().filter(|line| line.split_ascii_whitespace().next() == Some("deb"));
    binary.map(|line| format!("{line}\n{}\n", line.replacen("deb", "deb-src", 1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_gain_sources() {
        let new = deb822_with_sources("Types: deb\nURIs: mirror://m\nSuites: s\n");
        assert_eq!(new, "Types: deb deb-src\nURIs: mirror://m\nSuites: s\n");
        let old = lines_with_sources("# deb x\ndeb [signed-by=/k] mirror://m s main\ndeb-src mirror://m s main\n");
        assert_eq!(old, "deb [signed-by=/k] mirror://m s main\ndeb-src [signed-by=/k] mirror://m s main\n");
    }
}
