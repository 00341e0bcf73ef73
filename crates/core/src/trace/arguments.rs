//! What an SQE points to: paths, buffers, structures. A new opcode does not compile without a line
//! here.

use super::data::{DataPlace, ELEMENTS, FirstIovecs, PATH, size_of_word};
use uringlet_abi::{Opcode, Sqe, op_flags, sqe};
use uringlet_sys::io::Msghdr;
use uringlet_sys::trace::argument;
use uringlet_sys::{UserPtr, user};

/// The longest name of an attribute (`XATTR_NAME_MAX`).
const NAME: usize = 256;
const IOVEC: usize = 16;
const TIMESPEC: usize = 16;
const OPEN_HOW: usize = 24;
const EPOLL_EVENT: usize = 12;
const MSGHDR: usize = 56;
const FUTEX_WAITV: usize = 24;
/// The longest address of a socket (`struct sockaddr_storage`).
const SOCKADDR: usize = 128;

/// The flags that say what the descriptor of a cancel is.
const CANCEL_FDS: u32 = op_flags::CANCEL_FD | op_flags::CANCEL_FD_FIXED;

/// Whether the field `fd` of an SQE is no descriptor.
const fn has_no_file(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Nop
            | Opcode::Nop128
            | Opcode::Timeout
            | Opcode::TimeoutRemove
            | Opcode::LinkTimeout
            | Opcode::PollRemove
            | Opcode::AsyncCancel
            | Opcode::FilesUpdate
            | Opcode::ProvideBuffers
            | Opcode::RemoveBuffers
            | Opcode::Madvise
            | Opcode::Socket
            | Opcode::Pipe
            | Opcode::Waitid
            | Opcode::FutexWait
            | Opcode::FutexWake
            | Opcode::FutexWaitv
            | Opcode::Setxattr
            | Opcode::Getxattr
    )
}

/// The descriptor numbers of an SQE: that of its file, and another one. -1: none.
pub(crate) fn files(opcode: Opcode, entry: &Sqe) -> [i32; 2] {
    let second = match opcode {
        Opcode::Splice | Opcode::Tee if entry.op_flags & op_flags::SPLICE_F_FD_IN_FIXED == 0 => entry.splice_fd_in,
        Opcode::Renameat | Opcode::Linkat => entry.len.cast_signed(),
        Opcode::EpollCtl => i32::try_from(entry.off).unwrap_or(-1),
        Opcode::AsyncCancel if entry.op_flags & CANCEL_FDS == op_flags::CANCEL_FD => entry.fd,
        _ => -1,
    };
    let is_slot = opcode == Opcode::Close && entry.file_index() != 0;
    [if has_no_file(opcode) || is_slot { -1 } else { entry.fd }, second]
}

