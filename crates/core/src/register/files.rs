//! Registered files and buffers, with and without tags, and their updates.

use crate::ops::buffers as op;
use crate::rsrc::buffers::{self, BufferNode};
use crate::rsrc::files::FileNode;
use crate::state::UringGuard;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use uringlet_abi::register::{FileIndexRange, FilesUpdate, Iovec, RSRC_SPARSE, RsrcRegister, RsrcUpdate2};
use uringlet_sys::pinning::PinnableMemory;
use uringlet_sys::{Errno, UserPtr, process, reserve, user};

/// Most files a ring can have.
const MAX_FILES: u32 = 1 << 20;
const EMPTY: i32 = -1;
const PAGE: u64 = 4096;

/// The table to register in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceKind {
    Files,
    Buffers,
}

pub(super) fn register_files(guard: &mut UringGuard, fds: UserPtr, n: u32, tags: UserPtr) -> Result<usize, Errno> {
    if guard.res.files.is_registered {
        return Err(Errno::EBUSY);
    }
    if n == 0 {
        return Err(Errno::EINVAL);
    }
    if n > MAX_FILES || u64::from(n) > process::rlimit_nofile() {
        return Err(Errno::EMFILE);
    }
    reserve::ensure_block(n as usize * size_of::<u64>())?;
    let mut slots = Vec::with_capacity(n as usize);
    for (i, tag) in read_tags(tags, n)?.into_iter().enumerate() {
        let fd = if fds.is_null() { EMPTY } else { user::read(fds.add(i * 4))? };
        slots.push(file_slot(fd, tag)?);
    }
    guard.res.files.install(slots);
    guard.res.has_nodes = true;
    Ok(0)
}

fn file_slot(fd: i32, tag: u64) -> Result<Option<Arc<FileNode>>, Errno> {
    if fd == EMPTY {
        return if tag == 0 { Ok(None) } else { Err(Errno::EINVAL) };
    }
    Ok(Some(Arc::new(FileNode { fd: op::registrable(fd)?, tag })))
}

/// `n` tags; all zero if the caller passed none.
fn read_tags(tags: UserPtr, n: u32) -> Result<Vec<u64>, Errno> {
    let mut list = vec![0_u64; n as usize];
    if !tags.is_null() {
        user::read_slice(&mut list, tags)?;
    }
    Ok(list)
}

pub(super) fn unregister_files(guard: &mut UringGuard) -> Result<usize, Errno> {
    if !guard.res.files.is_registered {
        return Err(Errno::ENXIO);
    }
    for node in guard.res.files.remove_all().into_iter().flatten() {
        guard.res.release_file(node);
    }
    Ok(0)
}

pub(super) fn update_files(guard: &mut UringGuard, arg: UserPtr, n: u32) -> Result<usize, Errno> {
    if n == 0 {
        return Err(Errno::EINVAL);
    }
    let update: FilesUpdate = user::read(arg)?;
    if update.resv != 0 {
        return Err(Errno::EINVAL);
    }
    if !guard.res.files.is_registered {
        return Err(Errno::ENXIO);
    }
    op::update_files(&mut guard.res, update.offset, UserPtr::at(update.fds), UserPtr::NULL, n)
}

pub(super) fn set_alloc_range(guard: &mut UringGuard, arg: UserPtr, n: u32) -> Result<usize, Errno> {
    if arg.is_null() || n != 0 {
        return Err(Errno::EINVAL);
    }
    let range: FileIndexRange = user::read(arg)?;
    let end = range.off.checked_add(range.len).ok_or(Errno::EOVERFLOW)?;
    if range.resv != 0 || end > guard.res.files.len() {
        return Err(Errno::EINVAL);
    }
    guard.res.files.set_alloc_range(range.off..end);
    Ok(0)
}

pub(super) fn register_buffers(guard: &mut UringGuard, iovecs: UserPtr, n: u32, tags: UserPtr) -> Result<usize, Errno> {
    if guard.res.buffers.is_registered {
        return Err(Errno::EBUSY);
    }
    if n == 0 || n > buffers::MAX {
        return Err(Errno::EINVAL);
    }
    reserve::ensure_block(n as usize * size_of::<Iovec>())?;
    let mut list = vec![Iovec::default(); n as usize];
    if !iovecs.is_null() {
        user::read_slice(&mut list, iovecs)?;
    }
    let tags = read_tags(tags, n)?;
    let mut memory = PinnableMemory::open();
    let slots = list.iter().zip(tags).map(|(&iovec, tag)| buffer_slot(&mut memory, iovec, tag)).collect::<Result<_, _>>()?;
    guard.res.buffers.install(slots);
    guard.res.has_nodes = true;
    Ok(0)
}

