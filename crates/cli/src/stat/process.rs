//! Another process: its name, its mapped files, its memory.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

use super::error::StatError;

/// See the module.
#[derive(Debug)]
pub(crate) struct RemoteProcess {
    pub(crate) pid: i32,
    /// As in `ps`.
    pub(super) name: String,
}

/// A mapping of a file from its first byte.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MappedFile {
    pub(super) start: u64,
    pub(super) path: String,
}

impl RemoteProcess {
    pub(crate) fn find(pid: i32) -> Result<Self, StatError> {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).map_err(stat_error)?;
        Ok(Self { pid, name: name.trim_end().to_owned() })
    }

    /// The files that are mapped from their first byte on. Fails for a zombie, which has no
    /// mappings.
    pub(super) fn mapped(&self) -> Result<Vec<MappedFile>, StatError> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).map_err(stat_error)?;
        if maps.is_empty() { Err(StatError::NoProcess) } else { Ok(maps.lines().filter_map(mapped).collect()) }
    }

    /// Copies memory of the process.
    pub(crate) fn read(&self, from: u64, into: &mut [u8]) -> Result<(), StatError> {
        let remote = RemoteIoVec { base: usize::try_from(from).map_err(|_| StatError::Corrupt("address out of bounds"))?, len: into.len() };
        let wanted = into.len();
        match process_vm_readv(Pid::from_raw(self.pid), &mut [IoSliceMut::new(into)], &[remote]) {
            Ok(n) if n == wanted => Ok(()),
            Ok(_) | Err(Errno::EFAULT) => Err(StatError::Corrupt("truncated memory")),
            Err(Errno::ESRCH) => Err(StatError::NoProcess),
            Err(Errno::EPERM) => Err(StatError::PermissionDenied),
            Err(errno) => Err(StatError::Os(errno.to_string())),
        }
    }

    /// Changes memory of the process.
    pub(crate) fn write(&self, to: u64, bytes: &[u8]) -> Result<(), StatError> {
        let base = usize::try_from(to).map_err(|_| StatError::Corrupt("address out of bounds"))?;
        let remote = RemoteIoVec { base, len: bytes.len() };
        match process_vm_writev(Pid::from_raw(self.pid), &[IoSlice::new(bytes)], &[remote]) {
            Ok(n) if n == bytes.len() => Ok(()),
            Ok(_) | Err(Errno::EFAULT) => Err(StatError::Corrupt("truncated memory")),
            Err(Errno::ESRCH) => Err(StatError::NoProcess),
            Err(Errno::EPERM) => Err(StatError::PermissionDenied),
            Err(errno) => Err(StatError::Os(errno.to_string())),
        }
    }

    /// As [`read`](Self::read).
    pub(super) fn read_vec(&self, from: u64, len: usize) -> Result<Vec<u8>, StatError> {
        let mut bytes = vec![0; len];
        self.read(from, &mut bytes).map(|()| bytes)
    }
}

fn stat_error(error: io::Error) -> StatError {
    match error.kind() {
        io::ErrorKind::NotFound => StatError::NoProcess,
        io::ErrorKind::PermissionDenied => StatError::PermissionDenied,
        _ if error.raw_os_error() == Some(Errno::ESRCH as i32) => StatError::NoProcess,
        _ => StatError::Os(error.to_string()),
    }
}

/// A line of /proc/PID/maps: `start-end perms offset dev inode path`.
fn mapped(line: &str) -> Option<MappedFile> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(' ')?;
        rest = after.trim_start();
        Some(word)
    };
    let (range, rights, offset, _device, _inode) = (word()?, word()?, word()?, word()?, word()?);
    let is_start = u64::from_str_radix(offset, 16) == Ok(0) && rights.starts_with('r') && rest.starts_with('/');
    let start = u64::from_str_radix(range.split_once('-')?.0, 16).ok()?;
    is_start.then(|| MappedFile { start, path: rest.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_of_a_file_start_are_found() {
        let found = mapped("7f3c00000000-7f3c00001000 r--p 00000000 fd:00 123      /usr/lib/a b.so (deleted)");
        assert_eq!(found, Some(MappedFile { start: 0x7f3c_0000_0000, path: "/usr/lib/a b.so (deleted)".into() }));
        for other in [
            "7f3c00001000-7f3c00002000 r-xp 00001000 fd:00 123 /usr/lib/a.so",
            "7f3c00000000-7f3c00001000 ---p 00000000 fd:00 123 /usr/lib/a.so",
            "7ffc00000000-7ffc00001000 r-xp 00000000 00:00 0 [vdso]",
            "7ffc00000000-7ffc00001000 rw-p 00000000 00:00 0",
            "",
        ] {
            assert_eq!(mapped(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_reads_itself() {
        let this = RemoteProcess::find(std::process::id().cast_signed()).unwrap();
        let bytes = *b"some data";
        let read = this.read_vec(bytes.as_ptr().addr() as u64, bytes.len()).unwrap();
        assert_eq!(read, bytes);
        assert_eq!(this.read_vec(8, 8), Err(StatError::Corrupt("truncated memory")));
        assert!(!this.mapped().unwrap().is_empty());
    }

    #[test]
    fn a_missing_process_is_reported() {
        // Above any pid_max.
        assert_eq!(RemoteProcess::find(i32::MAX).unwrap_err(), StatError::NoProcess);
    }
}