/// Passes each place to `record`. `limit`: bytes of a buffer.
pub(super) fn of(opcode: Opcode, entry: &Sqe, limit: usize, mut record: impl FnMut(DataPlace) -> bool) {
    let len = entry.len as usize;
    match opcode {
        Opcode::Readv | Opcode::ReadvFixed => return vector(entry.addr, len, 0, &mut record),
        Opcode::Writev | Opcode::WritevFixed => return vector(entry.addr, len, limit, &mut record),
        Opcode::Sendmsg | Opcode::SendmsgZc => return message(entry.addr, limit, &mut record),
        Opcode::Recvmsg => return message(entry.addr, 0, &mut record),
        _ => {}
    }
    let is_vector = matches!(opcode, Opcode::Send | Opcode::SendZc) && entry.ioprio & op_flags::SEND_VECTORIZED != 0;
    if is_vector && entry.flags & sqe::BUFFER_SELECT == 0 {
        vector(entry.addr, len, limit, &mut record);
    }
    let mut place = |argument: u16, addr: u64, len: usize, total: usize, is_text: bool| {
        if addr != 0 && len > 0 {
            record(DataPlace { argument, at: UserPtr::at(addr), len, before: 0, total, is_text });
        }
    };
    let mut path = |argument, addr| place(argument, addr, PATH, 0, true);
    match opcode {
        Opcode::Openat | Opcode::Statx | Opcode::Unlinkat | Opcode::Mkdirat => path(argument::PATH, entry.addr),
        Opcode::Renameat | Opcode::Linkat | Opcode::Symlinkat => {
            path(argument::PATH, entry.addr);
            path(argument::SECOND, entry.addr2());
        }
        Opcode::Openat2 => {
            path(argument::PATH, entry.addr);
            place(argument::STRUCT, entry.off, OPEN_HOW.min(len), len, false);
        }
        Opcode::Setxattr | Opcode::Getxattr => {
            path(argument::PATH, entry.addr3);
            place(argument::SECOND, entry.addr, NAME, 0, true);
            if opcode == Opcode::Setxattr {
                place(argument::BUFFER, entry.off, len.min(limit), len, false);
            }
        }
        Opcode::Fsetxattr => {
            place(argument::SECOND, entry.addr, NAME, 0, true);
            place(argument::BUFFER, entry.off, len.min(limit), len, false);
        }
        Opcode::Fgetxattr => place(argument::SECOND, entry.addr, NAME, 0, true),
        Opcode::Write | Opcode::WriteFixed => place(argument::BUFFER, entry.addr, len.min(limit), len, false),
        Opcode::Send | Opcode::SendZc => {
            if entry.flags & sqe::BUFFER_SELECT == 0 && !is_vector {
                place(argument::BUFFER, entry.addr, len.min(limit), len, false);
            }
            place(argument::ADDRESS, entry.addr2(), (entry.file_index() as usize & 0xffff).min(SOCKADDR), 0, false);
        }
        // Above.
        Opcode::Readv | Opcode::Writev | Opcode::ReadvFixed | Opcode::WritevFixed => {}
        Opcode::Sendmsg | Opcode::Recvmsg | Opcode::SendmsgZc => {}
        Opcode::Connect | Opcode::Bind => {
            let bytes = entry.off as usize;
            place(argument::ADDRESS, entry.addr, bytes.min(SOCKADDR), bytes, false);
        }
        Opcode::Timeout | Opcode::LinkTimeout => place(argument::STRUCT, entry.addr, TIMESPEC, TIMESPEC, false),
        Opcode::TimeoutRemove => place(argument::STRUCT, entry.addr2(), TIMESPEC, TIMESPEC, false),
        Opcode::EpollCtl => place(argument::STRUCT, entry.addr, EPOLL_EVENT, EPOLL_EVENT, false),
        Opcode::FutexWaitv => place(argument::STRUCT, entry.addr, len.min(ELEMENTS) * FUTEX_WAITV, len, false),
        Opcode::FilesUpdate => place(argument::STRUCT, entry.addr, len.min(ELEMENTS) * size_of::<i32>(), len, false),
        // What they point to is not recorded, or nothing.
        Opcode::Nop | Opcode::Fsync | Opcode::ReadFixed | Opcode::PollAdd | Opcode::PollRemove | Opcode::SyncFileRange => {}
        Opcode::Accept | Opcode::AsyncCancel | Opcode::Fallocate | Opcode::Close | Opcode::Read | Opcode::Fadvise => {}
        Opcode::Madvise | Opcode::Recv | Opcode::Splice | Opcode::ProvideBuffers | Opcode::RemoveBuffers | Opcode::Tee => {}
        Opcode::Shutdown | Opcode::MsgRing | Opcode::Socket | Opcode::UringCmd | Opcode::ReadMultishot => {}
        Opcode::Waitid | Opcode::FutexWait | Opcode::FutexWake | Opcode::FixedFdInstall | Opcode::Ftruncate => {}
        Opcode::Listen | Opcode::RecvZc | Opcode::EpollWait | Opcode::Pipe | Opcode::Nop128 | Opcode::UringCmd128 => {}
    }
}

/// An array of iovecs and the first `limit` bytes that they hold.
fn vector(addr: u64, count: usize, limit: usize, record: &mut impl FnMut(DataPlace) -> bool) {
    if addr == 0 || count == 0 {
        return;
    }
    let at = UserPtr::at(addr);
    let len = count.min(ELEMENTS) * IOVEC;
    let is_there = record(DataPlace { argument: argument::IOVECS, at, len, before: 0, total: count, is_text: false });
    if is_there && limit > 0 {
        let first = FirstIovecs::read(at, count);
        first.places(argument::BUFFER, limit, first.bytes(), record);
    }
}

/// A message's header, the address that it is for, and its bytes.
fn message(addr: u64, limit: usize, record: &mut impl FnMut(DataPlace) -> bool) {
    let at = UserPtr::at(addr);
    let Ok(header) = user::read::<Msghdr>(at) else { return };
    record(DataPlace { argument: argument::STRUCT, at, len: MSGHDR, before: 0, total: MSGHDR, is_text: false });
    let name_len = (header.namelen as usize).min(SOCKADDR);
    if limit > 0 && header.name != 0 && name_len > 0 {
        let at = UserPtr::at(header.name);
        record(DataPlace { argument: argument::ADDRESS, at, len: name_len, before: 0, total: name_len, is_text: false });
    }
    vector(header.iov, size_of_word(header.iovlen), limit, record);
}
