//! Linux AIO: queue depth without threads for files opened with O_DIRECT.
//!
//! The kernel reports read(2) and write(2) to those who watch a file (inotify, fanotify), but no
//! transfer by AIO: [`report_read`] and [`report_write`] do.
//!
//! The structures of `<linux/aio_abi.h>` are written out here: linux-raw-sys does not have that
//! header.

use crate::io;
use crate::linux::general::{__kernel_timespec, UTIME_NOW, UTIME_OMIT};
use crate::user::UserPtr;
use crate::valgrind;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};
use syscalls::{Errno, Sysno, raw_syscall, syscall};

/// `IOCB_CMD_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum AioOp {
    /// `IOCB_CMD_PREAD`
    Pread = 0,
    /// `IOCB_CMD_PWRITE`
    Pwrite = 1,
    /// `IOCB_CMD_PREADV`
    Preadv = 7,
    /// `IOCB_CMD_PWRITEV`
    Pwritev = 8,
}

/// Reports a read to those who watch the file: a read of nothing does.
pub fn report_read(fd: i32) {
    let _ = io::preadv(fd, UserPtr::NULL, 0, 0, 0);
}

/// Reports a write to those who watch the file: a change of its modification time alone does, which
/// the write has changed as well.
///
/// Differs: only the file's owner may do that, and a fanotify group that gets descriptors is not
/// told. The other call that reports a change and makes none, fallocate(2), waits for all transfers
/// in flight.
pub fn report_write(fd: i32) {
    const OMIT: __kernel_timespec = __kernel_timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as i64 };
    const NOW: __kernel_timespec = __kernel_timespec { tv_sec: 0, tv_nsec: UTIME_NOW as i64 };
    let _ = io::utimensat(fd, UserPtr::NULL, io::ptr_of(&[OMIT, NOW]), 0);
}

/// `struct iocb`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    reqprio: i16,
    fildes: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved2: u64,
    flags: u32,
    resfd: u32,
}

/// A request to submit.
#[derive(Clone, Copy, Debug)]
pub struct AioRequest {
    /// Operation.
    pub op: AioOp,
    /// File.
    pub fd: i32,
    /// Buffer, or iovecs of the engine's that live until the completion.
    pub buf: UserPtr,
    /// Bytes, or number of iovecs.
    pub len: u64,
    /// Position in the file, bytes.
    pub off: i64,
    /// `RWF_*`.
    pub rw_flags: u32,
    /// Returned with the completion.
    pub data: u64,
}

/// A completion.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct AioEvent {
    /// From the request.
    pub data: u64,
    obj: u64,
    /// Bytes, or a negative errno.
    pub res: i64,
    res2: i64,
}

const COMPLETION_RING_MAGIC: u32 = 0xa10a_10a1;

/// An AIO context.
#[derive(Debug)]
pub struct Aio {
    ctx: usize,
}

impl Aio {
    /// A context for `depth` requests.
    ///
    /// # Errors
    /// `EAGAIN` (`fs.aio-max-nr`), `ENOSYS`, `ENOMEM`. `ENOSYS` under valgrind, which learns that a
    /// buffer is written from the call that waits for it: here none does.
    pub fn new(depth: u32) -> Result<Self, Errno> {
        if valgrind::is_running() {
            return Err(Errno::ENOSYS);
        }
        let mut ctx = 0_usize;
        // SAFETY: the kernel writes 8 bytes to `ctx`.
        unsafe { syscall!(Sysno::io_setup, depth, &raw mut ctx) }?;
        Ok(Self { ctx })
    }

    /// Hands one request to the kernel. Its completion signals `eventfd`.
    ///
    /// # Errors
    /// `EAGAIN` the context is full; `EINVAL`, `EBADF`, `EFAULT` as the file answers.
    pub fn submit(&self, request: &AioRequest, eventfd: i32) -> Result<(), Errno> {
        const IOCB_FLAG_RESFD: u32 = 1;
        let iocb = Iocb {
            data: request.data,
            rw_flags: request.rw_flags,
            opcode: request.op as u16,
            fildes: request.fd as u32,
            buf: request.buf.addr() as u64,
            nbytes: request.len,
            offset: request.off,
            flags: IOCB_FLAG_RESFD,
            resfd: eventfd.cast_unsigned(),
            ..Iocb::default()
        };
        let list = [&raw const iocb];
        // SAFETY: one live iocb, copied by the kernel; its buffer is the program's (`AppPromise`).
        unsafe { syscall!(Sysno::io_submit, self.ctx, 1, list.as_ptr()) }.map(drop)
    }

    /// Stores the completions that are there, without waiting. Returns how many.
    pub fn reap(&self, events: &mut [AioEvent]) -> usize {
        if let Some(n) = self.reap_mapped(events) {
            return n;
        }
        let no_wait = [0_u64; 2];
        // SAFETY: the kernel writes at most `events.len()` events and reads 16 bytes of `no_wait`.
        let r = unsafe { raw_syscall!(Sysno::io_getevents, self.ctx, 0, events.len(), events.as_mut_ptr(), no_wait.as_ptr()) };
        if (r as isize) < 0 { 0 } else { r }
    }

    /// Reads completions without a system call: the context's id is the address of its completion
    /// ring, which is mapped into the process. `None` where the ring does not have Linux's layout
    /// (gVisor).
    fn reap_mapped(&self, events: &mut [AioEvent]) -> Option<usize> {
        let word = |i: usize| {
            // SAFETY: Linux maps at least a page there for as long as the context lives, of which
            // the first eight words are id, nr, head, tail, magic, compat, incompat, header_length.
            // Read and written as atomics.
            unsafe { &*((self.ctx + i * 4) as *const AtomicU32) }
        };
        if word(4).load(Acquire) != COMPLETION_RING_MAGIC || word(6).load(Acquire) != 0 {
            return None;
        }
        let nr = word(1).load(Acquire);
        let header = word(7).load(Acquire) as usize;
        let mut head = word(2).load(Acquire);
        // Acquire: pairs with the kernel's release of the tail after it stored the event.
        let tail = word(3).load(Acquire);
        let mut found = 0;
        while head != tail && found < events.len() {
            let at = (self.ctx + header + head as usize * size_of::<AioEvent>()) as *const AioEvent;
            // SAFETY: entries from head to tail are complete and stay so until the head moves; only
            // we move it, under the ring's lock.
            events[found] = unsafe { at.read_volatile() };
            found += 1;
            head = (head + 1) % nr;
        }
        if found > 0 {
            word(2).store(head, Release);
        }
        Some(found)
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: our own context; the kernel waits for requests in flight.
        unsafe { raw_syscall!(Sysno::io_destroy, self.ctx) };
    }
}
