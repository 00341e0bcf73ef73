//! The environment that the program was started with: found without libc's help, because our
//! constructor runs before libc's own.

use core::ffi::{CStr, c_char};

use crate::arch::weak_address;

/// The array of variables, which ends in null.
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

/// The address where the kernel put argc.
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
