//! Files that tests execute.
//!
//! A process of its own writes them. A descriptor of this process, open for writing, would live on
//! for a moment in a child that another test's thread starts meanwhile, and execve(2) would answer
//! ETXTBSY.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes a file with this content.
pub(crate) fn write_executable(path: &Path, content: impl AsRef<[u8]>, mode: u32) {
    let mut install = install(Path::new("/dev/stdin"), path, mode).stdin(Stdio::piped()).spawn().expect("install(1) starts");
    install.stdin.take().expect("its input").write_all(content.as_ref()).expect("it reads all");
    assert!(install.wait().expect("its end").success(), "{} is not written", path.display());
}

/// Copies a file.
pub(crate) fn copy_executable(from: &Path, to: &Path, mode: u32) {
    let status = install(from, to, mode).stdin(Stdio::null()).status().expect("install(1) starts");
    assert!(status.success(), "{} is not copied to {}", from.display(), to.display());
}

fn install(from: &Path, to: &Path, mode: u32) -> Command {
    let mut install = Command::new("install");
    install.arg(format!("--mode={mode:o}")).arg("--").arg(from).arg(to);
    install
}
