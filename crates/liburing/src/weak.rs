//! Symbols that may be missing when the library is loaded: this object needs no other library, not
//! even libc, but uses functions of the program's libc.

use core::ffi::{CStr, c_char};
use core::sync::atomic::AtomicI32;

use crate::arch::address_of_weak;

/// A pointer, a size or a number: one register.
pub(crate) type Arg = usize;
/// The callback of dl_iterate_phdr(3)
pub(crate) type ShowObject = extern "C" fn(object: *const u8, len: usize, data: *mut u8) -> i32;
/// dl_iterate_phdr(3)
pub(crate) type DlIteratePhdr = unsafe extern "C" fn(ShowObject, data: *mut u8) -> i32;
/// calloc(3)
pub(crate) type Calloc = extern "C" fn(count: usize, size: usize) -> *mut u8;
/// free(3)
pub(crate) type Free = extern "C" fn(block: *mut u8);
/// syscall(2)
pub(crate) type Syscall = unsafe extern "C" fn(number: isize, ...) -> isize;
/// syscall(2), with all of its arguments
pub(crate) type PlainSyscall = extern "C" fn(Arg, Arg, Arg, Arg, Arg, Arg, Arg) -> isize;
/// A function of up to five integers or pointers
pub(crate) type IntFunction = extern "C" fn(Arg, Arg, Arg, Arg, Arg) -> i32;
/// A function of three integers or pointers that returns a pointer
pub(crate) type PointerFunction = extern "C" fn(Arg, Arg, Arg) -> Arg;
/// `__errno_location`
pub(crate) type ErrnoLocation = extern "C" fn() -> *mut i32;
/// secure_getenv(3)
pub(crate) type SecureGetenv = extern "C" fn(name: *const c_char) -> *const c_char;
/// A handler of pthread_atfork(3)
pub(crate) type ForkHandler = extern "C" fn();
/// glibc's `__register_atfork`
pub(crate) type RegisterAtfork = extern "C" fn(ForkHandler, ForkHandler, ForkHandler, object: *const u8) -> i32;
/// pthread_atfork(3)
pub(crate) type PthreadAtfork = extern "C" fn(ForkHandler, ForkHandler, ForkHandler) -> i32;

/// `T` is a function pointer type.
fn function<T: Copy>(address: usize) -> Option<T> {
    const { assert!(size_of::<Option<T>>() == size_of::<usize>()) };
    // SAFETY: an `Option` of a function pointer is its address or 0, and each caller below names
    // the symbol's true type.
    unsafe { core::mem::transmute_copy(&address) }
}

/// Calls the function at this address: one of libc that takes up to five integers or pointers and
/// returns an `int`. 0, a missing one, answers -1.
pub(crate) fn call_int(address: usize, [a, b, c, d, e]: [Arg; 5]) -> i32 {
    function::<IntFunction>(address).map_or(-1, |call| call(a, b, c, d, e))
}

/// As [`call_int`], for a function that takes three and returns a pointer. 0 for a missing one.
pub(crate) fn call_pointer(address: usize, [a, b, c]: [Arg; 3]) -> Arg {
    function::<PointerFunction>(address).map_or(0, |call| call(a, b, c))
}

/// The calling thread's errno, for use in that thread.
pub(crate) fn errno() -> Option<&'static AtomicI32> {
    let location: ErrnoLocation = function(address_of_weak!("__errno_location"))?;
    // SAFETY: libc returns the address of an int that lives as long as the thread.
    Some(unsafe { AtomicI32::from_ptr(location()) })
}

/// The value of a variable of the environment, unless the program has gained privileges by its
/// execve(2).
pub(crate) fn variable(name: &CStr) -> Option<&'static [u8]> {
    let secure_getenv: SecureGetenv = function(address_of_weak!("secure_getenv"))?;
    let text = secure_getenv(name.as_ptr());
    // SAFETY: libc returns null or a string of the environment. It is read at once.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes()).filter(|text| !text.is_empty())
}

/// Calls libc's `syscall`.
pub(crate) fn call_syscall([nr, a, b, c, d, e, f]: [Arg; 7]) -> isize {
    function::<PlainSyscall>(address_of_weak!("syscall")).map_or(-1, |call| call(nr, a, b, c, d, e, f))
}

pub(crate) fn calloc() -> Option<Calloc> {
    function(address_of_weak!("calloc"))
}

pub(crate) fn free() -> Option<Free> {
    function(address_of_weak!("free"))
}

pub(crate) fn dl_iterate_phdr() -> Option<DlIteratePhdr> {
    function(address_of_weak!("dl_iterate_phdr"))
}

pub(crate) fn register_atfork() -> Option<RegisterAtfork> {
    function(address_of_weak!("__register_atfork"))
}

pub(crate) fn pthread_atfork() -> Option<PthreadAtfork> {
    function(address_of_weak!("pthread_atfork"))
}

/// `syscall`, if attach (`liburinglet.so`) has put its own before libc's. Attach then defines
/// `uringlet_attached`.
pub(crate) fn attached_syscall() -> Option<(Syscall, ErrnoLocation)> {
    if address_of_weak!("uringlet_attached") == 0 {
        return None;
    }
    function(address_of_weak!("syscall")).zip(function(address_of_weak!("__errno_location")))
}
