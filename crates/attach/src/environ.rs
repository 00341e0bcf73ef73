//! The environment that the program was started with: found without libc's help, because our
//! constructor runs before libc's own.

use core::ffi::{CStr, c_char};

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

/// The address where the kernel put argc.
fn initial_stack() -> Option<*const usize> {
    let stack = variable_at(weak_address!("__libc_stack_end")) as *const usize;
    (!stack.is_null()).then_some(stack)
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

/// The value of one variable.
pub(crate) fn variable(name: &str) -> Option<&'static [u8]> {
    variables().find_map(|text| text.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}
