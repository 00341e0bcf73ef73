//! The ways out of this library.
//!
//! Two engines in one process would not know each other's rings. So where the program is attached as well (`uringlet run`), ring calls go by libc's `syscall`,
//! which attach has replaced; else they go straight to this object's engine.

use syscalls::{Sysno, raw_syscall};
use uringlet::ENGINE;
use uringlet_abi::UringParams;
use uringlet_sys::{AppPromise, UserPtr};

use crate::c_types::Void;
use crate::weak::{ErrnoLocation, Syscall, attached_syscall};
use crate::{fork, hooks};

const PROT_READ_WRITE: u32 = 1 | 2;
const MAP_SHARED: u32 = 1;
const MAP_PRIVATE: u32 = 2;
const MAP_ANONYMOUS: u32 = 0x20;
const MAP_POPULATE: u32 = 0x8000;
const NO_FD: i32 = -1;
const MADV_DONTFORK: u32 = 10;
const RLIMIT_NOFILE: u32 = 7;
/// System calls answer addresses below this, and -errno from here on.
const ERRNO_START: usize = usize::MAX - 4094;

/// A system call's word as the int that C sees. Results and error numbers fit.
fn int(word: usize) -> i32 {
    word as i32
}

/// The address as the engine takes it: never dereferenced, the kernel checks it.
pub(crate) fn user<T>(pointer: *const T) -> UserPtr {
    UserPtr::new(pointer.expose_provenance())
}

fn mapped(word: usize) -> Result<*mut Void, i32> {
    if word >= ERRNO_START { Err(int(word)) } else { Ok(core::ptr::with_exposed_provenance_mut(word)) }
}

/// Attach's attach, open only when attach is there.
struct Attached(Syscall, ErrnoLocation);

impl Attached {
    fn via_attach() -> Option<Self> {
        attached_syscall().map(|(syscall, errno_location)| Self(syscall, errno_location))
    }

    /// The call's result, or -errno. `errno` itself stays as it was: liburing does not touch it.
    fn call(&self, nr: Sysno, args: [usize; 6]) -> isize {
        let Self(syscall, errno_location) = self;
        let errno = errno_location();
        let [a, b, c, d, e, f] = args;
        // SAFETY: `errno` is this thread's own. The call is one of those below; its addresses are checked on the other side.
        unsafe {
            let before = errno.replace(0);
            let result = syscall(nr as isize, a, b, c, d, e, f);
            let after = errno.replace(before);
            if result == -1 { -(after as isize) } else { result }
        }
    }
}

/// io_uring_setup(2)
pub(crate) fn setup(entries: u32, params: *mut UringParams) -> i32 {
    let params = user(params);
    if let Some(attach) = Attached::via_attach() {
        return attach.call(Sysno::io_uring_setup, [entries as usize, params.addr(), 0, 0, 0, 0]) as i32;
    }
    fork::watch();
    hooks::install();
    // SAFETY: whoever calls liburing's functions accepts io_uring's rule, that buffers stay valid until their CQE.
    let promise = unsafe { AppPromise::given() };
    let fd = ENGINE.setup(promise, entries, params) as i32;
    if fd >= 0 {
        // Not everybody who may poll the fd will tell us, so take it as polled from the start.
        ENGINE.note_polled(fd);
    }
    fd
}

/// io_uring_enter(2)
pub(crate) fn enter(fd: i32, to_submit: u32, min_complete: u32, flags: u32, arg: UserPtr, arg_len: usize) -> i32 {
    if let Some(attach) = Attached::via_attach() {
        let args = [fd as usize, to_submit as usize, min_complete as usize, flags as usize, arg.addr(), arg_len];
        return attach.call(Sysno::io_uring_enter, args) as i32;
    }
    ENGINE.enter(fd.cast_unsigned(), to_submit, min_complete, flags, arg, arg_len) as i32
}

