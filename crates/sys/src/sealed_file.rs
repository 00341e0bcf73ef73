//! A file in memory whose content never changes, and which programs that this process executes
//! inherit: `/proc/self/fd/N` names it for them.

use crate::fd::FIRST_INTERNAL;
use crate::io;
use crate::linux::general::{F_ADD_SEALS, F_DUPFD, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE, MFD_ALLOW_SEALING, MFD_EXEC};
use core::ffi::CStr;
use syscalls::Errno;

/// Makes an executable file with this content. `name` is what /proc shows. Returns its descriptor,
/// which has a high number and stays open over execve(2).
///
/// # Errors
/// Those of memfd_create(2), `EACCES` where the system allows no executable one; `ENOMEM`.
pub fn sealed_executable(name: &CStr, content: &[u8]) -> Result<i32, Errno> {
    let create = |flags| io::memfd_create(io::ptr_of_slice(name.to_bytes_with_nul()), MFD_ALLOW_SEALING | flags).map(io::number_of);
    // Before Linux 6.3 each file is executable, and the flag unknown.
    let low = create(MFD_EXEC).or_else(|errno| if errno == Errno::EINVAL { create(0) } else { Err(errno) })?;
    let made = write_and_seal(low, content).map(|()| move_up(low));
    if made.is_err() {
        let _ = io::close(low);
    }
    made
}

fn write_and_seal(fd: i32, content: &[u8]) -> Result<(), Errno> {
    let mut rest = content;
    while !rest.is_empty() {
        let written = io::write(fd, io::ptr_of_slice(rest), rest.len())?;
        rest = &rest[written..];
    }
    io::fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE).map(drop)
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
}
