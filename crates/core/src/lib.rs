//! The uringlet engine: io_uring in user space.
//!
//! Three entry points, as the kernel's: [`Engine::setup`], [`Engine::enter`], [`Engine::register`],
//! and those for a program's other calls on a ring's descriptor: mmap, close, dup, poll, fork. The
//! attach library and the drop-in liburing pass these calls to the one [`ENGINE`].
//!
//! Layers: a lower one never uses a higher one (`ARCHITECTURE.md`, checked by `cargo xtask tidy`):
//!
//! ```text
//!   engine, lib              the entry points; descriptors, fork
//!   driver, register         the threads that drive a ring: enter(), workers, the watcher; setup and registration
//!   uringlet                 the ring's own workers in uringlet mode
//!   submit                   fast path, links, cancel; dispatch decides complete / poll / run / punt
//!   state                    a ring: its resources, its requests, the lock over both; the rings of the process
//!   request                  an op with its flags, its file and the rest of its chain
//!   ops                      what each opcode does, with what the ring's resources offer
//!   ring_resources           what of a ring an op may use
//!   io_wq, apoll, timer      workers, readiness, deadlines
//!   ring, rsrc, file, write  shared queues, resources, how buffered writes went
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod apoll;
mod cbpf;
mod driver;
mod engine;
mod fault;
mod file;
mod hash;
mod identity;
mod identity_call;
mod intercepted;
pub mod io_wq;
#[cfg_attr(loom, path = "kernel_trace/model.rs")]
pub mod kernel_trace;
mod ops;
mod register;
mod req_id;
mod request;
mod ring;
mod ring_resources;
mod route;
mod rsrc;
mod slab;
mod state;
mod submit;
mod throttle;
mod timer;
mod trace;
mod uringlet;
pub mod variables;
mod virtual_file;
mod write;

pub use engine::{ENGINE, Engine};
pub use identity::IdentityScope;
pub use identity_call::IdentityChange;
pub use route::hint::AsyncHint;
pub use virtual_file::{OpenedFile, PendingCmd, UringCmd, VirtualFile, VirtualFiles};
pub use write::WriteMode;

use driver::enter::{EnterArgs, check_flags, enter};
use engine::to_isize;
use state::home_table::check_table;
use state::task_policy;
use uringlet_abi::{enter as enter_flag, layout, register as reg};
use uringlet_sys::{AppPromise, Errno, UserPtr, required_calls};

const PAGE: u64 = 4096;

impl Engine {
    /// io_uring_setup(2): a new ring's fd, or -errno. EPERM: also if a filter denies a system call
    /// that the engine needs.
    pub fn setup(&'static self, _promise: AppPromise, entries: u32, params: UserPtr) -> isize {
        if trace::is_on()
            && let Some(injected) = fault::of_setup()
        {
            trace::ring_refused(entries, injected);
            return injected;
        }
        to_isize(required_calls::check().and_then(|()| self.init()).and_then(|()| register::setup::setup(entries, params)))
    }

    /// io_uring_enter(2) in its six-argument form: SQEs consumed, or -errno.
    #[inline]
    pub fn enter(&'static self, fd: u32, to_submit: u32, min_complete: u32, flags: u32, arg: UserPtr, arg_len: usize) -> isize {
        let args = EnterArgs { to_submit, min_complete, flags, arg, arg_len };
        if trace::is_on() { self.enter_traced(fd, args) } else { self.enter_untraced(fd, args) }
    }

    #[inline(always)]
    fn enter_untraced(&'static self, fd: u32, args: EnterArgs) -> isize {
        let result = self
            .own()
            .and_then(|()| check_flags(args.flags))
            .and_then(|()| register::ring_of(fd, args.flags & enter_flag::REGISTERED_RING != 0))
            .and_then(|ring| check_table(ring).map(|()| ring))
            .and_then(|ring| enter(ring, args));
        to_isize(result)
    }

    #[cold]
    #[inline(never)]
    fn enter_traced(&'static self, fd: u32, mut args: EnterArgs) -> isize {
        let since = trace::entering();
        let EnterArgs { to_submit, min_complete, flags, .. } = args;
        let injected = fault::of_enter(to_submit, &mut args.min_complete, flags);
        let is_injected = injected.is_some() || args.min_complete != min_complete;
        let result = injected.unwrap_or_else(|| self.enter_untraced(fd, args));
        if since != 0 {
            trace::entered(trace::EnterCall { fd, to_submit, min_complete, flags, since, is_injected }, result);
        }
        result
    }

    /// io_uring_register(2): 0 or what the operation returns, or -errno.
    pub fn register(&'static self, fd: u32, opcode: u32, arg: UserPtr, nr_args: u32) -> isize {
        let is_registered = opcode & reg::USE_REGISTERED_RING != 0;
        let opcode = opcode & !reg::USE_REGISTERED_RING;
        let injected = if trace::is_on() { fault::of_register() } else { None };
        let result = injected.unwrap_or_else(|| self.register_untraced(fd, is_registered, opcode, arg, nr_args));
        if trace::is_on() {
            trace::registered(trace::RegisterCall { fd, opcode, arg: arg.addr(), nr_args, is_injected: injected.is_some() }, result);
        }
        result
    }

