//! Copies within the program's memory that survive a bad address.
//!
//! process_vm_readv(2) pins every page that it reads: 1.36 µs for 4 KiB, of which moving the bytes
//! takes 0.07. So `arch::copy_user` copies, whose loads and stores may fault, where faults are
//! handled. The attach library installs a handler of SIGSEGV and SIGBUS that asks [`fixup_address`]
//! where a faulting instruction resumes. It passes [`set_fault_check`] a function that tells
//! whether that handler is in force on the calling thread at this moment. Without a check, or when
//! it says no, the kernel copies.
//!
//! Where a filter denies that call to the kernel, and faults are not handled (on the engine's own
//! threads; in the drop-in library), a pipe copies: 2 µs.
//!
//! `docs/decisions/0015` has the measurements and the rejected alternatives.

use crate::arch::{self, PAGE_SIZE};
use crate::io;
use crate::static_ref::StaticRef;
use crate::user_ptr::UserPtr;
use syscalls::Errno;

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

/// Copies `len` bytes within the program's memory, if faults of this thread are handled. Returns
/// the bytes copied: fewer where an address is bad.
pub(crate) fn copy_if_guarded(to: UserPtr, from: UserPtr, len: usize) -> Option<usize> {
    // SAFETY: both addresses are the program's, or one is a live buffer of the engine's. That they
    // are buffers is what `AppPromise` stands for; where nothing is mapped the handler behind the
    // check ends the copy. No reference to source or destination is used meanwhile.
    are_faults_handled().then(|| len - unsafe { arch::copy_user(to.addr(), from.addr(), len) })
}

/// A copy where a filter denies process_vm_readv(2) or process_vm_writev(2): by this thread, if its
/// faults are handled, else through a pipe. Returns the bytes copied.
///
/// # Errors
/// `EFAULT` none could be; those of pipe2(2).
#[cold]
pub(crate) fn copy_if_denied(to: UserPtr, from: UserPtr, len: usize) -> Result<usize, Errno> {
    match copy_if_guarded(to, from, len) {
        Some(0) => Err(Errno::EFAULT),
        Some(done) => Ok(done),
        None => copy_through_pipe(to, from, len),
    }
}

/// write(2) and read(2) answer EFAULT for a bad address. The pipe is the copy's own: threads,
/// forked children and threads with a descriptor table of their own cannot meet in it.
fn copy_through_pipe(to: UserPtr, from: UserPtr, len: usize) -> Result<usize, Errno> {
    let [reader, writer] = io::pipe(io::O_CLOEXEC | io::O_NONBLOCK)?;
    let mut done = 0;
    let result = loop {
        // An empty pipe takes a page, but nothing of a page of which a part cannot be read.
        let (from, to) = (from.add(done), to.add(done));
        let within_pages = PAGE_SIZE - (from.addr() % PAGE_SIZE).max(to.addr() % PAGE_SIZE);
        let n = match io::write(writer, from, within_pages.min(len - done)) {
            Ok(n) if n > 0 => n,
            Ok(_) => break Ok(done),
            Err(errno) => break Err(errno),
        };
        match io::read(reader, to, n) {
            Ok(moved) if moved == n => done += n,
            Ok(moved) => break Ok(done + moved),
            Err(errno) => break Err(errno),
        }
        if done == len {
            break Ok(done);
        }
    };
    let _ = (io::close(reader), io::close(writer));
    if done > 0 { Ok(result.unwrap_or(done)) } else { result }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_through_a_pipe_stop_at_a_bad_address() {
        let from: [u8; 10_000] = core::array::from_fn(|i| i as u8);
        let mut to = [0_u8; 10_000];
        let (a, b) = (io::ptr_of_mut(&mut to), io::ptr_of(&from));
        assert_eq!(copy_through_pipe(a, b, 10_000), Ok(10_000));
        assert_eq!(to, from);
        assert_eq!(copy_through_pipe(UserPtr::new(8), b, 10), Err(Errno::EFAULT));
        assert_eq!(copy_through_pipe(a, UserPtr::new(8), 10), Err(Errno::EFAULT));
        // Two pages, of which the second is not mapped.
        let pages = crate::mm::map_anonymous(8192, 0).unwrap();
        // SAFETY: nothing uses it.
        unsafe { crate::mm::unmap(pages + 4096, 4096) }.unwrap();
        assert_eq!(copy_through_pipe(a, UserPtr::new(pages + 2048), 4096), Ok(2048));
        assert_eq!(copy_if_denied(a, b, 10_000), Ok(10_000));
    }
}
