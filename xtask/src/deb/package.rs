//! What is built.

use crate::paths;
use std::path::PathBuf;

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The package is at most this large.
pub(super) const LIMIT_BYTES: u64 = 10 << 20;

/// What was built.
pub(super) struct BuiltPackage {
    pub(super) deb: PathBuf,
    pub(super) tarball: PathBuf,
}

impl BuiltPackage {
    pub(super) fn named() -> Self {
        let folder = paths::target().join("deb");
        Self {
            deb: folder.join(format!("uringlet_{VERSION}_amd64.deb")),
            tarball: folder.join(format!("uringlet-{VERSION}-x86_64.tar.gz")),
        }
    }
}
