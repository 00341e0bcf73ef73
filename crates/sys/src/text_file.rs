//! Files of /proc, whose length is known when they have been read.

use crate::io;
use crate::linux::general::{AT_FDCWD, O_CLOEXEC, O_RDONLY};
use crate::user_ptr::UserPtr;
use alloc::vec::Vec;
use core::ffi::CStr;
use syscalls::Errno;

/// Reads a whole file.
///
/// # Errors
/// Those of openat(2) and read(2).
pub fn read(path: &CStr) -> Result<Vec<u8>, Errno> {
    let path = io::ptr_of_slice(path.to_bytes_with_nul());
    let fd = io::openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0).map(io::number_of)?;
    let text = read_to_end(fd);
    let _ = io::close(fd);
    text
}

fn read_to_end(fd: i32) -> Result<Vec<u8>, Errno> {
    const STEP: usize = 4096;
    let mut bytes = Vec::new();
    loop {
        let len = bytes.len();
        bytes.resize(len + STEP, 0);
        let into = UserPtr::new(bytes[len..].as_mut_ptr().addr());
        let n = io::read(fd, into, STEP)?;
        bytes.truncate(len + n);
        if n == 0 {
            return Ok(bytes);
        }
    }
}
