//! Where things lie: the checkout, the build directory, the cache of what was fetched.

use crate::stream;
use anyhow::Context;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The checkout's top folder.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask lies inside the workspace").to_path_buf()
}

/// Fetched sources, what was built from them, private package lists, logs. Git ignores it; deleting it costs only time.
pub(crate) fn cache() -> PathBuf {
    root().join("conformance/.cache")
}

/// Cargo's build directory.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// A folder inside the cache that is empty now.
pub(crate) fn fresh_dir(path: &Path) -> anyhow::Result<()> {
    if path.exists() {
        std::fs::remove_dir_all(path).with_context(|| format!("emptying {}", path.display()))?;
    }
    std::fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))
}

/// Runs a command in the checkout, its output going where ours goes; an error unless it succeeds.
pub(crate) fn sh(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(args);
    let what = format!("`{program} {}`", args.join(" "));
    if std::io::stdout().is_terminal() {
        // Somebody looks on: colours, progress.
        let status = command.current_dir(root()).status().with_context(|| format!("starting {program}"))?;
        anyhow::ensure!(status.success(), "{what} ended with {status}");
        return Ok(());
    }
    let finished = stream::run(command, |_| ())?;
    anyhow::ensure!(finished.is_good(), "{what} failed:\n{}", finished.output());
    Ok(())
}

/// How to call this very program again, also when its file has been replaced by a newer build meanwhile.
pub(crate) const SELF_EXE: &str = "/proc/self/exe";
