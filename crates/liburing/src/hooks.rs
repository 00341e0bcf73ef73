//! Functions of ours that precede libc's: those that wait for descriptors, and those of
//! [`closers`] and [`identity`].
//!
//! When a program waits in poll, select or epoll, the fd of a ring whose CQ is empty again must not
//! be readable any more.
//!
//! A program may have emptied the CQ by inlined code alone, without a call to the engine. So our
//! functions precede the waiting functions of libc: they are put into the slots through which
//! objects call those; no symbol is exported for that. Readiness itself does not depend on it: it
//! is kept up to date from a ring's setup on, so a wait that bypasses these functions (a later
//! library, a raw system call) returns once too often, never too late.

use core::ffi::CStr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::arch::address_of_weak;
use crate::readiness::settle_readiness;
use crate::weak::Arg;
use crate::{closers, elf, identity};

/// The loader's count of loads when the slots were last filled. musl counts from 0, glibc from the
/// number of objects at start.
static LOADS_SEEN: AtomicU64 = AtomicU64::new(u64::MAX);

macro_rules! waits {
    ($($name:ident = $symbol:literal ($($arg:ident: $type:ty),*);)*) => {
        $(extern "C" fn $name($($arg: $type),*) -> i32 {
            settle_readiness();
            let address = address_of_weak!($symbol);
            // SAFETY: libc's function of this name, which some object called; its arguments are
            // passed on.
            unsafe {
                let real = core::mem::transmute::<usize, extern "C" fn($($type),*) -> i32>(address);
                real($($arg),*)
            }
        })*

        /// The function of ours that precedes libc's of this name.
        fn preceding(name: &CStr) -> Option<usize> {
            const NAMES: &[&str] = &[$($symbol),*];
            let functions = [$($name as *const () as usize),*];
            let at = NAMES.iter().position(|known| known.as_bytes() == name.to_bytes())?;
            Some(functions[at])
        }
    };
}

waits! {
    poll = "poll"(fds: Arg, count: Arg, timeout_ms: i32);
    poll_chk = "__poll_chk"(fds: Arg, count: Arg, timeout_ms: i32, room: Arg);
    ppoll = "ppoll"(fds: Arg, count: Arg, timeout: Arg, mask: Arg);
    ppoll_chk = "__ppoll_chk"(fds: Arg, count: Arg, timeout: Arg, mask: Arg, room: Arg);
    select = "select"(count: i32, read: Arg, write: Arg, except: Arg, timeout: Arg);
    pselect = "pselect"(count: i32, read: Arg, write: Arg, except: Arg, timeout: Arg, mask: Arg);
    epoll_wait = "epoll_wait"(epfd: i32, events: Arg, max: i32, timeout_ms: i32);
    epoll_pwait = "epoll_pwait"(epfd: i32, events: Arg, max: i32, timeout_ms: i32, mask: Arg);
    epoll_pwait2 = "epoll_pwait2"(epfd: i32, events: Arg, max: i32, timeout: Arg, mask: Arg);
}

/// Precedes libc's functions in every object loaded by now, except this one.
pub(crate) fn install() {
    let before = LOADS_SEEN.load(Relaxed);
    let mut loads = before;
    elf::for_each_object(|object| {
        loads = object.loads;
        if loads != before && !object.contains(install as *const () as usize) {
            precede(object);
        }
        loads != before
    });
    LOADS_SEEN.store(loads, Relaxed);
}

fn precede(object: &elf::DlPhdrInfo) {
    object.for_each_import(|name, slot| {
        if let Some(function) = preceding(name).or_else(|| closers::preceding(name)).or_else(|| identity::preceding(name)) {
            slot.point_to(function);
        }
    });
}
