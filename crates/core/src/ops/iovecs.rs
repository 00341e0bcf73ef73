//! Buffers and iovecs of the program as arguments: checks, copies, and what is left of them.

use alloc::boxed::Box;
use alloc::vec;
use uringlet_abi::register::Iovec;
use uringlet_sys::{Errno, UserPtr, user};

/// No user address is at or above this one.
const USER_END: u64 = 1 << 56;

/// Whether these bytes cannot be memory of any program.
pub(super) fn is_beyond_memory(addr: u64, len: u64) -> bool {
    addr.saturating_add(len) > USER_END
}

/// Checks iovecs as readv(2) does.
pub(super) fn check(iovecs: &[Iovec]) -> Result<(), Errno> {
    if iovecs.iter().any(|v| v.len > i64::MAX as u64) {
        return Err(Errno::EINVAL);
    }
    if iovecs.iter().any(|v| is_beyond_memory(v.base, v.len)) { Err(Errno::EFAULT) } else { Ok(()) }
}

/// Copies iovecs, with the checks of the system calls.
pub(super) fn read(addr: u64, n: usize) -> Result<Box<[Iovec]>, Errno> {
    let mut iovecs = vec![Iovec::default(); n].into_boxed_slice();
    user::read_slice(&mut iovecs, UserPtr::at(addr))?;
    check(&iovecs)?;
    Ok(iovecs)
}

/// Drops the first `n` bytes.
pub(super) fn skip(iovecs: &mut [Iovec], mut n: usize) {
    for v in iovecs {
        let taken = n.min(v.len as usize);
        v.base += taken as u64;
        v.len -= taken as u64;
        n -= taken;
    }
}

/// Sum of the lengths, bytes.
pub(super) fn bytes(iovecs: &[Iovec]) -> usize {
    iovecs.iter().map(|v| v.len as usize).fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_bytes_shrink_iovecs_from_the_front() {
        let mut v = [Iovec { base: 100, len: 10 }, Iovec { base: 200, len: 10 }, Iovec { base: 300, len: 10 }];
        skip(&mut v, 13);
        assert_eq!(v.map(|v| (v.base, v.len)), [(110, 0), (203, 7), (300, 10)]);
    }
}
