//! `IORING_OP_FUTEX_WAIT, FUTEX_WAKE, FUTEX_WAITV`: the program's futexes.
//! Source:  io_uring_prep_futex_wait(3) and the others, futex(2); behaviour of Linux 6.18
//!          io_uring/futex.c (not its code).
//! Issue:   wakes inline; waits compare inline, then sleep on a worker of the unbounded class
//!          (futex/sleep.rs, submit/wait.rs).
//! Errors:  EINVAL bad fields, flags or masks, not aligned; EFAULT; EAGAIN another value, or no
//!          worker could be started.
//! Differs: FUTEX2_NUMA and FUTEX2_MPOL are EINVAL. Beyond the limit of unbounded workers a wait
//!          begins when a worker is free: a wake before that finds no waiter, unless the value
//!          changes with it. A wait may end with 0 without a wake. A cancelled WAITV may have
//!          received wakes of several futexes, and forwards one.
//! Tests:   ours cli/tests/net_ops.rs (futex_ops, futex_load).

mod sleep;

use super::issue::{Issue, IssueCx, OpFamily, PrepCx, unused};
use super::outcome::Outcome;
use alloc::sync::Arc;
use alloc::{vec, vec::Vec};
pub(crate) use sleep::FutexWait;
use sleep::FutexWaitEntry;
use uringlet_abi::Sqe;
use uringlet_sys::user_futex::Futex;
use uringlet_sys::{Errno, UserPtr, user};

/// FUTEX_WAITV_MAX
const WAITV_MAX: u32 = 128;

/// A validated request of this family.
#[derive(Debug)]
pub(crate) enum FutexOp {
    Wake {
        futex: Futex,
        n: i32,
        mask: u32,
    },
    /// Shared by the submitter and the worker.
    Wait(Arc<FutexWait>),
}

/// The futex, the value and the mask of an SQE for one futex.
fn one(sqe: &Sqe) -> Result<(Futex, u32, u32), Errno> {
    unused(&[sqe.len.into(), sqe.op_flags.into(), sqe.buf_index.into(), sqe.file_index().into()])?;
    let futex = Futex::at(sqe.addr, sqe.fd as u32)?;
    Ok((futex, word(sqe.addr2())?, word(sqe.addr3)?))
}

fn word(n: u64) -> Result<u32, Errno> {
    u32::try_from(n).map_err(|_| Errno::EINVAL)
}

pub(crate) fn prep_wait(sqe: &Sqe, _: &PrepCx) -> Result<FutexOp, Errno> {
    let (futex, value, mask) = one(sqe)?;
    Ok(FutexOp::Wait(Arc::new(FutexWait::new(vec![FutexWaitEntry { futex, value }], Some(mask)))))
}

pub(crate) fn prep_wake(sqe: &Sqe, _: &PrepCx) -> Result<FutexOp, Errno> {
    let (futex, n, mask) = one(sqe)?;
    Ok(FutexOp::Wake { futex, n: n as i32, mask })
}

pub(crate) fn prep_waitv(sqe: &Sqe, _: &PrepCx) -> Result<FutexOp, Errno> {
    unused(&[sqe.fd as u64, sqe.buf_index.into(), sqe.file_index().into(), sqe.off, sqe.op_flags.into(), sqe.addr3])?;
    if !(1..=WAITV_MAX).contains(&sqe.len) {
        return Err(Errno::EINVAL);
    }
    // struct futex_waitv: value, address, flags and a reserved word.
    let mut waiters = vec![[0_u64; 3]; sqe.len as usize];
    user::read_slice(&mut waiters, UserPtr::at(sqe.addr))?;
    let awaited =
        waiters.iter().map(|&[value, addr, flags]| Ok(FutexWaitEntry { futex: Futex::at(addr, word(flags)?)?, value: word(value)? }));
    let awaited: Vec<FutexWaitEntry> = awaited.collect::<Result<_, Errno>>()?;
    Ok(FutexOp::Wait(Arc::new(FutexWait::new(awaited, None))))
}

impl OpFamily for FutexOp {
    fn try_issue(&mut self, _: &mut IssueCx<'_>) -> Issue {
        match self {
            Self::Wake { futex, n, mask } => futex.wake(*n, *mask).into(),
            Self::Wait(_) => Issue::RingOp,
        }
    }

    /// Called if no worker could be started: then no thread can sleep for it.
    fn run(&mut self, _: i32) -> Outcome {
        Outcome::err(Errno::EAGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::issue::Prep;

    const CX: PrepCx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };

    #[test]
    fn futex_wait_and_wake_check_their_fields() {
        let good = Sqe { fd: 130, addr: 8, off: 1, addr3: 1, pad2: 1, ..Sqe::default() };
        let all: [Prep<FutexOp>; 2] = [prep_wait, prep_wake];
        for prep in all {
            assert!(prep(&good, &CX).is_ok());
            for bad in [
                Sqe { len: 1, ..good },
                Sqe { op_flags: 1, ..good },
                Sqe { buf_index: 1, ..good },
                Sqe { splice_fd_in: 1, ..good },
                Sqe { off: 1 << 32, ..good },
                Sqe { addr3: 1 << 32, ..good },
                Sqe { fd: 3, ..good },
                Sqe { fd: 6, ..good },
                Sqe { fd: 0x102, ..good },
            ] {
                assert_eq!(prep(&bad, &CX).err(), Some(Errno::EINVAL));
            }
        }
    }

    #[test]
    fn futex_waitv_checks_its_fields() {
        let vector = |waiter: [u64; 3], change: fn(&mut Sqe)| {
            let waiters = [waiter; 128];
            let mut sqe = Sqe { addr: waiters.as_ptr() as u64, len: 128, pad2: 1, ..Sqe::default() };
            change(&mut sqe);
            prep_waitv(&sqe, &CX).err()
        };
        assert_eq!(vector([1, 4, 2], |_| ()), None);
        for bad in [[1 << 32, 4, 2], [1, 4, 3], [1, 4, 2 | 1 << 32]] {
            assert_eq!(vector(bad, |_| ()), Some(Errno::EINVAL));
        }
        let changes: [fn(&mut Sqe); 8] = [
            |s| s.len = 0,
            |s| s.len = 129,
            |s| s.fd = 1,
            |s| s.off = 1,
            |s| s.op_flags = 1,
            |s| s.buf_index = 1,
            |s| s.splice_fd_in = 1,
            |s| s.addr3 = 1,
        ];
        for change in changes {
            assert_eq!(vector([1, 4, 2], change), Some(Errno::EINVAL));
        }
        assert_eq!(vector([1, 4, 2], |s| s.addr = 0), Some(Errno::EFAULT));
    }
}
