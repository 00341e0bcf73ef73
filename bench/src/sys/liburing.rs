//! liburing as a C program uses it: exported functions for calls, ring memory for the rest.
//!
//! Loaded at run time, so that LD_LIBRARY_PATH selects the library and the build needs none.

use anyhow::{Context, anyhow, ensure};
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use uringlet_abi::{Cqe, Opcode, Sqe, setup};

/// `struct io_uring_sq`.
#[repr(C)]
struct RawSq {
    head: *mut u32,
    tail: *mut u32,
    mask: *mut u32,
    entries: *mut u32,
    flags: *mut u32,
    dropped: *mut u32,
    array: *mut u32,
    sqes: *mut Sqe,
    sqe_head: u32,
    sqe_tail: u32,
    rest: [u64; 4],
}

/// `struct io_uring_cq`.
#[repr(C)]
struct RawCq {
    head: *mut u32,
    tail: *mut u32,
    mask: *mut u32,
    entries: *mut u32,
    flags: *mut u32,
    overflow: *mut u32,
    cqes: *mut Cqe,
    rest: [u64; 4],
}

/// `struct io_uring`.
#[repr(C)]
struct RawIoUring {
    sq: RawSq,
    cq: RawCq,
    flags: u32,
    fd: i32,
    rest: [u64; 2],
}

const _: () = assert!(size_of::<RawIoUring>() == 216);

/// An `IORING_OP_URING_CMD` SQE of plain or double size, with its command data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UringCmdSqe<'a> {
    pub(crate) fd: i32,
    pub(crate) cmd_op: u32,
    pub(crate) addr: u64,
    /// 16 bytes, or 32 on a ring with `IORING_SETUP_SQE128`.
    pub(crate) data: &'a [u8],
    pub(crate) user_data: u64,
}

type QueueInit = unsafe extern "C" fn(c_uint, *mut RawIoUring, c_uint) -> c_int;
type QueueExit = unsafe extern "C" fn(*mut RawIoUring);
type Submit = unsafe extern "C" fn(*mut RawIoUring) -> c_int;
type SubmitAndWait = unsafe extern "C" fn(*mut RawIoUring, c_uint) -> c_int;
type RegisterFiles = unsafe extern "C" fn(*mut RawIoUring, *const c_int, c_uint) -> c_int;
type UpdateFiles = unsafe extern "C" fn(*mut RawIoUring, c_uint, *const c_int, c_uint) -> c_int;
type MaxWorkers = unsafe extern "C" fn(*mut RawIoUring, *mut c_uint) -> c_int;
type Enter = unsafe extern "C" fn(c_uint, c_uint, c_uint, c_uint, *mut c_void) -> c_int;

/// The functions of liburing.so.2, of which old releases lack some.
#[derive(Clone, Copy)]
struct Liburing {
    init: QueueInit,
    exit: QueueExit,
    submit: Submit,
    submit_and_wait: SubmitAndWait,
    register_files: Option<RegisterFiles>,
    update_files: Option<UpdateFiles>,
    max_workers: Option<MaxWorkers>,
    enter: Option<Enter>,
}

impl Liburing {
    /// Loads it, once a process.
    fn get() -> anyhow::Result<&'static Self> {
        static LOADED: OnceLock<Result<Liburing, String>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| Self::load().map_err(|error| format!("{error:#}")));
        loaded.as_ref().map_err(|why| anyhow!("{why}"))
    }

    fn load() -> anyhow::Result<Self> {
        // SAFETY: liburing has no constructors.
        let library = unsafe { libc::dlopen(c"liburing.so.2".as_ptr(), libc::RTLD_NOW) };
        ensure!(!library.is_null(), "liburing.so.2 is not installed (Debian: liburing2)");
        // SAFETY: the functions of these names have these signatures in every liburing.so.2.
        unsafe {
            Ok(Self {
                init: function(library, c"io_uring_queue_init").context("no io_uring_queue_init in liburing.so.2")?,
                exit: function(library, c"io_uring_queue_exit").context("no io_uring_queue_exit in liburing.so.2")?,
                submit: function(library, c"io_uring_submit").context("no io_uring_submit in liburing.so.2")?,
                submit_and_wait: function(library, c"io_uring_submit_and_wait").context("no io_uring_submit_and_wait in liburing.so.2")?,
                register_files: function(library, c"io_uring_register_files"),
                update_files: function(library, c"io_uring_register_files_update"),
                max_workers: function(library, c"io_uring_register_iowq_max_workers"),
                enter: function(library, c"io_uring_enter"),
            })
        }
    }
}

