//! What the program was started with: found without libc's help, because our constructor runs before libc's own.

use core::ffi::{CStr, c_char};

use syscalls::{Sysno, raw};

use crate::symbols::weak_address;

/// The environment, up to its null.
fn environment() -> *const *const c_char {
    // musl has set it by now. glibc has not: its dynamic linker left the stack's end instead.
    let environ = weak_address!("environ");
    if environ != 0 {
        // SAFETY: libc's variable of this type.
        let at = unsafe { (environ as *const *const *const c_char).read() };
        if !at.is_null() {
            return at;
        }
    }
    match initial_stack() {
        // SAFETY: the kernel lays out argc, that many pointers, a null, and the environment.
        Some(stack) => unsafe { stack.add(stack.read() + 2).cast() },
        None => core::ptr::null(),
    }
}

/// Where the kernel put argc.
fn initial_stack() -> Option<*const usize> {
    let end = weak_address!("__libc_stack_end");
    if end == 0 {
        return None;
    }
    // SAFETY: glibc's variable of this type; it points at argc.
    let stack = unsafe { (end as *const *const usize).read() };
    (!stack.is_null()).then_some(stack)
}

/// All variables.
pub(crate) fn variables() -> impl Iterator<Item = &'static CStr> {
    let mut at = environment();
    core::iter::from_fn(move || {
        if at.is_null() {
            return None;
        }
        // SAFETY: the array ends in null, and its strings live as long as the program lets them: we look at them before it runs.
        unsafe {
            let text = at.read();
            at = at.add(1);
            (!text.is_null()).then(|| CStr::from_ptr(text))
        }
    })
}

/// The value of one variable.
pub(crate) fn variable(name: &str) -> Option<&'static [u8]> {
    variables().find_map(|text| text.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// A stopwatch.
#[derive(Debug)]
pub(crate) struct Clock(u64);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(monotonic())
    }

    pub(crate) fn microseconds(&self) -> u64 {
        (monotonic() - self.0) / 1000
    }
}

/// Nanoseconds of CLOCK_MONOTONIC.
fn monotonic() -> u64 {
    const CLOCK_MONOTONIC: usize = 1;
    let mut time = [0_u64; 2];
    // SAFETY: clock_gettime fills the two words of a timespec.
    unsafe { raw::syscall2(Sysno::clock_gettime as usize, CLOCK_MONOTONIC, time.as_mut_ptr() as usize) };
    time[0] * 1_000_000_000 + time[1]
}