/// io_uring_register(2)
pub(crate) fn register(fd: i32, opcode: u32, arg: UserPtr, nr_args: u32) -> i32 {
    if let Some(attach) = Attached::via_attach() {
        let args = [fd as usize, opcode as usize, arg.addr(), nr_args as usize, 0, 0];
        return attach.call(Sysno::io_uring_register, args) as i32;
    }
    ENGINE.register(fd.cast_unsigned(), opcode, arg, nr_args) as i32
}

/// mmap(2) of a ring's fd, anywhere, for reading and writing.
pub(crate) fn map_ring(fd: i32, len: usize, offset: u64) -> Result<*mut Void, i32> {
    let flags = MAP_SHARED | MAP_POPULATE;
    if let Some(attach) = Attached::via_attach() {
        let args = [0, len, PROT_READ_WRITE as usize, flags as usize, fd as usize, offset as usize];
        return mapped(attach.call(Sysno::mmap, args).cast_unsigned());
    }
    if let Some(word) = ENGINE.mmap(0, len, PROT_READ_WRITE, flags, fd, offset) {
        return mapped(word.cast_unsigned());
    }
    // SAFETY: a fresh mapping touches nothing that exists.
    mapped(unsafe { raw_syscall!(Sysno::mmap, 0, len, PROT_READ_WRITE, flags, fd, offset) })
}

/// Anonymous memory for a ring: shared, because a ring is shared with forked children.
pub(crate) fn map_shared(len: usize) -> Result<*mut Void, i32> {
    // SAFETY: a fresh mapping touches nothing that exists.
    mapped(unsafe { raw_syscall!(Sysno::mmap, 0, len, PROT_READ_WRITE, MAP_SHARED | MAP_ANONYMOUS, NO_FD, 0) })
}

/// Anonymous memory of this process alone.
pub(crate) fn map_private(len: usize) -> Result<*mut Void, i32> {
    // SAFETY: a fresh mapping touches nothing that exists.
    mapped(unsafe { raw_syscall!(Sysno::mmap, 0, len, PROT_READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, NO_FD, 0) })
}

/// munmap(2)
///
/// # Safety
/// The range is a mapping of this module, and nobody uses it any more.
pub(crate) unsafe fn unmap(at: *mut Void, len: usize) {
    // SAFETY: see above.
    unsafe { raw_syscall!(Sysno::munmap, at, len) };
}

/// A forked child shall not have this mapping.
pub(crate) fn keep_from_child(at: *mut Void, len: usize) -> i32 {
    // SAFETY: changes nothing in this process.
    int(unsafe { raw_syscall!(Sysno::madvise, at, len, MADV_DONTFORK) })
}

/// close(2)
pub(crate) fn close(fd: i32) {
    if let Some(attach) = Attached::via_attach() {
        attach.call(Sysno::close, [fd as usize, 0, 0, 0, 0, 0]);
    } else if ENGINE.close(fd).is_none() {
        // SAFETY: the fd is the ring's, which its owner gives up.
        unsafe { raw_syscall!(Sysno::close, fd) };
    }
}

/// Asks for `more` open files above the soft limit, if that is below `more`. Whether it worked shows in the next attempt.
pub(crate) fn raise_file_limit(more: u32) {
    let mut limit = [0_u64; 2];
    // SAFETY: prlimit64 writes two words to `limit`.
    let answer = unsafe { raw_syscall!(Sysno::prlimit64, 0, RLIMIT_NOFILE, 0, limit.as_mut_ptr()) };
    if answer == 0 && limit[0] < u64::from(more) {
        limit[0] += u64::from(more);
        // SAFETY: prlimit64 reads two words from `limit`.
        unsafe { raw_syscall!(Sysno::prlimit64, 0, RLIMIT_NOFILE, limit.as_ptr(), 0) };
    }
}

/// The program saw an empty CQ: a ring fd still flagged readable is so no more. Without hooks on poll(2) this is where that is taken back.
pub(crate) fn settle_readiness() {
    if ENGINE.any_readable() {
        ENGINE.settle_readiness();
    }
}
