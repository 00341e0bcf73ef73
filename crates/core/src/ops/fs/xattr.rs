//! `IORING_OP_FSETXATTR, SETXATTR, FGETXATTR, GETXATTR`: extended attributes.
//! Source:  io_uring_enter(2), setxattr(2), getxattr(2); behaviour of Linux 6.18 io_uring/xattr.c
//!          (not its code).
//! Issue:   inline if the submission is shallow, else on a worker. Units: len in bytes; with 0 a
//!          get returns the size.
//! Errors:  EINVAL bad flags; EBADF IOSQE_FIXED_FILE with a path; ERANGE an empty or overlong name;
//!          E2BIG; else the system call's.
//! Differs: the bad path of an unlinked request is reported when it is issued, as in the rest of
//!          the family.
//! Tests:   liburing xattr.t; ours cli/tests/net_ops.rs (xattr_ops), the differential test.

use super::path::{UserPath, refuse_fixed};
use crate::ops::issue::{PrepCx, unused};
use crate::ops::outcome::Outcome;
use alloc::boxed::Box;
use alloc::vec;
use uringlet_abi::Sqe;
use uringlet_sys::io::{self, Res};
use uringlet_sys::{Errno, UserPtr, user};

/// XATTR_NAME_MAX, and the NUL.
const NAME_MAX: usize = 256;
/// XATTR_SIZE_MAX, bytes.
const SIZE_MAX: usize = 65536;
/// `XATTR_CREATE | XATTR_REPLACE`
const FLAGS: u32 = 3;

/// A copy of bytes of the program.
type OwnedBytes = Box<[u8]>;

/// A validated request.
#[derive(Debug)]
pub(crate) struct Xattr {
    /// `None`: the attribute of the request's file.
    path: Option<UserPath>,
    name: OwnedBytes,
    value: Value,
    flags: u32,
}

/// The value to set, or the buffer for a get.
#[derive(Debug)]
enum Value {
    Set(OwnedBytes),
    Get(UserPtr, usize),
}

pub(super) fn prep_setxattr(sqe: &Sqe, cx: &PrepCx) -> Result<Xattr, Errno> {
    refuse_fixed(cx)?;
    prep(sqe, cx, FLAGS, true)
}

pub(super) fn prep_getxattr(sqe: &Sqe, cx: &PrepCx) -> Result<Xattr, Errno> {
    refuse_fixed(cx)?;
    prep(sqe, cx, 0, true)
}

pub(super) fn prep_fsetxattr(sqe: &Sqe, cx: &PrepCx) -> Result<Xattr, Errno> {
    prep(sqe, cx, FLAGS, false)
}

pub(super) fn prep_fgetxattr(sqe: &Sqe, cx: &PrepCx) -> Result<Xattr, Errno> {
    prep(sqe, cx, 0, false)
}

fn prep(sqe: &Sqe, cx: &PrepCx, flags: u32, has_path: bool) -> Result<Xattr, Errno> {
    unused(&[u64::from(sqe.op_flags & !flags)])?;
    let name = read_name(UserPtr::at(sqe.addr))?;
    let (addr, size) = (UserPtr::at(sqe.addr2()), sqe.len as usize);
    let value = if flags != 0 { Value::Set(read_value(addr, size)?) } else { Value::Get(addr, size) };
    let path = has_path.then(|| UserPath::prep(sqe.addr3, 0, cx)).transpose()?;
    Ok(Xattr { path, name, value, flags: sqe.op_flags })
}

impl Xattr {
    pub(super) fn run(&self, fd: i32) -> Outcome {
        match self.call(fd) {
            // The kernel fails the request before it looks at the attribute.
            Err(Errno::EBADF) if self.path.is_none() => Outcome::err(Errno::EBADF),
            res => Outcome::result_ok(res),
        }
    }

