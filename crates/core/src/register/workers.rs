//! io-wq's settings: `IORING_REGISTER_IOWQ_AFF`, `IORING_REGISTER_IOWQ_MAX_WORKERS`.

use crate::io_wq::CpuMask;
use crate::state::UringGuard;
use uringlet_sys::{Errno, UserPtr, process, user};

pub(super) fn set_affinity(guard: &mut UringGuard, arg: UserPtr, len: u32) -> Result<usize, Errno> {
    if arg.is_null() || len == 0 {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0_u8; 128];
    let n = (len as usize).min(process::cpu_set_len());
    user::read_slice(&mut bytes[..n], arg)?;
    let mask: [u64; 16] = core::array::from_fn(|i| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[i * 8..][..8]);
        u64::from_le_bytes(word)
    });
    set(guard, Some(mask));
    Ok(0)
}

pub(super) fn clear_affinity(guard: &mut UringGuard) -> usize {
    set(guard, None);
    0
}

fn set(guard: &mut UringGuard, mask: Option<CpuMask>) {
    guard.io_wq.set_affinity(mask);
    if let Some(workers) = &guard.uringlet_workers {
        workers.pool().set_affinity(mask);
    }
}

/// Sets the limits of bounded and unbounded workers (0: unchanged) and returns the old ones.
pub(super) fn set_max(guard: &mut UringGuard, arg: UserPtr, n: u32) -> Result<usize, Errno> {
    if arg.is_null() || n != 2 {
        return Err(Errno::EINVAL);
    }
    let mut limits = [0_u32; 2];
    user::read_slice(&mut limits, arg)?;
    if limits.iter().any(|&limit| limit > i32::MAX as u32) {
        return Err(Errno::EINVAL);
    }
    let own = guard.res.lock_owner.identity();
    let old = guard.io_wq.set_max_workers(own, limits);
    if let Some(workers) = &guard.uringlet_workers {
        workers.set_max(own, limits[0]);
    }
    user::write_slice(arg, &old)?;
    Ok(0)
}
