//! The structures of the ABI, field for field.

/// One submission queue entry, 64 bytes (`struct io_uring_sqe`).
///
/// Fields that are unions in C have the name of their most common member; accessors below have the
/// names of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sqe {
    /// `IORING_OP_*`.
    pub opcode: u8,
    /// `IOSQE_*`.
    pub flags: u8,
    /// I/O priority, or flags of accept, send, recv.
    pub ioprio: u16,
    /// File descriptor, or index of a registered file.
    pub fd: i32,
    /// Offset in the file (bytes); also `addr2`.
    pub off: u64,
    /// Address of the buffer or of the iovecs; also `splice_off_in`.
    pub addr: u64,
    /// Length of the buffer (bytes) or number of iovecs.
    pub len: u32,
    /// `rw_flags` and every other opcode's flag word.
    pub op_flags: u32,
    /// Returned in the CQE.
    pub user_data: u64,
    /// Index of a registered buffer, or the buffer group.
    pub buf_index: u16,
    /// Registered credentials to use; 0 for none.
    pub personality: u16,
    /// `splice_fd_in`, `file_index`, `optlen`, `addr_len`.
    pub splice_fd_in: i32,
    /// `addr3` and `optval`.
    pub addr3: u64,
    /// Must be zero for most opcodes.
    pub pad2: u64,
}

/// The upper half of a word.
#[inline]
const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

impl Sqe {
    /// An SQE from the eight words it occupies in the ring.
    #[inline]
    #[must_use]
    pub const fn from_words(w: [u64; 8]) -> Self {
        Self {
            opcode: w[0] as u8,
            flags: (w[0] >> 8) as u8,
            ioprio: (w[0] >> 16) as u16,
            fd: high(w[0]).cast_signed(),
            off: w[1],
            addr: w[2],
            len: w[3] as u32,
            op_flags: high(w[3]),
            user_data: w[4],
            buf_index: w[5] as u16,
            personality: (w[5] >> 16) as u16,
            splice_fd_in: high(w[5]).cast_signed(),
            addr3: w[6],
            pad2: w[7],
        }
    }

    /// The eight words that this SQE occupies in the ring.
    #[must_use]
    pub const fn to_words(&self) -> [u64; 8] {
        [
            self.opcode as u64 | (self.flags as u64) << 8 | (self.ioprio as u64) << 16 | (self.fd.cast_unsigned() as u64) << 32,
            self.off,
            self.addr,
            self.len as u64 | (self.op_flags as u64) << 32,
            self.user_data,
            self.buf_index as u64 | (self.personality as u64) << 16 | (self.splice_fd_in.cast_unsigned() as u64) << 32,
            self.addr3,
            self.pad2,
        ]
    }

    /// `addr2`: the second address, of opcodes without an offset.
    #[inline]
    #[must_use]
    pub const fn addr2(&self) -> u64 {
        self.off
    }

    /// `file_index`: slot + 1 of a registered file to install into, 0 for none,
    /// [`FILE_INDEX_ALLOC`](crate::FILE_INDEX_ALLOC).
    #[inline]
    #[must_use]
    pub const fn file_index(&self) -> u32 {
        self.splice_fd_in.cast_unsigned()
    }

    /// `buf_group`: the group to select a provided buffer from.
    #[inline]
    #[must_use]
    pub const fn buf_group(&self) -> u16 {
        self.buf_index
    }
}

/// One completion queue entry, 16 bytes (`struct io_uring_cqe`); with `IORING_SETUP_CQE32` two
/// words more follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Cqe {
    /// From the SQE.
    pub user_data: u64,
    /// The result: the return value of the system call, or a negative errno.
    pub res: i32,
    /// `IORING_CQE_F_*`.
    pub flags: u32,
}

/// `struct io_sqring_offsets`: where the program finds the SQ ring's words, in bytes from the
/// mapping's start.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SqOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub flags: u32,
    pub dropped: u32,
    pub array: u32,
    pub resv1: u32,
    pub user_addr: u64,
}

/// `struct io_cqring_offsets`: where the program finds the CQ ring's words, in bytes from the
/// mapping's start.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CqOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub overflow: u32,
    pub cqes: u32,
    pub flags: u32,
    pub resv1: u32,
    pub user_addr: u64,
}

/// `struct io_uring_params`, 120 bytes.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct UringParams {
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub flags: u32,
    pub sq_thread_cpu: u32,
    pub sq_thread_idle: u32,
    pub features: u32,
    pub wq_fd: u32,
    pub resv: [u32; 3],
    pub sq_off: SqOffsets,
    pub cq_off: CqOffsets,
}

/// `struct __kernel_timespec`.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Timespec {
    pub tv_sec: i64,
    pub tv_nsec: i64,
}

/// `struct io_uring_getevents_arg`: what `IORING_ENTER_EXT_ARG` points to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct GeteventsArg {
    /// Address of the signal mask to wait with, 0 for none.
    pub sigmask: u64,
    /// Size of that mask, bytes (8).
    pub sigmask_sz: u32,
    /// Time after which a single CQE ends the wait, µs.
    pub min_wait_usec: u32,
    /// Address of a [`Timespec`], 0 for none.
    pub ts: u64,
}

const _: () = {
    assert!(size_of::<Sqe>() == 64);
    assert!(size_of::<Cqe>() == 16);
    assert!(size_of::<UringParams>() == 120);
    assert!(size_of::<GeteventsArg>() == 24);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sqe_keeps_its_fields_through_words() {
        let sqe = Sqe {
            opcode: 23,
            flags: 0x81,
            ioprio: 0x1234,
            fd: -2,
            off: u64::MAX - 1,
            addr: 0xdead_beef_0000,
            len: 0x8000_0001,
            op_flags: 0xffff_0001,
            user_data: 7,
            buf_index: 0xfffe,
            personality: 0x0102,
            splice_fd_in: -3,
            addr3: 11,
            pad2: 13,
        };
        assert_eq!(Sqe::from_words(sqe.to_words()), sqe);
    }
}
