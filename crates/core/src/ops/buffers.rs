//! `IORING_OP_PROVIDE_BUFFERS, REMOVE_BUFFERS, FILES_UPDATE`: changes of the ring's own tables.
//! Source:  io_uring_enter(2), io_uring_register(2); behaviour of Linux 6.18 io_uring/kbuf.c,
//!          rsrc.c (not their code).
//! Issue:   completes inline, under the ring's lock. Units: len in bytes, fd = number of buffers.
//! Errors:  EINVAL bad fields; E2BIG too many buffers; EOVERFLOW full list or wrapping addresses;
//!          ENOENT; ENXIO no file table.
//! Differs: the tag of a replaced file is posted at once, even while requests still use the file.
//! Tests:   liburing buf-ring.t, file-update.t; ours net_ops (buffers, files); unit tests here and
//!          in rsrc/buf_ring.rs.

use super::issue::{Issue, OpFamily, PrepCx, unused};
use super::outcome::Outcome;
use crate::ring_resources::RingResources;
use crate::rsrc::buf_ring::{BufGroups, SelectedBuf};
use crate::rsrc::files::FileNode;
use crate::virtual_file::{is_file_of_program, own_duplicate};
use alloc::sync::Arc;
use uringlet_abi::register::FILES_SKIP;
use uringlet_abi::{FILE_INDEX_ALLOC, Sqe, sqe};
use uringlet_sys::fd::EngineFd;
use uringlet_sys::{Errno, UserPtr, fd_table, user};

/// Most buffers that one request names: as many as there are ids.
const MAX_BUFFERS: i32 = 1 << 16;
/// The end of a program's address space (TASK_SIZE_MAX).
const ADDRESSES_END: u64 = 0x7fff_ffff_f000;

/// A validated request of this family.
#[derive(Debug)]
pub(crate) enum BuffersOp {
    Provide { group: u16, addr: u64, len: u32, n: u32, bid: u16 },
    Remove { group: u16, n: u32 },
    FilesUpdate { offset: u32, fds: u64, n: u32 },
}

pub(crate) fn prep_provide(sqe: &Sqe, _: &PrepCx) -> Result<BuffersOp, Errno> {
    unused(&[sqe.op_flags.into(), sqe.splice_fd_in as u64])?;
    if !(1..=MAX_BUFFERS).contains(&sqe.fd) {
        return Err(Errno::E2BIG);
    }
    if sqe.len == 0 {
        return Err(Errno::EINVAL);
    }
    let n = sqe.fd as u32;
    let end = sqe.addr.checked_add(u64::from(n) * u64::from(sqe.len)).ok_or(Errno::EOVERFLOW)?;
    if end > ADDRESSES_END {
        return Err(Errno::EFAULT);
    }
    let bid = u16::try_from(sqe.off).map_err(|_| Errno::E2BIG)?;
    if u32::from(bid) + n > MAX_BUFFERS as u32 {
        return Err(Errno::EINVAL);
    }
    Ok(BuffersOp::Provide { group: sqe.buf_group(), addr: sqe.addr, len: sqe.len, n, bid })
}

pub(crate) fn prep_remove(sqe: &Sqe, _: &PrepCx) -> Result<BuffersOp, Errno> {
    unused(&[sqe.op_flags.into(), sqe.addr, sqe.len.into(), sqe.off, sqe.splice_fd_in as u64])?;
    if !(1..=MAX_BUFFERS).contains(&sqe.fd) {
        return Err(Errno::EINVAL);
    }
    Ok(BuffersOp::Remove { group: sqe.buf_group(), n: sqe.fd as u32 })
}

pub(crate) fn prep_files_update(sqe: &Sqe, cx: &PrepCx) -> Result<BuffersOp, Errno> {
    if cx.sqe_flags & (sqe::FIXED_FILE | sqe::BUFFER_SELECT) != 0 || sqe.len == 0 {
        return Err(Errno::EINVAL);
    }
    unused(&[sqe.op_flags.into(), sqe.splice_fd_in as u64])?;
    Ok(BuffersOp::FilesUpdate { offset: sqe.off as u32, fds: sqe.addr, n: sqe.len })
}

