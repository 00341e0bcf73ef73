//! Calls on rings of the kernel's that `uringlet trace --kernel` looks at: they are passed on. A
//! copy of the process that cannot own its memory (`Engine::own`) is not looked at.

use uringlet_core::ENGINE;
use uringlet_core::kernel_trace::{self, KernelEnter, KernelRegister};
use uringlet_sys::{Sysno, UserPtr};

use crate::before_ring;
use crate::convert::low_u32;
use crate::kernel_call::issue;

/// io_uring_enter(2)
#[cold]
pub(crate) fn enter(args: [usize; 6]) -> isize {
    if ENGINE.own().is_err() {
        return issue(Sysno::io_uring_enter, args);
    }
    let [fd, to_submit, min_complete, flags] = [args[0], args[1], args[2], args[3]].map(low_u32);
    kernel_trace::enter(KernelEnter { fd, to_submit, min_complete, flags }, || issue(Sysno::io_uring_enter, args))
}

/// io_uring_setup(2) and io_uring_register(2).
pub(crate) fn call(nr: Sysno, args: [usize; 6]) -> isize {
    if ENGINE.own().is_err() {
        return issue(nr, args);
    }
    if nr == Sysno::io_uring_setup {
        before_ring::prepare();
        let result = issue(nr, args);
        kernel_trace::ring_made(result, UserPtr::new(args[1]));
        return result;
    }
    let [fd, opcode, nr_args] = [args[0], args[1], args[3]].map(low_u32);
    kernel_trace::register(KernelRegister { fd, opcode, arg: UserPtr::new(args[2]), nr_args }, || issue(nr, args))
}
