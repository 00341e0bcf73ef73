//! `IORING_REGISTER_EVENTFD`: a program's eventfd that counts batches of CQEs.

use crate::state::{EventfdCounts, RegisteredEventfd, UringGuard};
use crate::virtual_file::registered_duplicate;
use alloc::sync::Arc;
use uringlet_sys::{Errno, UserPtr, io, user};

pub(super) fn register(guard: &mut UringGuard, arg: UserPtr, n: u32, counts: EventfdCounts) -> Result<usize, Errno> {
    if n != 1 {
        return Err(Errno::EINVAL);
    }
    let fd: i32 = user::read(arg)?;
    if guard.eventfd.is_some() {
        return Err(Errno::EBUSY);
    }
    let kept = registered_duplicate(fd)?;
    if !io::is_eventfd(kept.number()) {
        return Err(Errno::EINVAL);
    }
    guard.eventfd = Some(RegisteredEventfd { fd: Arc::new(kept), counts, is_signalled: false });
    Ok(0)
}

pub(super) fn unregister(guard: &mut UringGuard) -> Result<usize, Errno> {
    guard.eventfd.take().map(|_| 0).ok_or(Errno::ENXIO)
}
