//! A thread that waits for an answer: its memory, its descriptors, its paths.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::IoSliceMut;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

/// `AT_FDCWD`
const CWD: i32 = -100;
const PATH_MAX: usize = 4096;
/// No transfer is longer (`MAX_RW_COUNT`).
const TRANSFER_MAX: usize = 0x7fff_f000;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchedThread(pub(super) u32);

impl WatchedThread {
    /// As many bytes as can be read there.
    pub(super) fn bytes(self, at: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(TRANSFER_MAX)];
        let remote = [RemoteIoVec { base: usize::try_from(at).unwrap_or(usize::MAX), len: bytes.len() }];
        let got = process_vm_readv(Pid::from_raw(self.0.cast_signed()), &mut [IoSliceMut::new(&mut bytes)], &remote).unwrap_or(0);
        bytes.truncate(got);
        bytes
    }

    pub(super) fn word(self, at: u64) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(at, 8).try_into().ok()?))
    }

    /// The bytes of an array of iovecs, one behind the other.
    pub(super) fn gather(self, at: u64, count: u64) -> Vec<u8> {
        let vectors = self.bytes(at, count.min(1024) * 16);
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        vectors.chunks_exact(16).flat_map(|vector| self.bytes(word(&vector[..8]), word(&vector[8..]))).collect()
    }

    /// The text at an address.
    pub(super) fn text(self, at: u64) -> Option<OsString> {
        let mut bytes = Vec::new();
        // Page by page: the next one may not be there.
        while bytes.len() < PATH_MAX {
            let from = at + bytes.len() as u64;
            let part = self.bytes(from, 4096 - from % 4096);
            if let Some(end) = part.iter().position(|&byte| byte == 0) {
                bytes.extend(&part[..end]);
                return Some(OsString::from_vec(bytes));
            }
            if part.is_empty() {
                return None;
            }
            bytes.extend(part);
        }
        None
    }

    fn proc(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.0))
    }

    /// The open file: its path as /proc has it, and what it is.
    pub(super) fn open_file(self, fd: i32) -> Option<(PathBuf, Metadata)> {
        let link = self.proc(&format!("fd/{fd}"));
        Some((fs::read_link(&link).ok()?, fs::metadata(&link).ok()?))
    }

    /// Position and `O_*` flags of an open file.
    pub(super) fn position(self, fd: i32) -> Option<(u64, u32)> {
        let text = fs::read_to_string(self.proc(&format!("fdinfo/{fd}"))).ok()?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some((field("pos:")?.parse().ok()?, u32::from_str_radix(field("flags:")?, 8).ok()?))
    }

    /// Bytes of an open file.
    pub(super) fn file_bytes(self, fd: i32, at: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(TRANSFER_MAX)];
        let read = File::open(self.proc(&format!("fd/{fd}"))).and_then(|file| file.read_at(&mut bytes, at));
        bytes.truncate(read.unwrap_or(0));
        bytes
    }

    /// The path that a call means, with its directory resolved; the last part as it is.
    pub(super) fn path(self, directory: i32, text: &OsStr) -> Option<PathBuf> {
        let path = Path::new(text);
        let base = if directory == CWD { fs::read_link(self.proc("cwd")) } else { fs::read_link(self.proc(&format!("fd/{directory}"))) };
        let whole = if path.is_absolute() { path.to_owned() } else { base.ok()?.join(path) };
        if text.is_empty() {
            return None;
        }
        let (parent, name) = super::disk::split(&whole)?;
        Some(parent.canonicalize().ok()?.join(name))
    }

    /// As [`path`](Self::path), of the address of a path.
    pub(super) fn path_at(self, directory: i32, at: u64) -> Option<PathBuf> {
        self.path(directory, self.text(at)?.as_os_str())
    }

    /// The last part of a path is a link: where that leads.
    pub(super) fn followed(path: PathBuf) -> PathBuf {
        path.canonicalize().unwrap_or(path)
    }
}

/// The path of a file that has a name.
pub(super) fn named(path: &Path) -> Option<&Path> {
    (!path.as_os_str().as_bytes().ends_with(b" (deleted)")).then_some(path)
}
