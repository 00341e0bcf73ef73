//! The kernel's `ucontext` of x86-64: what a signal interrupted.

use core::ffi::c_void;

use crate::convert::address;

/// Offsets in `struct ucontext`: the general registers begin at 40, the mask follows the whole
/// `sigcontext`.
const RAX: usize = 144;
const RCX: usize = 152;
const RSP: usize = 160;
const RIP: usize = 168;
const MASK: usize = 296;
/// The registers of a system call's arguments: rdi, rsi, rdx, r10, r8, r9.
const ARGS: [usize; 6] = [104, 112, 136, 56, 40, 48];

/// What a signal handler was given as its third argument.
#[derive(Clone, Copy)]
pub(crate) struct SignalContext(*mut u8);

impl SignalContext {
    /// # Safety
    /// `context` is what the kernel passed to a handler that has not returned yet.
    pub(crate) unsafe fn new(context: *mut c_void) -> Self {
        Self(context.cast())
    }

    /// The pointer that `new` was given.
    pub(crate) fn as_ptr(self) -> *mut c_void {
        self.0.cast()
    }

    fn word(self, offset: usize) -> *mut usize {
        self.0.wrapping_add(offset).cast()
    }

    /// The interrupted thread's stack pointer.
    pub(crate) fn stack_pointer(self) -> usize {
        // SAFETY: `new` promised a live context, and this is a word of it.
        unsafe { self.word(RSP).read() }
    }

    /// Where the thread continues when the handler returns.
    pub(crate) fn program_counter(self) -> usize {
        // SAFETY: as above.
        unsafe { self.word(RIP).read() }
    }

    /// Makes the thread continue elsewhere.
    ///
    /// # Safety
    /// The code there expects the interrupted thread's registers.
    pub(crate) unsafe fn set_program_counter(self, address: usize) {
        // SAFETY: as above.
        unsafe { self.word(RIP).write(address) };
    }

    /// The system call that a filter has trapped: its number and arguments.
    pub(crate) fn call(self) -> (usize, [usize; 6]) {
        // SAFETY: as above; these are words of it.
        unsafe { (self.word(RAX).read(), ARGS.map(|offset| self.word(offset).read())) }
    }

    /// Gives a trapped call its result.
    ///
    /// # Safety
    /// The thread continues behind a system call, whose result this is.
    pub(crate) unsafe fn set_result(self, result: isize) {
        // SAFETY: as above.
        unsafe { self.word(RAX).write(result.cast_unsigned()) };
    }

    /// Makes the thread continue at `entry`, with `rcx` = where it would have continued.
    ///
    /// # Safety
    /// The thread is behind a system call instruction, which destroys `rcx`; `entry` expects that.
    pub(crate) unsafe fn call_by_way_of(self, entry: usize) {
        // SAFETY: as above.
        unsafe {
            self.word(RCX).write(self.program_counter());
            self.set_program_counter(entry);
        }
    }

    /// The signal mask that the kernel restores when the handler returns.
    pub(crate) fn mask(self) -> u64 {
        // SAFETY: as above; the mask is a word as well.
        unsafe { self.word(MASK).read() as u64 }
    }

    /// Makes the kernel restore another mask.
    pub(crate) fn set_mask(self, mask: u64) {
        // SAFETY: as above.
        unsafe { self.word(MASK).write(address(mask)) };
    }
}
