//! `IORING_REGISTER_ZCRX_IFQ, ZCRX_CTRL`: zero-copy receive. Only instances without a device
//! (`ZCRX_REG_NODEV`) can be had, whose data is copied.
//! Source:  the kernel's Documentation/networking/iou-zcrx.rst; behaviour of Linux 7.1 (not its
//!          code).
//! Differs: an instance without a device needs no CAP_NET_ADMIN: it sees no other data than the
//!          program's own sockets have. Its memory is not pinned. Every network device is missing.
//!          The descriptor of an exported instance is known to its process and to forked children,
//!          and can be read and written, as an empty file.

use super::wait_args::region;
use crate::rsrc::zcrx::{BUFFER, RefillRing, SharedZcrx, ZcrxInstance};
use crate::state::UringGuard;
use crate::virtual_file::{self, PendingCmd, UringCmd, VirtualFile};
use alloc::sync::Arc;
use core::any::Any;
use uringlet_abi::register::{
    MEM_REGION_TYPE_USER, RegionDesc, ZCRX_AREA_DMABUF, ZCRX_CTRL_EXPORT, ZCRX_CTRL_FLUSH_RQ, ZCRX_REG_IMPORT, ZCRX_REG_NODEV, ZcrxArea,
    ZcrxControl, ZcrxReg,
};
use uringlet_abi::{layout, setup};
use uringlet_sys::linux::general::{CAP_NET_ADMIN, MFD_CLOEXEC};
use uringlet_sys::lock::Mutex;
use uringlet_sys::process::has_capability;
use uringlet_sys::{Errno, UserPtr, io, user};

/// Most entries of a refill ring.
const MAX_ENTRIES: u32 = 32768;

/// # Errors
/// `EINVAL` another kind of ring, malformed fields; `EPERM`, `ENODEV` a network device;
/// `EOPNOTSUPP` another size of buffers; `EFAULT`, `EOVERFLOW`, `E2BIG`, `ENOMEM` the memory.
pub(super) fn register(guard: &mut UringGuard, arg: UserPtr) -> Result<usize, Errno> {
    check_ring(guard.res.setup)?;
    let mut reg: ZcrxReg = user::read(arg)?;
    if reg.flags & (ZCRX_REG_NODEV | ZCRX_REG_IMPORT) == 0 && !has_capability(CAP_NET_ADMIN) {
        return Err(Errno::EPERM);
    }
    if reg.resv != [0; 3] || reg.zcrx_id != 0 || reg.flags & !(ZCRX_REG_NODEV | ZCRX_REG_IMPORT) != 0 {
        return Err(Errno::EINVAL);
    }
    if reg.flags & ZCRX_REG_IMPORT != 0 {
        return import(guard, arg, reg);
    }
    let (region_at, area_at) = (UserPtr::at(reg.region_ptr), UserPtr::at(reg.area_ptr));
    let mut desc: RegionDesc = user::read(region_at)?;
    reg.rq_entries = entries(&reg, guard.res.setup & setup::CLAMP != 0)?;
    let mut area: ZcrxArea = user::read(area_at)?;
    let refill = refill_ring(&mut reg, &mut desc, guard.res.zcrx.next_id())?;
    if reg.flags & ZCRX_REG_NODEV == 0 {
        return Err(Errno::ENODEV);
    }
    let buffers = check_area(&reg, &area)?;
    area.rq_area_token = 0;
    (reg.zcrx_id, reg.rx_buf_len) = (guard.res.zcrx.next_id(), BUFFER);
    let instance = ZcrxInstance::new(UserPtr::at(area.addr), buffers, refill);
    user::write(arg, &reg)?;
    user::write(region_at, &desc)?;
    user::write(area_at, &area)?;
    guard.res.zcrx.push(Arc::new(Mutex::new(instance)));
    Ok(0)
}

/// Adds an instance that a ring has exported.
///
/// # Errors
/// `EINVAL` what describes a new one is set; `EBADF` no descriptor of an instance; `EFAULT`.
fn import(guard: &mut UringGuard, arg: UserPtr, mut reg: ZcrxReg) -> Result<usize, Errno> {
    let describes_new = reg.if_rxq != 0 || reg.rq_entries != 0 || reg.area_ptr != 0 || reg.region_ptr != 0;
    if describes_new || reg.flags != ZCRX_REG_IMPORT {
        return Err(Errno::EINVAL);
    }
    let file = virtual_file::get(reg.if_idx.cast_signed()).ok_or(Errno::EBADF)?;
    let exported = file.as_any().and_then(|file| file.downcast_ref::<ExportedZcrx>()).ok_or(Errno::EBADF)?;
    reg.zcrx_id = guard.res.zcrx.next_id();
    set_offsets(&mut reg);
    user::write(arg, &reg)?;
    guard.res.zcrx.push(Arc::clone(&exported.shared));
    Ok(0)
}

fn set_offsets(reg: &mut ZcrxReg) {
    (reg.offsets.head, reg.offsets.tail, reg.offsets.rqes) = (layout::ZCRX_HEAD, layout::ZCRX_TAIL, layout::ZCRX_RQES);
}

fn check_ring(flags: u32) -> Result<(), Errno> {
    let is_right = flags & setup::DEFER_TASKRUN != 0 && flags & (setup::CQE32 | setup::CQE_MIXED) != 0;
    if is_right { Ok(()) } else { Err(Errno::EINVAL) }
}

