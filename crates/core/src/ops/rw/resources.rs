//! What a transfer takes before it is tried: its flags, a registered buffer, a provided one.

use super::checks::{RWF_KNOWN, may_be_polled};
use super::{MAX_LEN, Rw, Selection};
use crate::ops::iovecs::is_beyond_memory;
use crate::ops::issue::{IssueCx, OpFamily};
use alloc::boxed::Box;
use alloc::vec;
use uringlet_abi::register::Iovec;
use uringlet_abi::setup;
use uringlet_sys::{Errno, UserPtr, io, user};

impl Rw {
    /// The error to report: errors of the iovecs come before `errno`.
    #[cold]
    pub(super) fn refused(&mut self, errno: Errno) -> Errno {
        if !self.is_vectored && is_beyond_memory(self.addr, self.len.into()) {
            return Errno::EFAULT;
        }
        self.import_args().err().unwrap_or(errno)
    }

    /// The error to report for bad flags: EBADF of a file that is not open for this comes first.
    #[cold]
    pub(super) fn refused_flags(&mut self, fd: i32, errno: Errno) -> Errno {
        let is_open_for_this = io::file_flags(fd).is_ok_and(|flags| match flags & io::O_ACCMODE {
            io::O_RDONLY => !self.is_write,
            io::O_WRONLY => self.is_write,
            _ => true,
        });
        self.refused(if is_open_for_this { errno } else { Errno::EBADF })
    }

    /// Checks the registered buffer, or selects a provided one.
    #[inline]
    pub(super) fn take_resources(&mut self, cx: &mut IssueCx<'_>) -> Result<(), Errno> {
        if self.is_fixed {
            self.check_registered(cx)?;
        }
        if self.selects {
            self.select(cx)?;
        }
        if cx.ring.setup & setup::IOPOLL != 0 {
            if !may_be_polled(cx.file) {
                return Err(self.refused_flags(cx.file.fd, Errno::EOPNOTSUPP));
            }
            self.rw_flags &= !io::RWF_HIPRI;
        }
        if self.rw_flags & !RWF_KNOWN != 0 {
            return Err(self.refused_flags(cx.file.fd, Errno::EOPNOTSUPP));
        }
        // Polled transfers need an IOPOLL ring.
        if self.rw_flags & io::RWF_HIPRI != 0 {
            return Err(self.refused_flags(cx.file.fd, Errno::EINVAL));
        }
        Ok(())
    }

    fn check_registered(&self, cx: &IssueCx<'_>) -> Result<(), Errno> {
        let buffer = cx.buffer(self.buf_index)?;
        if self.is_vectored {
            // An empty part is an error, unless it is what an earlier attempt left.
            let is_first = self.done == 0;
            let check = |iovecs: &[Iovec]| {
                if is_first && iovecs.iter().any(|v| v.len == 0) {
                    return Err(Errno::EFAULT);
                }
                iovecs.iter().try_for_each(|v| buffer.check(v.base, v.len))
            };
            if let Some(iovecs) = &self.iovecs {
                return check(iovecs);
            }
            let mut iovecs = vec![Iovec::default(); self.len as usize];
            user::read_slice(&mut iovecs, UserPtr::at(self.addr))?;
            return check(&iovecs);
        }
        buffer.check(self.addr, u64::from(self.len))
    }

    fn select(&mut self, cx: &mut IssueCx<'_>) -> Result<(), Errno> {
        let wanted = match &self.selection {
            Some(selection) if selection.selected.is_some() => return Ok(()),
            Some(selection) => selection.wanted,
            None => self.length_to_select()?,
        };
        let chosen = cx.ring.buf_groups.select(cx.buf_group, wanted)?;
        self.addr = chosen.addr;
        self.len = chosen.len;
        self.is_vectored = false;
        self.selection = Some(Box::new(Selection { wanted, selected: Some(chosen) }));
        Ok(())
    }

    /// A vectored read selects for the length of its only iovec.
    fn length_to_select(&self) -> Result<u32, Errno> {
        if !self.is_vectored {
            return Ok(self.len);
        }
        if self.len != 1 {
            return Err(Errno::EINVAL);
        }
        let iovec: Iovec = user::read(UserPtr::at(self.addr))?;
        Ok(iovec.len.min(MAX_LEN as u64) as u32)
    }
}
