//! The version of liburing that a program has loaded.

use std::path::Path;

/// Of an object that is liburing: the version in the name of its file, behind all links.
pub(super) fn version(object: &str) -> Option<String> {
    let name = Path::new(object).file_name()?.to_str()?;
    if !name.starts_with("liburing.so") && !name.starts_with("liburing-ffi.so") {
        return None;
    }
    let file = std::fs::canonicalize(object).ok();
    let file = file.as_deref().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or(name);
    file.split_once(".so.").map(|(_, version)| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_file_has_the_version() {
        assert_eq!(version("/nowhere/liburing.so.2.3.0").as_deref(), Some("2.3.0"));
        assert_eq!([version("/lib/libc.so.6"), version("the program")], [None, None]);
    }
}
