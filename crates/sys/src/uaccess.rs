//! Copies within the program's memory that survive a bad address.
//!
//! process_vm_readv(2) pins every page that it reads: 1.36 µs for 4 KiB, of which moving the bytes
//! takes 0.07. So `arch::copy_user` copies, whose loads and stores may fault, where faults are
//! handled. The attach library installs a handler of SIGSEGV and SIGBUS that asks [`fixup_address`]
//! where a faulting instruction resumes. It passes [`set_fault_check`] a function that tells
//! whether that handler is in force on the calling thread at this moment. Without a check, or when
//! it says no, the kernel copies.
//!
//! `docs/decisions/0015` has the measurements and the rejected alternatives.

use crate::arch;
use crate::static_ref::StaticRef;
use crate::user::{self, UserPtr};

/// Whether a fault of a copy on the calling thread is handled.
pub type FaultCheck = fn() -> bool;

static FAULT_CHECK: StaticRef<FaultCheck> = StaticRef::new();

/// From now on `check` is called before a copy.
pub fn set_fault_check(check: &'static FaultCheck) {
    FAULT_CHECK.set(check);
}

fn are_faults_handled() -> bool {
    FAULT_CHECK.get().is_some_and(|check| check())
}

/// Where a thread resumes whose instruction at `fault` has faulted. `None`: the fault is not a
/// copy's.
#[must_use]
pub fn fixup_address(fault: usize) -> Option<usize> {
    arch::copy_fixup(fault)
}

/// Copies `len` bytes within the program's memory. Returns the bytes copied: fewer where an address
/// is bad.
#[must_use]
pub fn copy_in_user(to: UserPtr, from: UserPtr, len: usize) -> usize {
    if !are_faults_handled() {
        return user::copy_by_kernel(to, from, len);
    }
    // SAFETY: both addresses are the program's. That they are buffers is what `AppPromise` stands
    // for; where nothing is mapped the handler behind the check ends the copy. No reference to
    // source or destination exists.
    len - unsafe { arch::copy_user(to.addr(), from.addr(), len) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io;

    #[test]
    fn copies_stop_at_a_bad_address() {
        let from = *b"some bytes";
        let mut to = [0_u8; 10];
        let (a, b) = (io::ptr_of_mut(&mut to), io::ptr_of(&from));
        assert_eq!(copy_in_user(a, b, 10), 10);
        assert_eq!(to, from);
        assert_eq!(copy_in_user(UserPtr::NULL, b, 10), 0);
        assert_eq!(copy_in_user(a, UserPtr::new(8), 10), 0);
    }
}
