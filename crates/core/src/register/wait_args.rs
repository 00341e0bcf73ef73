//! `IORING_REGISTER_CLOCK, MEM_REGION`: the clock of waits, and memory for their arguments.
//! Source:  io_uring_register(2); behaviour of Linux 6.18 (not its code).
//! Differs: memory that the program supplies is not pinned: a wait with arguments in memory that it
//!          has unmapped answers EFAULT.

use crate::state::UringGuard;
use uringlet_abi::layout;
use uringlet_abi::register::{ClockReg, MEM_REGION_TYPE_USER, MEM_REGION_WAIT_ARG, MemRegion, RegionDesc};
use uringlet_sys::process::ClockId;
use uringlet_sys::ring_memory::RegionMemory;
use uringlet_sys::{Errno, UserPtr, user};

const PAGE: u64 = 4096;

/// # Errors
/// `EINVAL` another clock, or reserved fields; `EFAULT`.
pub(super) fn register_clock(guard: &mut UringGuard, arg: UserPtr, n: u32) -> Result<usize, Errno> {
    const CLOCK_MONOTONIC: u32 = 1;
    const CLOCK_BOOTTIME: u32 = 7;
    if arg.is_null() || n != 0 {
        return Err(Errno::EINVAL);
    }
    let clock: ClockReg = user::read(arg)?;
    if clock.resv != [0; 3] {
        return Err(Errno::EINVAL);
    }
    guard.wait_args.clock = match clock.clockid {
        CLOCK_MONOTONIC => ClockId::Monotonic,
        CLOCK_BOOTTIME => ClockId::Boottime,
        _ => return Err(Errno::EINVAL),
    };
    Ok(0)
}

/// # Errors
/// `EBUSY` there is a region; `EINVAL` unknown flags, reserved fields, no pages, or arguments of
/// waits on a ring that is enabled; `EFAULT`, `EOVERFLOW`, `ENOMEM`.
pub(super) fn register_region(guard: &mut UringGuard, arg: UserPtr) -> Result<usize, Errno> {
    if guard.wait_args.region.is_some() {
        return Err(Errno::EBUSY);
    }
    let spec: MemRegion = user::read(arg)?;
    let desc_at = UserPtr::at(spec.region_uptr);
    let mut desc: RegionDesc = user::read(desc_at)?;
    let is_for_waits = spec.flags & MEM_REGION_WAIT_ARG != 0;
    if spec.resv != [0; 2] || spec.flags & !MEM_REGION_WAIT_ARG != 0 || (is_for_waits && !guard.is_disabled) {
        return Err(Errno::EINVAL);
    }
    let region = region(&desc)?;
    if desc.flags & MEM_REGION_TYPE_USER == 0 {
        desc.mmap_offset = layout::OFF_PARAM_REGION;
    }
    user::write(desc_at, &desc)?;
    guard.wait_args.len = if is_for_waits { desc.size } else { 0 };
    guard.wait_args.region = Some(region);
    Ok(0)
}

/// The memory that a program describes.
///
/// # Errors
/// `EINVAL` unknown flags, reserved fields, no pages; `EFAULT`, `EOVERFLOW`, `E2BIG`, `ENOMEM`.
pub(super) fn region(desc: &RegionDesc) -> Result<RegionMemory, Errno> {
    let is_user = desc.flags & MEM_REGION_TYPE_USER != 0;
    if desc.resv != [0; 4] || desc.flags & !MEM_REGION_TYPE_USER != 0 {
        return Err(Errno::EINVAL);
    }
    if is_user != (desc.user_addr != 0) {
        return Err(Errno::EFAULT);
    }
    if desc.size == 0 || desc.mmap_offset != 0 || desc.id != 0 {
        return Err(Errno::EINVAL);
    }
    if desc.size / PAGE > i32::MAX as u64 {
        return Err(Errno::E2BIG);
    }
    if !(desc.user_addr | desc.size).is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    desc.user_addr.checked_add(desc.size).ok_or(Errno::EOVERFLOW)?;
    let len = usize::try_from(desc.size).map_err(|_| Errno::ENOMEM)?;
    if is_user { RegionMemory::from_user(UserPtr::at(desc.user_addr), len) } else { RegionMemory::new(len) }
}
