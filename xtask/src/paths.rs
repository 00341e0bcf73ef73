//! Where things lie: the checkout, the build directory, the cache of what was fetched.

use anyhow::Context;
use std::path::{Path, PathBuf};

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

/// How to call this very program again, also when its file has been replaced by a newer build meanwhile.
pub(crate) const SELF_EXE: &str = "/proc/self/exe";
