//! Objects that come later: `dlopen` is noticed at the dynamic linker's `r_brk`, the function it calls for debuggers each time its list has changed.
//!
//! `dlopen` itself must not be wrapped: it searches by its caller's RUNPATH. glibc calls `r_brk` after mapping the new objects and before their
//! constructors, with its lock held.

use core::arch::naked_asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::entry::on_engine_stack;
use crate::rewrite::{self, LoadedObject};

/// The beginning of the dynamic linker's `struct r_debug`.
#[repr(C)]
struct RDebug {
    version: i32,
    map: usize,
    breakpoint: usize,
    /// 0: the list is consistent. Otherwise something is being added or removed.
    state: i32,
}

static R_DEBUG: AtomicUsize = AtomicUsize::new(0);

/// Puts the hook into the dynamic linker. `state` is the address of its `r_debug`. False: the place does not look as expected (a debugger's breakpoint is
/// there, say).
pub(crate) fn install(objects: &[LoadedObject]) -> bool {
    let Some(state) = rewrite::r_debug_address(objects) else { return false };
    // SAFETY: DT_DEBUG or the symbol `_r_debug` gave the address of the linker's own structure.
    let breakpoint = unsafe { (*(state as *const RDebug)).breakpoint };
    R_DEBUG.store(state, Ordering::Relaxed);
    rewrite::hook_empty_function(objects, breakpoint, changed as *const () as usize)
}

/// Called in place of the empty function that was there.
#[unsafe(naked)]
unsafe extern "C" fn changed() {
    // The linker's own code need not expect that an empty function touches a vector register.
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, 256",
        "and rsp, -16",
        ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
        "movaps [rsp + 16 * \\n], xmm\\n",
        ".endr",
        "push rax",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "call {look}",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop rax",
        ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
        "movaps xmm\\n, [rsp + 16 * \\n]",
        ".endr",
        "leave",
        "ret",
        look = sym look,
    )
}

extern "C" fn look() {
    let state = R_DEBUG.load(Ordering::Relaxed) as *const RDebug;
    // SAFETY: set in `install`; the linker's structure is never freed. The linker's lock is held, so nobody writes it now.
    if unsafe { (*state).state } == 0 {
        on_engine_stack(rewrite::update);
    }
}
