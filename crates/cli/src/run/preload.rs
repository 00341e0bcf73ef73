//! Looks up `liburinglet.so`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};

use crate::stat;

/// Paths relative to the directory of this executable: as cargo builds it, and as installed.
const CANDIDATES: [&str; 3] = ["liburinglet.so", "liburinglet_attach.so", "../lib/uringlet/liburinglet.so"];

/// The library, or why there is none.
pub(super) fn find() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("URINGLET_LIB") {
        let named = PathBuf::from(named);
        return absolute(&named).ok_or_else(|| format!("URINGLET_LIB names {}, which is not a file", named.display()))?;
    }
    let executable =
        std::env::current_exe().map_err(|error| format!("cannot determine where uringlet is installed: {error}; set URINGLET_LIB"))?;
    let directory = executable.parent().unwrap_or(Path::new("/"));
    match CANDIDATES.iter().find_map(|candidate| absolute(&directory.join(candidate))) {
        Some(found) => found,
        None => Err(format!(
            "liburinglet.so is neither in {0} nor in {0}/../lib/uringlet; install it there or set URINGLET_LIB to its path",
            directory.display()
        )),
    }
}

/// Why the library is not put into programs, if so.
pub(super) fn obstacle(library: &Path) -> Option<String> {
    let what = if access(library, Access::READ_OK).is_err() {
        "cannot be read by this user. Make it readable (chmod a+r)"
    } else if statvfs(library).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NOEXEC)) {
        "is on a filesystem that is mounted noexec, so its code cannot be mapped. Install it elsewhere or set URINGLET_LIB"
    } else {
        return version_obstacle(library);
    };
    Some(format!("{} {what}", library.display()))
}

/// Why the library is not the one that belongs to this program, if so. What the two tell each other
/// by variables differs between versions.
fn version_obstacle(library: &Path) -> Option<String> {
    const OWN: &str = env!("CARGO_PKG_VERSION");
    let what = match stat::library_version(library) {
        Some(version) if version == OWN => return None,
        Some(version) => format!("is of version {version}, and this uringlet of {OWN}. Install both from one package"),
        None => format!("is no liburinglet.so of version {OWN}. Install both from one package"),
    };
    Some(format!("{} {what}", library.display()))
}

/// The absolute path of a file that exists, fit for LD_PRELOAD.
fn absolute(path: &Path) -> Option<Result<PathBuf, String>> {
    let path = path.canonicalize().ok().filter(|p| p.is_file())?;
    if path.as_os_str().as_bytes().iter().any(|b| b": $".contains(b)) {
        return Some(Err(format!(
            "{}: the dynamic linker cannot preload from a path with a colon, a space or a dollar sign; move it or set URINGLET_LIB",
            path.display()
        )));
    }
    Some(Ok(path))
}