/// A function of an open library.
///
/// # Safety
/// `F` is the type of a pointer to a function, and the function of this name has this type.
unsafe fn function<F>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: an open library and a NUL-terminated name.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: the caller names the type; the sizes are equal.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}

/// A ring that liburing set up. Its requests are cancelled when it is dropped.
pub(crate) struct LibRing {
    raw: Box<RawIoUring>,
    library: &'static Liburing,
    /// 1 with `IORING_SETUP_SQE128`: an SQE takes two slots of 64 bytes.
    sqe_shift: u32,
}

// SAFETY: the ring's memory belongs to this value alone, and is mapped for the whole process.
unsafe impl Send for LibRing {}

/// Takes over a descriptor from the result of an accept request.
pub(crate) fn accepted_fd(res: c_int) -> OwnedFd {
    // SAFETY: the kernel has just created it for this process.
    unsafe { OwnedFd::from_raw_fd(res) }
}

fn check_ret(what: &str, ret: c_int) -> anyhow::Result<()> {
    ensure!(ret >= 0, "{what}: {}", std::io::Error::from_raw_os_error(-ret));
    Ok(())
}

impl Drop for LibRing {
    fn drop(&mut self) {
        // SAFETY: a ring that was set up, and is not used again.
        unsafe { (self.library.exit)(&raw mut *self.raw) }
    }
}

impl LibRing {
    pub(crate) fn new(entries: u32) -> anyhow::Result<Self> {
        Self::with_flags(entries, 0)
    }

    /// With these `IORING_SETUP_*` flags.
    pub(crate) fn with_flags(entries: u32, flags: u32) -> anyhow::Result<Self> {
        let library = Liburing::get()?;
        // SAFETY: all zeroes is a `struct io_uring` before its setup.
        let mut raw = unsafe { Box::new(std::mem::zeroed::<RawIoUring>()) };
        // SAFETY: `raw` lives as long as the ring, at one address.
        let ret = unsafe { (library.init)(entries, &raw mut *raw, flags) };
        check_ret("io_uring_queue_init", ret)?;
        Ok(Self { raw, library, sqe_shift: u32::from(flags & setup::SQE128 != 0) })
    }

    /// The ring's descriptor.
    pub(crate) fn fd(&self) -> i32 {
        self.raw.fd
    }

    /// `io_uring_get_sqe()`. The caller submits before it takes more than the ring has entries.
    #[inline]
    pub(crate) fn get_sqe(&mut self) -> &mut Sqe {
        let sq = &mut self.raw.sq;
        // SAFETY: memory set up by liburing; an entry that is not published yet.
        let sqe = unsafe { &mut *sq.sqes.add(((sq.sqe_tail & *sq.mask) << self.sqe_shift) as usize) };
        sq.sqe_tail = sq.sqe_tail.wrapping_add(1);
        sqe
    }

    /// The SQE that was taken last, and is not submitted yet.
    #[inline]
    pub(crate) fn last_sqe(&mut self) -> &mut Sqe {
        let sq = &mut self.raw.sq;
        let last = sq.sqe_tail.wrapping_sub(1);
        // SAFETY: as above.
        unsafe { &mut *sq.sqes.add(((last & *sq.mask) << self.sqe_shift) as usize) }
    }

    /// `io_uring_prep_read()`. The buffer must stay valid and unused until the completion.
    #[inline]
    pub(crate) fn prep_read(&mut self, fd: i32, bytes: &mut [u8], off: u64, user_data: u64) {
        let (addr, len) = (bytes.as_mut_ptr() as u64, bytes.len() as u32);
        *self.get_sqe() = Sqe { opcode: Opcode::Read as u8, fd, off, addr, len, user_data, ..Sqe::default() };
    }

    /// `io_uring_prep_write()`. The buffer must stay valid until the completion.
    #[inline]
    pub(crate) fn prep_write(&mut self, fd: i32, bytes: &[u8], off: u64, user_data: u64) {
        let (addr, len) = (bytes.as_ptr() as u64, bytes.len() as u32);
        *self.get_sqe() = Sqe { opcode: Opcode::Write as u8, fd, off, addr, len, user_data, ..Sqe::default() };
    }

    #[inline]
    pub(crate) fn prep_uring_cmd(&mut self, cmd: &UringCmdSqe<'_>) {
        const DATA_OFFSET: usize = std::mem::offset_of!(Sqe, addr3);
        let UringCmdSqe { fd, cmd_op, addr, data, user_data } = *cmd;
        assert!(data.len() == if self.sqe_shift == 0 { 16 } else { 32 });
        let sqe = self.get_sqe();
        *sqe = Sqe { opcode: Opcode::UringCmd as u8, fd, off: cmd_op.into(), addr, user_data, ..Sqe::default() };
        // SAFETY: the last 16 bytes of the entry. 32 are copied on rings with SQE128 only, whose
        // entries have 64 more.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), (&raw mut *sqe).cast::<u8>().add(DATA_OFFSET), data.len()) };
    }

