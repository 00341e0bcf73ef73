//! The system calls of this library, by the engine or the kernel (`backend`).
//!
//! Two engines in one process would not know each other's rings. So where the program is attached
//! as well (`uringlet run`), ring calls go through libc's `syscall`, which attach has replaced;
//! otherwise they go straight to this object's engine.

use uringlet_abi::UringParams;
use uringlet_core::ENGINE;
use uringlet_sys::linux::general::{MADV_DONTFORK, MAP_POPULATE, MAP_SHARED, PROT_READ, PROT_WRITE};
use uringlet_sys::passthrough::pass_through;
use uringlet_sys::{AppPromise, Errno, Sysno, UserPtr, io, mm, process};

use crate::c_types::Void;
use crate::weak::{ErrnoLocation, Syscall, attached_syscall};
use crate::{backend, fork, hooks};

const PROT_READ_WRITE: u32 = PROT_READ | PROT_WRITE;
/// System calls return addresses below this, and -errno from here on.
const ERRNO_START: usize = usize::MAX - 4094;

/// A result as the int that C sees. Results and error numbers fit.
pub(crate) fn int(result: isize) -> i32 {
    result as i32
}

/// The address as the engine takes it: never dereferenced, the kernel checks it.
pub(crate) fn user<T>(pointer: *const T) -> UserPtr {
    UserPtr::new(pointer.expose_provenance())
}

fn pointer(address: usize) -> *mut Void {
    core::ptr::with_exposed_provenance_mut(address)
}

/// The result of a mapping: an address or -errno.
fn mapped(result: isize) -> Result<*mut Void, i32> {
    let word = result.cast_unsigned();
    if word >= ERRNO_START { Err(int(result)) } else { Ok(pointer(word)) }
}

fn negated(errno: Errno) -> i32 {
    -errno.into_raw()
}

/// Attach's `syscall`, if attach is present.
struct Attach(Syscall, ErrnoLocation);

impl Attach {
    /// The call's result, or -errno. `errno` itself stays as it was: liburing does not set it.
    fn call(&self, nr: Sysno, args: [usize; 6]) -> isize {
        let Self(syscall, errno_location) = self;
        let errno = errno_location();
        let [a, b, c, d, e, f] = args;
        // SAFETY: `errno` is this thread's own. The call is one of those below; its addresses are
        // checked by attach's engine or the kernel.
        unsafe {
            let before = errno.replace(0);
            let result = syscall(nr as isize, a, b, c, d, e, f);
            let after = errno.replace(before);
            if result == -1 { -(after as isize) } else { result }
        }
    }
}

fn via_attach() -> Option<Attach> {
    attached_syscall().map(|(syscall, errno_location)| Attach(syscall, errno_location))
}

/// A call on a ring of the kernel's: its result, or -errno.
fn kernel_call(nr: Sysno, args: [usize; 6]) -> isize {
    // SAFETY: the program has asked liburing for this very call.
    unsafe { pass_through(nr, args) }
}

/// io_uring_setup(2)
pub(crate) fn setup(entries: u32, params: *mut UringParams) -> i32 {
    let params = user(params);
    if let Some(attach) = via_attach() {
        return int(attach.call(Sysno::io_uring_setup, [entries as usize, params.addr(), 0, 0, 0, 0]));
    }
    if backend::is_kernel() {
        return int(kernel_call(Sysno::io_uring_setup, [entries as usize, params.addr(), 0, 0, 0, 0]));
    }
    fork::register_handlers();
    hooks::install();
    // SAFETY: a program that calls liburing's functions accepts io_uring's rule: buffers stay valid
    // until their CQE.
    let promise = unsafe { AppPromise::given() };
    let fd = int(ENGINE.setup(promise, entries, params));
    if fd >= 0 {
        // Not every poll of the fd can be seen, so it counts as polled from the start.
        ENGINE.note_polled(fd);
    }
    fd
}

/// io_uring_enter(2)
pub(crate) fn enter(fd: i32, to_submit: u32, min_complete: u32, flags: u32, arg: UserPtr, arg_len: usize) -> i32 {
    let args = [fd as usize, to_submit as usize, min_complete as usize, flags as usize, arg.addr(), arg_len];
    if let Some(attach) = via_attach() {
        return int(attach.call(Sysno::io_uring_enter, args));
    }
    if backend::is_kernel() {
        return int(kernel_call(Sysno::io_uring_enter, args));
    }
    int(ENGINE.enter(fd.cast_unsigned(), to_submit, min_complete, flags, arg, arg_len))
}

/// io_uring_register(2)
pub(crate) fn register(fd: i32, opcode: u32, arg: UserPtr, nr_args: u32) -> i32 {
    let args = [fd as usize, opcode as usize, arg.addr(), nr_args as usize, 0, 0];
    if let Some(attach) = via_attach() {
        return int(attach.call(Sysno::io_uring_register, args));
    }
    if backend::is_kernel() {
        return int(kernel_call(Sysno::io_uring_register, args));
    }
    int(ENGINE.register(fd.cast_unsigned(), opcode, arg, nr_args))
}

/// mmap(2) of a ring's fd, anywhere, for reading and writing.
pub(crate) fn map_ring(fd: i32, len: usize, offset: u64) -> Result<*mut Void, i32> {
    let flags = MAP_SHARED | MAP_POPULATE;
    if let Some(attach) = via_attach() {
        let args = [0, len, PROT_READ_WRITE as usize, flags as usize, fd as usize, offset as usize];
        return mapped(attach.call(Sysno::mmap, args));
    }
    match ENGINE.mmap(0, len, PROT_READ_WRITE, flags, fd, offset) {
        Some(result) => mapped(result),
        None => mm::map_file(fd, len, offset, MAP_POPULATE).map(pointer).map_err(negated),
    }
}

/// Anonymous memory for a ring: shared, because a ring is shared with forked children.
pub(crate) fn map_shared(len: usize) -> Result<*mut Void, i32> {
    mm::map_anonymous_shared(len).map(pointer).map_err(negated)
}

/// Anonymous memory of this process alone.
pub(crate) fn map_private(len: usize) -> Result<*mut Void, i32> {
    mm::map_anonymous(len, 0).map(pointer).map_err(negated)
}

/// munmap(2)
///
/// # Safety
/// The range is a mapping of this module, and nothing uses it any more.
pub(crate) unsafe fn unmap(at: *mut Void, len: usize) {
    // SAFETY: see above.
    let _ = unsafe { mm::unmap(at.addr(), len) };
}

/// Keeps a mapping out of children forked from now on; 0 or -errno.
pub(crate) fn keep_from_children(at: *mut Void, len: usize) -> i32 {
    // SAFETY: nothing changes in this process.
    unsafe { mm::advise(at.addr(), len, MADV_DONTFORK) }.map_or_else(negated, |()| 0)
}

/// close(2)
pub(crate) fn close(fd: i32) {
    if let Some(attach) = via_attach() {
        attach.call(Sysno::close, [fd as usize, 0, 0, 0, 0, 0]);
    } else if ENGINE.close(fd).is_none() {
        // The ring's fd, which its owner gives up.
        let _ = io::close(fd);
    }
}

/// Raises the soft limit on open files by `more` if it is below `more`. The next attempt shows
/// whether that worked.
pub(crate) fn raise_file_limit(more: u32) {
    process::raise_nofile_limit(more);
}