/// The number of entries that the refill ring gets.
fn entries(reg: &ZcrxReg, may_clamp: bool) -> Result<u32, Errno> {
    let is_nodev = reg.flags & ZCRX_REG_NODEV != 0;
    let names_device = reg.if_rxq != 0 || reg.if_idx != 0;
    let is_too_many = reg.rq_entries > MAX_ENTRIES && !may_clamp;
    if reg.if_rxq == u32::MAX || reg.rq_entries == 0 || is_nodev && names_device || is_too_many {
        return Err(Errno::EINVAL);
    }
    Ok(reg.rq_entries.min(MAX_ENTRIES).next_power_of_two())
}

fn refill_ring(reg: &mut ZcrxReg, desc: &mut RegionDesc, id: u32) -> Result<RefillRing, Errno> {
    set_offsets(reg);
    let size = u64::from(layout::ZCRX_RQES) + u64::from(reg.rq_entries) * u64::from(layout::ZCRX_RQE);
    if size > desc.size {
        return Err(Errno::EINVAL);
    }
    let memory = region(desc)?;
    if desc.flags & MEM_REGION_TYPE_USER == 0 {
        desc.mmap_offset = layout::OFF_ZCRX_REGION + (u64::from(id) << layout::OFF_ZCRX_SHIFT);
    }
    Ok(RefillRing::new(memory, reg.rq_entries))
}

/// The number of buffers in an area.
fn check_area(reg: &ZcrxReg, area: &ZcrxArea) -> Result<u32, Errno> {
    const MAX_AREA: u64 = 1 << 30;
    let page = u64::from(BUFFER);
    match reg.rx_buf_len {
        0 | BUFFER => {}
        len if !len.is_power_of_two() || len < BUFFER => return Err(Errno::EINVAL),
        // Copies use buffers of one page.
        _ => return Err(Errno::EOPNOTSUPP),
    }
    if area.flags & !ZCRX_AREA_DMABUF != 0 || area.rq_area_token != 0 || area.resv != [0; 2] {
        return Err(Errno::EINVAL);
    }
    if area.len == 0 || area.len > MAX_AREA {
        return Err(Errno::EFAULT);
    }
    area.addr.checked_add(area.len.next_multiple_of(page)).ok_or(Errno::EOVERFLOW)?;
    let is_unaligned = !(area.addr | area.len).is_multiple_of(page);
    // Only a device has memory behind a descriptor.
    if is_unaligned || area.flags & ZCRX_AREA_DMABUF != 0 || area.dmabuf_fd != 0 {
        return Err(Errno::EINVAL);
    }
    let len = usize::try_from(area.len).map_err(|_| Errno::EFAULT)?;
    if area.addr == 0 || !user::populate(UserPtr::at(area.addr), len) {
        return Err(Errno::EFAULT);
    }
    u32::try_from(area.len / page).map_err(|_| Errno::EFAULT)
}

/// # Errors
/// `EINVAL` a number of arguments, reserved fields; `ENXIO` no such instance; `EOPNOTSUPP` another
/// operation; `EFAULT` the argument, or reserved fields before the operation's own.
pub(super) fn control(guard: &mut UringGuard, arg: UserPtr, n: u32) -> Result<usize, Errno> {
    if n != 0 {
        return Err(Errno::EINVAL);
    }
    let control: ZcrxControl = user::read(arg)?;
    if control.resv != [0; 2] {
        return Err(Errno::EFAULT);
    }
    let shared = guard.res.zcrx.get(control.zcrx_id).ok_or(Errno::ENXIO)?;
    match control.op {
        ZCRX_CTRL_FLUSH_RQ | ZCRX_CTRL_EXPORT if control.args != [0; 6] => Err(Errno::EINVAL),
        ZCRX_CTRL_FLUSH_RQ => shared.lock().refill().map(|()| 0),
        ZCRX_CTRL_EXPORT => export(shared, arg, control),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Makes a descriptor by which other rings import an instance.
///
/// # Errors
/// `EFAULT`; those of memfd_create(2).
fn export(shared: SharedZcrx, arg: UserPtr, mut control: ZcrxControl) -> Result<usize, Errno> {
    let fd = io::number_of(io::memfd_create(io::ptr_of_slice(b"[zcrx]\0"), MFD_CLOEXEC)?);
    control.args[0] = u64::from(fd.cast_unsigned());
    if let Err(errno) = user::write(arg, &control) {
        let _ = io::close(fd);
        return Err(errno);
    }
    virtual_file::register(fd, Arc::new(ExportedZcrx { shared }));
    Ok(0)
}

/// The file behind such a descriptor.
#[derive(Debug)]
struct ExportedZcrx {
    shared: SharedZcrx,
}

impl VirtualFile for ExportedZcrx {
    fn may_sleep(&self, _: &UringCmd) -> bool {
        false
    }

    fn start(&self, cmd: &UringCmd, pending: PendingCmd) {
        pending.complete(self.run(cmd));
    }

    /// It takes no commands.
    fn run(&self, _: &UringCmd) -> i32 {
        -Errno::EOPNOTSUPP.into_raw()
    }

    fn cancel(&self, _: &UringCmd) {}

    fn check_mmap(&self, _: u32, _: u64, _: usize) -> Result<(), Errno> {
        Err(Errno::ENODEV)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
