//! Looks the program up as a shell does.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::error::RunError;

/// The search path of a shell when PATH is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The path of the program `name`.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, RunError> {
    if name.is_empty() {
        return Err(RunError::not_found("the program's name is empty"));
    }
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut present = None;
    for directory in std::env::split_paths(&path) {
        // An empty element is the current directory. "./" adds the slash that marks a path.
        let directory = if directory.as_os_str().is_empty() { Path::new(".").to_path_buf() } else { directory };
        let candidate = directory.join(name);
        if !candidate.is_file() {
            continue;
        }
        if is_executable(&candidate) {
            return Ok(candidate);
        }
        present.get_or_insert(candidate);
    }
    match present {
        // `executable::check` reports what is wrong with it.
        Some(candidate) => Ok(candidate),
        None => Err(RunError::not_found(format_args!("{}: not found in PATH; give its path, or check the spelling", name.display()))),
    }
}

/// Whether the kernel lets this process execute the file, by its effective ids.
pub(super) fn is_executable(path: &Path) -> bool {
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}
