//! A path argument of the program.

use crate::ops::issue::PrepCx;
use alloc::boxed::Box;
use alloc::vec;
use uringlet_abi::sqe;
use uringlet_sys::{Errno, UserPtr, io, user};

/// Longest path with its NUL (PATH_MAX).
const MAX: usize = 4096;
/// Most paths fit in here.
const SHORT: usize = 256;
/// `AT_EMPTY_PATH`: "" means the file of the directory descriptor itself.
pub(super) const AT_EMPTY_PATH: u32 = 0x1000;

/// Operations on names take no registered file.
pub(super) fn refuse_fixed(cx: &PrepCx) -> Result<(), Errno> {
    if cx.sqe_flags & sqe::FIXED_FILE != 0 { Err(Errno::EBADF) } else { Ok(()) }
}

/// The address of a path, and a copy once the request outlives its submission.
#[derive(Debug)]
pub(crate) struct UserPath {
    addr: UserPtr,
    copy: Option<Box<[u8]>>,
}

impl UserPath {
    /// Prepares a path; `at_flags` are the operation's `AT_*`, if it has any.
    ///
    /// The path is copied here if the request certainly outlives its submission, or if a bad path
    /// must fail its chain as a whole, or has a CQE although an error of the call has none.
    /// Otherwise the system call reads it: that saves a copy for a request that completes inline.
    pub(super) fn prep(addr: u64, at_flags: u32, cx: &PrepCx) -> Result<Self, Errno> {
        const MUST_COPY: u8 = sqe::IO_LINK | sqe::IO_HARDLINK | sqe::IO_DRAIN | sqe::ASYNC | sqe::CQE_SKIP_SUCCESS;
        if !may_be_mapped(addr) {
            return Err(Errno::EFAULT);
        }
        let mut path = Self { addr: UserPtr::at(addr), copy: None };
        if cx.is_after_link || cx.sqe_flags & MUST_COPY != 0 {
            path.import_args()?;
            if path.copy.as_deref() == Some(&[0]) && at_flags & AT_EMPTY_PATH == 0 {
                return Err(Errno::ENOENT);
            }
        }
        Ok(path)
    }

    /// The address for a system call.
    #[inline]
    pub(super) fn ptr(&self) -> UserPtr {
        self.copy.as_deref().map_or(self.addr, io::ptr_of_slice)
    }

    /// Copies the path, so that the program may reuse its string.
    pub(super) fn import_args(&mut self) -> Result<(), Errno> {
        if self.copy.is_none() {
            self.copy = Some(read(self.addr)?);
        }
        Ok(())
    }
}

/// Null and the kernel's half of the address space are EFAULT.
fn may_be_mapped(addr: u64) -> bool {
    const FIRST_PAGE: u64 = 4096;
    (FIRST_PAGE..1 << 63).contains(&addr)
}

fn read(addr: UserPtr) -> Result<Box<[u8]>, Errno> {
    let mut short = [0; SHORT];
    match user::read_cstr(&mut short, addr) {
        Ok(n) => return Ok(short[..n].into()),
        Err(Errno::ENAMETOOLONG) => {}
        Err(errno) => return Err(errno),
    }
    let mut long = vec![0; MAX];
    let n = user::read_cstr(&mut long, addr)?;
    long.truncate(n);
    Ok(long.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn cx(sqe_flags: u8, is_after_link: bool) -> PrepCx {
        PrepCx { setup: 0, sqe_flags, is_after_link, is_wide: false }
    }

    fn addr(bytes: &[u8]) -> u64 {
        io::ptr_of_slice(bytes).addr() as u64
    }

    #[test]
    fn imported_paths_are_copies() {
        let mut name = Vec::from(*b"abc\0");
        let mut path = UserPath::prep(addr(&name), 0, &cx(0, false)).unwrap();
        assert_eq!(path.ptr(), io::ptr_of_slice(&name));
        path.import_args().unwrap();
        name.fill(b'x');
        path.import_args().unwrap();
        assert_eq!(path.copy.as_deref(), Some(&b"abc\0"[..]));
        assert_ne!(path.ptr(), io::ptr_of_slice(&name));
    }

    #[test]
    fn paths_that_outlive_their_submission_are_copied_by_prep() {
        for cx in [cx(sqe::IO_LINK, false), cx(sqe::IO_HARDLINK, false), cx(sqe::IO_DRAIN, false), cx(sqe::ASYNC, false), cx(0, true)] {
            assert!(UserPath::prep(addr(b"f\0"), 0, &cx).unwrap().copy.is_some());
            assert_eq!(UserPath::prep(addr(b"\0"), 0, &cx).err(), Some(Errno::ENOENT));
            assert!(UserPath::prep(addr(b"\0"), AT_EMPTY_PATH, &cx).is_ok());
            assert_eq!(UserPath::prep(1 << 46, 0, &cx).err(), Some(Errno::EFAULT));
        }
    }

    #[test]
    fn null_and_kernel_addresses_fault() {
        for bad in [0, 8, 1 << 63, u64::MAX] {
            assert_eq!(UserPath::prep(bad, AT_EMPTY_PATH, &cx(0, false)).err(), Some(Errno::EFAULT));
        }
    }

    #[test]
    fn paths_have_at_most_4095_bytes() {
        for len in [SHORT - 1, SHORT, MAX - 1] {
            let mut name = vec![b'a'; len];
            name.push(0);
            assert_eq!(read(io::ptr_of_slice(&name)).map(|copy| copy.len()), Ok(len + 1));
        }
        let name = vec![b'a'; MAX];
        assert_eq!(read(io::ptr_of_slice(&name)).err(), Some(Errno::ENAMETOOLONG));
    }
}
