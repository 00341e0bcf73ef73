//! The file that execvp(3) finds in PATH.

use uringlet_sys::UserPtr;
use uringlet_sys::exec_file::ExecPath;
use uringlet_sys::linux::general::{S_IFMT, S_IFREG, S_IXGRP, S_IXOTH, S_IXUSR};

use super::room::Room;
use super::target::PATH_MAX;
use crate::environ;
use crate::safe_read::ProgramReader;

/// Where glibc and musl look if there is no PATH.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// The path of the first file of this name that may be executable; `None`: there is none. Whether
/// it is, the call itself shows: libc continues the search then.
pub(super) fn find(name: usize, reader: &mut ProgramReader, room: &mut Room<'_>) -> Option<ExecPath> {
    let mut buffer = [0; PATH_MAX];
    let len = reader.string(name, &mut buffer);
    let text = &buffer[..len];
    if len == PATH_MAX || text.is_empty() {
        return None;
    }
    if text.contains(&b'/') {
        return Some(ExecPath::at(UserPtr::new(name)));
    }
    let path = environ::variable("PATH").unwrap_or(DEFAULT_PATH);
    path.split(|&byte| byte == b':').find_map(|directory| {
        // An empty entry is the current directory.
        let separator: &[u8] = if directory.is_empty() { b"" } else { b"/" };
        let found = ExecPath::at(UserPtr::new(room.text(&[directory, separator, text])?));
        found.stat().is_ok_and(|stat| may_be_executable(stat.mode)).then_some(found)
    })
}

fn may_be_executable(mode: u32) -> bool {
    mode & S_IFMT == S_IFREG && mode & (S_IXUSR | S_IXGRP | S_IXOTH) != 0
}
