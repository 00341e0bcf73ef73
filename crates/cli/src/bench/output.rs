//! Results on standard output and in files, and removal of test files.

use std::io::Write;
use std::path::Path;

/// Prints to standard output. A closed pipe must not keep the benchmark from cleaning up.
pub(super) fn print(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

pub(super) fn write_file(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

pub(super) fn remove_if_there(file: &Path) -> Result<(), String> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("cannot remove {}: {error}", file.display())),
        _ => Ok(()),
    }
}