impl OpFamily for BuffersOp {}

impl BuffersOp {
    /// Runs the operation, under the ring's lock.
    pub(crate) fn act(&mut self, ring: &mut RingResources) -> Outcome {
        let result = match *self {
            Self::Provide { group, addr, len, n, bid } => ring.buf_groups.provide(group, addr, len, n, bid).map(|()| 0),
            Self::Remove { group, n } => ring.buf_groups.remove(group, n).map(|n| n as usize),
            Self::FilesUpdate { offset: FILE_INDEX_ALLOC, fds, n } => allocate_files(ring, UserPtr::at(fds), n),
            Self::FilesUpdate { offset, fds, n } => update_files(ring, offset, UserPtr::at(fds), UserPtr::NULL, n),
        };
        result.into()
    }
}

/// Decides about the selected buffer after a try under the ring's lock: a completion uses it, a
/// request that waits returns it to its group, and a request that goes on without the lock or has
/// filled a part keeps it.
pub(super) fn commit_or_recycle(groups: &mut BufGroups, selected: &mut Option<SelectedBuf>, issue: &mut Issue, is_partly_done: bool) {
    let Some(mut buffer) = selected.take() else { return };
    match issue {
        Issue::Complete(outcome) | Issue::More(outcome) => outcome.flags |= groups.put(buffer),
        Issue::WouldBlock(_) | Issue::PollFirst(_) if !is_partly_done => {
            groups.put(buffer);
        }
        _ => {
            groups.commit(&mut buffer);
            *selected = Some(buffer);
        }
    }
}

/// Replaces registered files from slot `offset` on by the descriptors at `fds` (-1: none,
/// `FILES_SKIP`: unchanged), with the tags at `tags` if there are any. Returns how many were done;
/// an error only if the first one failed.
///
/// # Errors
/// `ENXIO` no file table; `EINVAL` outside of it, or a tag for no file; `EOVERFLOW`; `EFAULT`;
/// `EBADF`.
pub(crate) fn update_files(ring: &mut RingResources, offset: u32, fds: UserPtr, tags: UserPtr, n: u32) -> Result<usize, Errno> {
    let end = offset.checked_add(n).ok_or(Errno::EOVERFLOW)?;
    if !ring.files.is_registered {
        return Err(Errno::ENXIO);
    }
    if end > ring.files.len() {
        return Err(Errno::EINVAL);
    }
    as_many_as_went_well(n, |done| {
        let tag = if tags.is_null() { 0 } else { user::read::<u64>(tags.add(done * size_of::<u64>()))? };
        let fd: i32 = user::read(fds.add(done * size_of::<i32>()))?;
        update_file(ring, offset + done as u32, fd, tag)
    })
}

fn update_file(ring: &mut RingResources, slot: u32, fd: i32, tag: u64) -> Result<(), Errno> {
    if (fd == FILES_SKIP || fd == -1) && tag != 0 {
        return Err(Errno::EINVAL);
    }
    if fd == FILES_SKIP {
        return Ok(());
    }
    // The slot becomes empty even if the new descriptor is bad.
    let old = ring.files.replace(slot, None)?;
    release(ring, old);
    if fd != -1 {
        let node = FileNode { fd: registrable(fd)?, tag };
        ring.files.replace(slot, Some(Arc::new(node)))?;
    }
    Ok(())
}

/// Duplicates a descriptor of the program for registration.
///
/// # Errors
/// `EBADF` it cannot be registered; `EMFILE`.
pub(crate) fn registrable(fd: i32) -> Result<EngineFd, Errno> {
    if may_be_registered(fd) { own_duplicate(fd) } else { Err(Errno::EBADF) }
}

/// A ring cannot hold a ring.
fn may_be_registered(fd: i32) -> bool {
    fd_table::ring_index(fd).is_none() && is_file_of_program(fd)
}

