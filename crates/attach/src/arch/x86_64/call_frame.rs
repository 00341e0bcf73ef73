//! The registers of an intercepted call, as [`push_call!`](super::asm) leaves them on the program's
//! stack.

/// A system call as the engine sees it, lowest address first.
#[repr(C)]
pub(crate) struct CallFrame {
    rbx: usize,
    args: [usize; 6],
    /// `ah` and `al` hold the flags of a rewritten site.
    pub(super) flags: usize,
    /// The system call's number; `site_entry` returns the result in its place.
    pub(crate) nr: usize,
    /// Where a rewritten site continues.
    pub(super) resume: usize,
}

impl CallFrame {
    /// The arguments, in the order of the system call.
    pub(crate) fn args(&self) -> [usize; 6] {
        self.args
    }
}
