//! Where findings are kept between starts: one small file for each object, named by its build-id, in a directory that is the user's alone.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write as _;

use syscalls::{Sysno, raw};

use super::object::LoadedObject;
use super::record::{self, Key, MAX_BYTES};
use super::scan::Findings;
use crate::environ;

const O_WRONLY_CREATE_NEW: usize = 0o1 | 0o100 | 0o200;
const O_DIRECTORY: usize = 0o200_000;
const O_NOFOLLOW: usize = 0o400_000;
const O_CLOEXEC: usize = 0o2_000_000;
const AT_FDCWD: usize = -100_isize as usize;
const MODE_OTHERS: u32 = 0o077;

/// The directory, open for the time of one look at all objects.
#[derive(Debug)]
pub(super) struct Cache {
    directory: usize,
    buffer: Vec<u8>,
}

/// The beginning of the kernel's `struct stat`.
#[repr(C)]
#[derive(Default)]
struct Stat {
    dev: u64,
    ino: u64,
    nlink: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    pad: u32,
    rdev: u64,
    size: u64,
    blksize: u64,
    blocks: u64,
    atime: [u64; 2],
    mtime: [u64; 2],
    ctime: [u64; 2],
    unused: [u64; 3],
}

fn ok(result: usize) -> Option<usize> {
    (result <= i32::MAX as usize).then_some(result)
}

/// A path or name as the kernel wants it.
fn c_string(parts: &[&[u8]]) -> Vec<u8> {
    let mut text = parts.concat();
    text.push(0);
    text
}

impl Cache {
    /// `None`: the user wants none, or there is no place that only the user can write to.
    pub(super) fn open() -> Option<Self> {
        let wanted = environ::variable("URINGLET_CACHE");
        if let Some(place) = wanted {
            return if place == b"off" { None } else { Self::open_at(&c_string(&[place])) };
        }
        // SAFETY: geteuid takes nothing.
        let user = unsafe { raw::syscall0(Sysno::geteuid as usize) };
        let mut temporary = alloc::string::String::new();
        let _ = write!(temporary, "/tmp/uringlet-{user}");
        let base = environ::variable("XDG_CACHE_HOME").filter(|path| path.starts_with(b"/")).map(<[u8]>::to_vec);
        let home = || environ::variable("HOME").filter(|path| path.starts_with(b"/")).map(|home| [home, b"/.cache"].concat());
        let place = base.or_else(home).and_then(|base| {
            make_directory(&c_string(&[&base]));
            Self::open_at(&c_string(&[&base, b"/uringlet"]))
        });
        place.or_else(|| Self::open_at(&c_string(&[temporary.as_bytes()])))
    }

    fn open_at(path: &[u8]) -> Option<Self> {
        const FLAGS: usize = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        make_directory(path);
        // SAFETY: a string that ends in NUL; the structure is as long as the kernel's.
        unsafe {
            let directory = ok(raw::syscall4(Sysno::openat as usize, AT_FDCWD, path.as_ptr() as usize, FLAGS, 0))?;
            let cache = Self { directory, buffer: vec![0; MAX_BYTES] };
            let mut stat = Stat::default();
            ok(raw::syscall2(Sysno::fstat as usize, directory, &raw mut stat as usize))?;
            let user = raw::syscall0(Sysno::geteuid as usize);
            (stat.uid as usize == user && stat.mode & MODE_OTHERS == 0).then_some(cache)
        }
    }

    /// What an earlier start found, if the object still is what it was then.
    pub(super) fn load(&mut self, object: &LoadedObject, key: &Key) -> Option<Findings> {
        let len = self.read(&file_name(key))?;
        let findings = record::decode(&self.buffer[..len], key)?;
        let is_in_place = findings.plans.iter().all(|plan| {
            let from = object.base.wrapping_add(plan.start);
            object.bytes(from..from.saturating_add(plan.bytes.len() as u64)) == Some(&plan.bytes[..])
        });
        is_in_place.then_some(findings)
    }

    fn read(&mut self, name: &[u8]) -> Option<usize> {
        // SAFETY: a string that ends in NUL, a live buffer, our own descriptor.
        unsafe {
            let fd = ok(raw::syscall4(Sysno::openat as usize, self.directory, name.as_ptr() as usize, O_NOFOLLOW | O_CLOEXEC, 0))?;
            let len = raw::syscall3(Sysno::read as usize, fd, self.buffer.as_mut_ptr() as usize, self.buffer.len());
            raw::syscall1(Sysno::close as usize, fd);
            ok(len).filter(|&len| len < MAX_BYTES)
        }
    }

    /// Remembers. Whoever reads meanwhile sees the old file or the new one. Failure is no matter: the next start scans again.
    pub(super) fn store(&self, key: &Key, findings: &Findings) {
        let content = record::encode(key, findings);
        if content.len() >= MAX_BYTES {
            return;
        }
        let name = file_name(key);
        let mut temporary = alloc::string::String::from(".");
        // SAFETY: strings that end in NUL, a live buffer, our own descriptors.
        unsafe {
            let _ = write!(temporary, "{}-{:x}\0", raw::syscall0(Sysno::gettid as usize), record::checksum(&name));
            let temporary = temporary.as_ptr() as usize;
            let flags = O_WRONLY_CREATE_NEW | O_NOFOLLOW | O_CLOEXEC;
            let Some(fd) = ok(raw::syscall4(Sysno::openat as usize, self.directory, temporary, flags, 0o600)) else { return };
            let written = raw::syscall3(Sysno::write as usize, fd, content.as_ptr() as usize, content.len());
            raw::syscall1(Sysno::close as usize, fd);
            let placed = written == content.len()
                && raw::syscall4(Sysno::renameat as usize, self.directory, temporary, self.directory, name.as_ptr() as usize) == 0;
            if !placed {
                raw::syscall3(Sysno::unlinkat as usize, self.directory, temporary, 0);
            }
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { raw::syscall1(Sysno::close as usize, self.directory) };
    }
}

fn make_directory(path: &[u8]) {
    // SAFETY: a string that ends in NUL.
    unsafe { raw::syscall3(Sysno::mkdirat as usize, AT_FDCWD, path.as_ptr() as usize, 0o700) };
}

/// By what an object is known: its build-id, or else its file.
pub(super) fn key(object: &LoadedObject) -> Option<Key> {
    let code_bytes = object.executable.iter().map(|range| range.end - range.start).sum();
    if !object.build_id.is_empty() {
        return Some(Key { identity: object.build_id.clone(), code_bytes });
    }
    let path = if object.name.is_empty() { c_string(&[b"/proc/self/exe"]) } else { c_string(&[&object.name]) };
    let mut stat = Stat::default();
    // SAFETY: a string that ends in NUL; the structure is as long as the kernel's.
    ok(unsafe { raw::syscall2(Sysno::stat as usize, path.as_ptr() as usize, &raw mut stat as usize) })?;
    let parts = [stat.dev, stat.ino, stat.size, stat.mtime[0], stat.mtime[1], stat.ctime[0], stat.ctime[1]];
    Some(Key { identity: parts.map(u64::to_le_bytes).concat(), code_bytes })
}

fn file_name(key: &Key) -> Vec<u8> {
    let mut name = alloc::string::String::new();
    for byte in &key.identity {
        let _ = write!(name, "{byte:02x}");
    }
    name.push('\0');
    name.into_bytes()
}
