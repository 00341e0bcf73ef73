//! A file in memory whose content never changes, and which programs that this process executes
//! inherit: `/proc/self/fd/N` names it for them.

use crate::fd::FIRST_INTERNAL;
use crate::io;
use crate::linux::general::{
    F_ADD_SEALS, F_DUPFD, F_GET_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE, MFD_ALLOW_SEALING, MFD_EXEC,
};
use core::ffi::CStr;
use syscalls::Errno;

const SEALS: u32 = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

/// Bytes of an object's beginning that hold its headers and its build id.
const HEAD_BYTES: usize = 1024;

/// Makes an executable file with this content. `name` is what /proc shows. Returns its descriptor,
/// which has a high number and stays open over execve(2).
///
/// # Errors
/// Those of memfd_create(2), `EACCES` where the system allows no executable one; `ENOMEM`.
pub fn sealed_executable(name: &CStr, content: &[u8]) -> Result<i32, Errno> {
    made(name, content).map(move_up)
}

/// Makes such a file at a number that is free.
///
/// # Errors
/// Those of [`sealed_executable`]; `EMFILE`, `EINVAL` where the limit is below the number; `EBUSY`:
/// the number is taken.
pub fn restore(name: &CStr, content: SealedContent, number: i32) -> Result<(), Errno> {
    let low = made(name, content.0)?;
    if low == number {
        return Ok(());
    }
    let at = io::fcntl(low, F_DUPFD, number.cast_unsigned()).map(io::number_of);
    let _ = io::close(low);
    match at? {
        at if at == number => Ok(()),
        other => io::close(other).and(Err(Errno::EBUSY)),
    }
}

/// The content of such a file, mapped.
#[derive(Clone, Copy, Debug)]
pub struct SealedContent(&'static [u8]);

impl SealedContent {
    /// `None`: an empty file.
    ///
    /// # Safety
    /// The file is mapped there for reading, is never unmapped, and does not change.
    #[must_use]
    pub unsafe fn mapped(at: usize, len: usize) -> Option<Self> {
        // SAFETY: the caller's promise.
        (len != 0).then(|| Self(unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(at), len) }))
    }

    /// Whether the number is of a sealed file that is as long as this one and begins as it. An
    /// object has its build id there.
    #[must_use]
    pub fn is_of(self, number: i32) -> bool {
        let mut head = [0; HEAD_BYTES];
        let is_sealed = io::fcntl(number, F_GET_SEALS, 0).is_ok_and(|seals| seals & SEALS as usize == SEALS as usize);
        let is_as_long = io::fstat(number).is_ok_and(|stat| stat.size == self.0.len() as u64);
        is_sealed && is_as_long && {
            let read = io::pread(number, io::ptr_of_mut(&mut head), HEAD_BYTES, 0).unwrap_or(0);
            self.0.starts_with(&head[..read]) && read == HEAD_BYTES.min(self.0.len())
        }
    }
}

/// The file, at the lowest free number.
fn made(name: &CStr, content: &[u8]) -> Result<i32, Errno> {
    let create = |flags| io::memfd_create(io::ptr_of_slice(name.to_bytes_with_nul()), MFD_ALLOW_SEALING | flags).map(io::number_of);
    // Before Linux 6.3 each file is executable, and the flag unknown.
    let low = create(MFD_EXEC).or_else(|errno| if errno == Errno::EINVAL { create(0) } else { Err(errno) })?;
    match write_and_seal(low, content) {
        Ok(()) => Ok(low),
        Err(errno) => {
            let _ = io::close(low);
            Err(errno)
        }
    }
}

fn write_and_seal(fd: i32, content: &[u8]) -> Result<(), Errno> {
    let mut rest = content;
    while !rest.is_empty() {
        let written = io::write(fd, io::ptr_of_slice(rest), rest.len())?;
        rest = &rest[written..];
    }
    io::fcntl(fd, F_ADD_SEALS, SEALS).map(drop)
}

/// Programs expect the lowest free numbers for their own descriptors.
fn move_up(low: i32) -> i32 {
    let Ok(high) = io::fcntl(low, F_DUPFD, FIRST_INTERNAL) else { return low };
    let _ = io::close(low);
    io::number_of(high)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_content_is_there_and_stays() {
        let content = [7_u8; 10_000];
        let fd = sealed_executable(c"test", &content).unwrap();
        assert!(!crate::exec_file::is_closed_by_exec(fd));
        let mut read = [0_u8; 10_000];
        assert_eq!(io::pread(fd, io::ptr_of_mut(&mut read), read.len(), 0), Ok(content.len()));
        assert_eq!(read, content);
        assert_eq!(io::pwrite(fd, io::ptr_of_slice(b"x"), 1, 0), Err(Errno::EPERM));
        io::close(fd).unwrap();
    }

    #[test]
    fn a_closed_file_is_restored_at_its_number() {
        static CONTENT: [u8; 5000] = [9; 5000];
        let content = SealedContent(&CONTENT);
        let fd = sealed_executable(c"test", &CONTENT).unwrap();
        assert!(content.is_of(fd));
        assert_eq!(restore(c"test", content, fd), Err(Errno::EBUSY));
        io::close(fd).unwrap();
        assert!(!content.is_of(fd));
        restore(c"test", content, fd).unwrap();
        assert!(content.is_of(fd) && !SealedContent(&CONTENT[1..]).is_of(fd) && !SealedContent(&[8; 5000]).is_of(fd));
        assert!(!crate::exec_file::is_closed_by_exec(fd));
        io::close(fd).unwrap();
    }
}