/// Faults the buffer in for writing, which fails where the kernel's pinning would.
fn buffer_slot(memory: &mut PinnableMemory, iovec: Iovec, tag: u64) -> Result<Option<Arc<BufferNode>>, Errno> {
    if i64::try_from(iovec.len).is_err() {
        return Err(Errno::EINVAL);
    }
    if iovec.base == 0 {
        return if iovec.len == 0 && tag == 0 {
            Ok(None)
        } else if iovec.len == 0 {
            Err(Errno::EINVAL)
        } else {
            Err(Errno::EFAULT)
        };
    }
    if iovec.len == 0 || iovec.len > buffers::MAX_LEN {
        return Err(Errno::EFAULT);
    }
    iovec.base.checked_add(iovec.len + PAGE - 1).ok_or(Errno::EOVERFLOW)?;
    if !memory.contains(iovec.base, iovec.len) || !user::populate(UserPtr::at(iovec.base), iovec.len as usize) {
        return Err(Errno::EFAULT);
    }
    Ok(Some(Arc::new(BufferNode { base: iovec.base, len: iovec.len, tag })))
}

pub(super) fn unregister_buffers(guard: &mut UringGuard) -> Result<usize, Errno> {
    if !guard.res.buffers.is_registered {
        return Err(Errno::ENXIO);
    }
    for node in guard.res.buffers.remove_all().into_iter().flatten() {
        guard.res.release_buffer(node);
    }
    Ok(0)
}

/// `IORING_REGISTER_FILES2`, `IORING_REGISTER_BUFFERS2`: with tags, or empty.
pub(super) fn register_resources(guard: &mut UringGuard, arg: UserPtr, size: u32, kind: ResourceKind) -> Result<usize, Errno> {
    if size as usize != size_of::<RsrcRegister>() {
        return Err(Errno::EINVAL);
    }
    let spec: RsrcRegister = user::read(arg)?;
    let is_sparse = spec.flags & RSRC_SPARSE != 0;
    if spec.nr == 0 || spec.resv2 != 0 || spec.flags & !RSRC_SPARSE != 0 || (is_sparse && spec.data != 0) {
        return Err(Errno::EINVAL);
    }
    let (data, tags) = (UserPtr::at(spec.data), UserPtr::at(spec.tags));
    match kind {
        ResourceKind::Files => register_files(guard, data, spec.nr, tags),
        ResourceKind::Buffers => register_buffers(guard, data, spec.nr, tags),
    }
}

/// `IORING_REGISTER_FILES_UPDATE2`, `IORING_REGISTER_BUFFERS_UPDATE`; how many slots were updated.
pub(super) fn update_resources(guard: &mut UringGuard, arg: UserPtr, size: u32, kind: ResourceKind) -> Result<usize, Errno> {
    if size as usize != size_of::<RsrcUpdate2>() {
        return Err(Errno::EINVAL);
    }
    let update: RsrcUpdate2 = user::read(arg)?;
    if update.nr == 0 || update.resv != 0 || update.resv2 != 0 {
        return Err(Errno::EINVAL);
    }
    let (data, tags) = (UserPtr::at(update.data), UserPtr::at(update.tags));
    match kind {
        ResourceKind::Files if !guard.res.files.is_registered => Err(Errno::ENXIO),
        ResourceKind::Files => op::update_files(&mut guard.res, update.offset, data, tags, update.nr),
        ResourceKind::Buffers => update_buffers(guard, update.offset, data, tags, update.nr),
    }
}

fn update_buffers(guard: &mut UringGuard, offset: u32, data: UserPtr, tags: UserPtr, n: u32) -> Result<usize, Errno> {
    if !guard.res.buffers.is_registered {
        return Err(Errno::ENXIO);
    }
    let end = offset.checked_add(n).ok_or(Errno::EOVERFLOW)?;
    if end > guard.res.buffers.len() {
        return Err(Errno::EINVAL);
    }
    let mut memory = PinnableMemory::open();
    let mut done = 0;
    for slot in offset..end {
        match update_buffer(guard, &mut memory, slot, (data, tags), done) {
            Ok(()) => done += 1,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn update_buffer(
    guard: &mut UringGuard,
    memory: &mut PinnableMemory,
    slot: u32,
    (data, tags): (UserPtr, UserPtr),
    i: usize,
) -> Result<(), Errno> {
    let iovec: Iovec = user::read(data.add(i * size_of::<Iovec>()))?;
    let tag: u64 = if tags.is_null() { 0 } else { user::read(tags.add(i * 8))? };
    let buffer = buffer_slot(memory, iovec, tag)?;
    if let Some(old) = guard.res.buffers.replace(slot, buffer) {
        guard.res.release_buffer(old);
    }
    Ok(())
}