    fn call(&self, fd: i32) -> Res {
        let name = io::ptr_of_slice(&self.name);
        match (&self.value, &self.path) {
            (Value::Set(value), Some(path)) => io::setxattr(path.ptr(), name, io::ptr_of_slice(value), value.len(), self.flags),
            (Value::Set(value), None) => io::fsetxattr(fd, name, io::ptr_of_slice(value), value.len(), self.flags),
            (Value::Get(value, size), Some(path)) => io::getxattr(path.ptr(), name, *value, *size),
            (Value::Get(value, size), None) => io::fgetxattr(fd, name, *value, *size),
        }
    }

    /// Copies the path: name and value are copied already.
    pub(super) fn import_args(&mut self) -> Result<(), Errno> {
        self.path.as_mut().map_or(Ok(()), UserPath::import_args)
    }
}

fn read_name(addr: UserPtr) -> Result<OwnedBytes, Errno> {
    let mut name = [0; NAME_MAX];
    match user::read_cstr(&mut name, addr) {
        Ok(1) | Err(Errno::ENAMETOOLONG) => Err(Errno::ERANGE),
        Ok(n) => Ok(name[..n].into()),
        Err(errno) => Err(errno),
    }
}

fn read_value(addr: UserPtr, size: usize) -> Result<OwnedBytes, Errno> {
    if size > SIZE_MAX {
        return Err(Errno::E2BIG);
    }
    let mut value = vec![0_u8; size];
    user::read_slice(&mut value, addr)?;
    Ok(value.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringlet_abi::sqe;

    const CX: PrepCx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };
    const LINKED: PrepCx = PrepCx { sqe_flags: sqe::IO_LINK, ..CX };

    fn address(bytes: &[u8]) -> u64 {
        io::ptr_of_slice(bytes).addr() as u64
    }

    fn good() -> Sqe {
        Sqe { addr: address(b"user.a\0"), off: address(b"value"), len: 5, addr3: address(b"file\0"), ..Sqe::default() }
    }

    #[test]
    fn xattr_errors_have_the_kernels_order() {
        let errno = |sqe: Sqe| prep_setxattr(&sqe, &LINKED).err();
        assert_eq!(errno(good()), None);
        assert_eq!(errno(Sqe { op_flags: 4, addr: 0, ..good() }), Some(Errno::EINVAL));
        assert_eq!(errno(Sqe { addr: address(b"\0"), len: 65537, ..good() }), Some(Errno::ERANGE));
        assert_eq!(errno(Sqe { len: 65537, off: 0, ..good() }), Some(Errno::E2BIG));
        assert_eq!(errno(Sqe { off: 0, addr3: address(b"\0"), ..good() }), Some(Errno::EFAULT));
        assert_eq!(errno(Sqe { addr3: address(b"\0"), ..good() }), Some(Errno::ENOENT));
        // Also where the system call reads the path.
        assert_eq!(prep_getxattr(&Sqe { addr: address(b"\0"), addr3: 0, ..good() }, &CX).err(), Some(Errno::ERANGE));
        assert_eq!(prep_getxattr(&Sqe { op_flags: 1, ..good() }, &CX).err(), Some(Errno::EINVAL));
        assert_eq!(prep_getxattr(&good(), &PrepCx { sqe_flags: sqe::FIXED_FILE, ..CX }).err(), Some(Errno::EBADF));
        assert!(prep_fsetxattr(&good(), &PrepCx { sqe_flags: sqe::FIXED_FILE, ..CX }).is_ok());
    }

    #[test]
    fn xattr_names_have_at_most_255_bytes() {
        let mut name = vec![b'a'; NAME_MAX];
        assert_eq!(read_name(io::ptr_of_slice(&name)).err(), Some(Errno::ERANGE));
        name[NAME_MAX - 1] = 0;
        assert_eq!(read_name(io::ptr_of_slice(&name)).map(|name| name.len()), Ok(NAME_MAX));
    }

    #[test]
    fn xattr_values_are_copied_by_prep() {
        let mut value = *b"value";
        let sqe = Sqe { off: address(&value), ..good() };
        let Ok(op) = prep_fsetxattr(&sqe, &CX) else { panic!("refused") };
        value.fill(0);
        assert!(matches!(op, Xattr { value: Value::Set(kept), .. } if *kept == *b"value"));
    }
}