    #[inline]
    pub(crate) fn submit_and_wait(&mut self, n: u32) -> i32 {
        // SAFETY: a ring that was set up.
        unsafe { (self.library.submit_and_wait)(&raw mut *self.raw, n) }
    }

    /// `io_uring_submit()`.
    #[inline]
    pub(crate) fn submit(&mut self) -> i32 {
        // SAFETY: a ring that was set up.
        unsafe { (self.library.submit)(&raw mut *self.raw) }
    }

    /// Calls `each` with user_data and result of all available CQEs and consumes them. Returns
    /// their number.
    #[inline]
    pub(crate) fn for_each_cqe(&mut self, mut each: impl FnMut(u64, i32)) -> u32 {
        let cq = &self.raw.cq;
        // SAFETY: words and entries of a ring that was set up, shared as atomics; entries up to the
        // tail are published.
        unsafe {
            let (head, tail) = (AtomicU32::from_ptr(cq.head), AtomicU32::from_ptr(cq.tail));
            let (from, to) = (head.load(Ordering::Relaxed), tail.load(Ordering::Acquire));
            let mut at = from;
            while at != to {
                let cqe = &*cq.cqes.add((at & *cq.mask) as usize);
                each(cqe.user_data, cqe.res);
                at = at.wrapping_add(1);
            }
            head.store(to, Ordering::Release);
            to.wrapping_sub(from)
        }
    }

    /// Submits `n` SQEs and waits for their CQEs, each of which must have the result `expected`.
    #[inline]
    pub(crate) fn submit_all(&mut self, n: u32, expected: i32) -> anyhow::Result<()> {
        let submitted = self.submit_and_wait(n);
        ensure!(submitted == n.cast_signed(), "submitted {submitted} of {n}");
        let mut lowest = i32::MAX;
        let mut reaped = self.for_each_cqe(|_, res| lowest = lowest.min(res));
        while reaped < n {
            ensure!(self.submit_and_wait(1) >= 0, "waiting failed");
            reaped += self.for_each_cqe(|_, res| lowest = lowest.min(res));
        }
        ensure!(lowest == expected, "a completion has result {lowest}, not {expected}");
        Ok(())
    }

    /// `io_uring_register_files()`; -1 leaves a slot empty.
    pub(crate) fn register_files(&mut self, fds: &[i32]) -> anyhow::Result<()> {
        let register = self.library.register_files.context("no io_uring_register_files in liburing.so.2")?;
        // SAFETY: a ring that was set up, and as many numbers.
        let ret = unsafe { register(&raw mut *self.raw, fds.as_ptr(), c_uint::try_from(fds.len())?) };
        check_ret("io_uring_register_files", ret)
    }

    /// `io_uring_register_files_update()` of one slot.
    pub(crate) fn update_file(&mut self, slot: u32, fd: i32) -> anyhow::Result<()> {
        let update = self.library.update_files.context("no io_uring_register_files_update in liburing.so.2")?;
        // SAFETY: as above.
        let ret = unsafe { update(&raw mut *self.raw, slot, &raw const fd, 1) };
        check_ret("io_uring_register_files_update", ret)
    }

    /// `io_uring_register_iowq_max_workers()`. The limit of bounded workers stays as it is.
    pub(crate) fn limit_unbounded_workers(&mut self, max: u32) -> anyhow::Result<()> {
        let limit = self.library.max_workers.context("no io_uring_register_iowq_max_workers in liburing.so.2")?;
        let mut values = [0, max];
        // SAFETY: as above; two values are read and written.
        let ret = unsafe { limit(&raw mut *self.raw, values.as_mut_ptr()) };
        check_ret("io_uring_register_iowq_max_workers", ret)
    }

    /// The library's `io_uring_enter()`, called with nothing to do.
    pub(crate) fn enter(&self) -> anyhow::Result<impl Fn() -> i64 + use<>> {
        let enter = self.library.enter.context("this liburing.so.2 does not export io_uring_enter (2.3 and later do)")?;
        let fd = self.raw.fd.cast_unsigned();
        // SAFETY: no address.
        Ok(move || i64::from(unsafe { enter(fd, 0, 0, 0, std::ptr::null_mut()) }))
    }
}
