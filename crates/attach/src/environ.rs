//! The environment that the program was started with: found without libc's help, because our
//! constructor runs before libc's own.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::arch::weak_address;

/// The word in a variable of libc's: 0 if libc has none of that name.
pub(crate) fn variable_at(address: usize) -> usize {
    // SAFETY: callers pass the address of a pointer or 0.
    if address == 0 { 0 } else { unsafe { (address as *const usize).read() } }
}

/// The value of libc's `environ`: 0 before libc has set it.
pub(crate) fn libc_environ() -> usize {
    variable_at(weak_address!("environ"))
}

/// The array of variables, which ends in null.
fn environment() -> *const *const c_char {
    // musl has set it by now. glibc has not: its dynamic linker left the stack's end instead.
    let environ = libc_environ();
    if environ != 0 {
        return environ as *const *const c_char;
    }
    match initial_stack() {
        // SAFETY: the kernel lays out argc, that many pointers, a null, and the environment.
        Some(stack) => unsafe { stack.add(stack.read() + 2).cast() },
        None => core::ptr::null(),
    }
}

/// The same in a process without a dynamic linker.
static INITIAL_STACK: AtomicUsize = AtomicUsize::new(0);

/// Stores where the kernel put argc, in a process without a dynamic linker.
pub(crate) fn set_initial_stack(stack: *const usize) {
    INITIAL_STACK.store(stack.expose_provenance(), Ordering::Relaxed);
}

/// The address where the kernel put argc.
fn initial_stack() -> Option<*const usize> {
    let stack = match INITIAL_STACK.load(Ordering::Relaxed) {
        0 => variable_at(weak_address!("__libc_stack_end")),
        stack => stack,
    };
    (stack != 0).then_some(stack as *const usize)
}

/// All variables.
pub(crate) fn variables() -> impl Iterator<Item = &'static CStr> {
    let mut at = environment();
    core::iter::from_fn(move || {
        if at.is_null() {
            return None;
        }
        // SAFETY: the array ends in null, and its strings live as long as the program lets them:
        // they are read before it runs.
        unsafe {
            let text = at.read();
            at = at.add(1);
            (!text.is_null()).then(|| CStr::from_ptr(text))
        }
    })
}

/// Replaces the value of a variable by one that is not longer, for the program and its children.
/// Its place stays: a program may look for what the kernel has put behind the environment.
pub(crate) fn replace(name: &str, value: &[u8]) {
    let Some(old) = variable(name).filter(|old| old.len() >= value.len()) else { return };
    let to = old.as_ptr().cast_mut();
    // SAFETY: the strings of the environment are the program's to write, and it does not run yet.
    // They end in NUL, so there is room for one more byte than the old value has.
    unsafe {
        to.copy_from_nonoverlapping(value.as_ptr(), value.len());
        to.add(value.len()).write(0);
    }
}

/// The value of one variable. An empty value counts as none.
pub(crate) fn variable(name: &str) -> Option<&'static [u8]> {
    variables().find_map(|text| text.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")).filter(|value| !value.is_empty())
}

/// Whether a variable that is 1 or 0 is 1.
pub(crate) fn is_on(name: &str) -> bool {
    variable(name) == Some(b"1")
}
