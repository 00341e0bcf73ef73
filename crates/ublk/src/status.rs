//! Maps a server's errno to the errno of the block device.

use uringlet_sys::Errno;

/// The errno that a client gets for a server's negative result.
///
/// As in the kernel, errors without a block layer status become EIO.
#[must_use]
pub fn client_errno(result: i32) -> Errno {
    match Errno::new(result.wrapping_neg()) {
        errno @ (Errno::EOPNOTSUPP
        | Errno::ETIMEDOUT
        | Errno::ENOSPC
        | Errno::ENOLINK
        | Errno::EREMOTEIO
        | Errno::EBADE
        | Errno::ENODATA
        | Errno::EILSEQ
        | Errno::ENOMEM
        | Errno::EBUSY
        | Errno::EAGAIN
        | Errno::ENODEV
        | Errno::EOVERFLOW
        | Errno::ETIME
        | Errno::EINVAL) => errno,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_with_a_block_status_are_kept() {
        for errno in [Errno::ENOSPC, Errno::EOPNOTSUPP, Errno::ETIMEDOUT, Errno::ENODATA] {
            assert_eq!(client_errno(-errno.into_raw()), errno);
        }
        for errno in [Errno::EIO, Errno::EPERM, Errno::EBADF, Errno::EFAULT, Errno::new(4000)] {
            assert_eq!(client_errno(-errno.into_raw()), Errno::EIO);
        }
        assert_eq!(client_errno(i32::MIN), Errno::EIO);
    }
}
