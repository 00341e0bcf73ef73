//! Folders: the checkout, the build directory, the cache of fetched files.

use anyhow::Context;
use std::path::{Path, PathBuf};

/// The checkout's top folder.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask lies inside the workspace").to_path_buf()
}

/// Fetched sources and what is built from them, private package lists, logs. Git ignores it;
/// deleting it costs only time.
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

/// Creates an empty folder, or empties it.
pub(crate) fn fresh_dir(path: &Path) -> anyhow::Result<()> {
    if path.exists() {
        std::fs::remove_dir_all(path).with_context(|| format!("emptying {}", path.display()))?;
    }
    std::fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))
}

/// The path of this very program, which also works after a newer build has replaced its file.
pub(crate) const SELF_EXE: &str = "/proc/self/exe";