/// Registers the descriptors at `fds` in free slots, and overwrites them with the slots.
fn allocate_files(ring: &mut RingResources, fds: UserPtr, n: u32) -> Result<usize, Errno> {
    if !ring.files.is_registered {
        return Err(Errno::ENXIO);
    }
    as_many_as_went_well(n, |done| {
        let place = fds.add(done * size_of::<i32>());
        let fd: i32 = user::read(place)?;
        // install_fd closes the number that it is given, so it gets a duplicate.
        let (slot, old) = ring.files.install_fd(duplicate(fd)?, FILE_INDEX_ALLOC)?;
        release(ring, old);
        user::write(place, &(slot as i32)).inspect_err(|_| {
            let unwritten = ring.files.replace(slot, None).ok().flatten();
            release(ring, unwritten);
        })
    })
}

fn duplicate(fd: i32) -> Result<i32, Errno> {
    if may_be_registered(fd) { uringlet_sys::io::dup_cloexec(fd).map(|fd| fd as i32) } else { Err(Errno::EBADF) }
}

fn as_many_as_went_well(n: u32, mut one: impl FnMut(usize) -> Result<(), Errno>) -> Result<usize, Errno> {
    for done in 0..n as usize {
        match one(done) {
            Ok(()) => {}
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => return Ok(done),
        }
    }
    Ok(n as usize)
}

/// Ends the registration of a file.
pub(crate) fn release(ring: &mut RingResources, node: Option<Arc<FileNode>>) {
    if let Some(node) = node {
        ring.release_file(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CX: PrepCx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };

    fn errno(prep: fn(&Sqe, &PrepCx) -> Result<BuffersOp, Errno>, sqe: &Sqe) -> Option<Errno> {
        prep(sqe, &CX).err()
    }

    #[test]
    fn provided_buffers_are_checked_as_the_kernel_does() {
        let good = Sqe { fd: 4, addr: 0x1000, len: 100, ..Sqe::default() };
        assert_eq!(errno(prep_provide, &good), None);
        let table = [
            (Sqe { fd: 0, ..good }, Errno::E2BIG),
            (Sqe { fd: -1, ..good }, Errno::E2BIG),
            (Sqe { fd: 65537, ..good }, Errno::E2BIG),
            (Sqe { len: 0, ..good }, Errno::EINVAL),
            (Sqe { off: 65536, ..good }, Errno::E2BIG),
            (Sqe { off: 65535, ..good }, Errno::EINVAL),
            (Sqe { op_flags: 1, ..good }, Errno::EINVAL),
            (Sqe { splice_fd_in: 1, ..good }, Errno::EINVAL),
            (Sqe { addr: u64::MAX, ..good }, Errno::EOVERFLOW),
            (Sqe { addr: 0xffff_8000_0000_0000, ..good }, Errno::EFAULT),
        ];
        for (sqe, expected) in table {
            assert_eq!(errno(prep_provide, &sqe), Some(expected), "{sqe:?}");
        }
        assert_eq!(errno(prep_provide, &Sqe { fd: 65536, len: 1, ..good }), None);
    }

    #[test]
    fn removal_takes_only_a_count() {
        let good = Sqe { fd: 65536, ..Sqe::default() };
        assert_eq!(errno(prep_remove, &good), None);
        for sqe in [
            Sqe { fd: 0, ..good },
            Sqe { fd: 65537, ..good },
            Sqe { addr: 1, ..good },
            Sqe { len: 1, ..good },
            Sqe { off: 1, ..good },
            Sqe { op_flags: 1, ..good },
        ] {
            assert_eq!(errno(prep_remove, &sqe), Some(Errno::EINVAL), "{sqe:?}");
        }
    }

    #[test]
    fn updates_that_fail_later_return_the_count_before() {
        let upto = |limit| move |i| if i < limit { Ok(()) } else { Err(Errno::EBADF) };
        assert_eq!(as_many_as_went_well(3, upto(3)), Ok(3));
        assert_eq!(as_many_as_went_well(3, upto(2)), Ok(2));
        assert_eq!(as_many_as_went_well(3, upto(0)), Err(Errno::EBADF));
    }
}