    fn register_untraced(&'static self, fd: u32, is_registered: bool, opcode: u32, arg: UserPtr, nr_args: u32) -> isize {
        if opcode > reg::LAST {
            return to_isize(Err(Errno::EINVAL));
        }
        if fd == u32::MAX && !is_registered {
            return to_isize(register::without_ring(opcode, arg, nr_args));
        }
        let result = if self.is_foreign_process() {
            // What it registers would be its own descriptors, and the ring its parent's.
            Err(Errno::EPERM)
        } else {
            register::ring_of(fd, is_registered).and_then(|ring| register::register(ring, opcode, arg, nr_args))
        };
        to_isize(result)
    }

    /// open(2) of a path that the kernel answered with `errno`: a descriptor, or -errno; `None` if
    /// that error stands.
    pub fn open(&'static self, path: UserPtr, flags: u32, errno: Errno) -> Option<isize> {
        if self.is_foreign_process() {
            return None;
        }
        let opener = virtual_file::opener().filter(|opener| opener.is_left_to_us(errno))?;
        let mut bytes = [0_u8; 64];
        let len = uringlet_sys::user::read_cstr(&mut bytes, path).ok()?;
        let opened = opener.open(&bytes[..len - 1], flags)?;
        Some(to_isize(opened.map(|(fd, file)| {
            virtual_file::register(fd, file);
            fd as usize
        })))
    }

    /// Records for the tracer whose buffer is at this path (`uringlet trace`).
    pub fn trace(&'static self, path: &[u8]) {
        uringlet_sys::trace::request(path);
    }

    /// Does to requests and calls what a plan says (`uringlet run --inject`). False: the text is no
    /// plan.
    #[must_use]
    pub fn inject(&'static self, plan: &[u8]) -> bool {
        fault::begin(plan)
    }

    /// From now on, paths that the kernel does not open are passed to `opener`.
    pub fn set_opener(&'static self, opener: &'static dyn VirtualFiles) {
        virtual_file::set_opener(opener);
    }

    /// `announce` gets the restrictions and filters of the task as text whenever they change, for
    /// [`inherit_task_policy`](Self::inherit_task_policy) of a program that is executed.
    pub fn announce_task_policy(&'static self, announce: fn(&str)) {
        task_policy::announce_changes(announce);
    }

    /// The restrictions and filters of all rings that are made later, as text. Damaged text allows
    /// them nothing.
    pub fn inherit_task_policy(&'static self, text: &[u8]) {
        task_policy::inherit(text);
    }

    /// mmap(2) of a ring's fd: the address, or -errno; `None` if `fd` is no ring: then make the
    /// plain call. One table load in that case.
    pub fn mmap(&'static self, addr: usize, len: usize, prot: u32, _flags: u32, fd: i32, offset: u64) -> Option<isize> {
        if uringlet_sys::fd_table::is_virtual(fd) {
            let refused = virtual_file::get(fd)?.check_mmap(prot, offset, len).err()?;
            return Some(to_isize(Err(refused)));
        }
        let index = uringlet_sys::fd_table::ring_index(fd)?;
        if let Err(errno) = self.own() {
            return Some(to_isize(Err(errno)));
        }
        let guard = state::RINGS.get(index)?.lock(state::LockOwner::Worker)?;
        let result = if addr != 0 || !offset.is_multiple_of(PAGE) {
            // As the kernel, which takes no address for a ring, not even as a hint.
            Err(Errno::EINVAL)
        } else if offset & layout::OFF_MMAP_MASK == layout::OFF_PBUF_RING {
            guard.res.buf_groups.map_for_program(offset, len)
        } else if offset & layout::OFF_MMAP_MASK == layout::OFF_PARAM_REGION {
            guard.wait_args.region.as_ref().ok_or(Errno::ENOMEM).and_then(|region| region.map_for_program(len))
        } else if offset & layout::OFF_MMAP_MASK == layout::OFF_ZCRX_REGION {
            guard.res.zcrx.map_for_program(offset, len)
        } else {
            guard.res.memory.map_for_program(offset, len)
        };
        Some(to_isize(result))
    }

    /// Whether this number is, as far as known, a ring or a virtual file. One table load.
    #[inline]
    #[must_use]
    pub fn is_ours(&'static self, fd: i32) -> bool {
        uringlet_sys::fd_table::is_ours(fd)
    }

    /// Whether a read or write of this number concerns the engine, as far as known: it
    /// [`is_ours`](Self::is_ours), or a ring waits for its readiness. One table load.
    #[inline]
    #[must_use]
    pub fn concerns_transfers(&'static self, fd: i32) -> bool {
        uringlet_sys::fd_table::concerns_transfers(fd)
    }
}
