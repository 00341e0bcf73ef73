//! What a shared object without libc must supply itself: `memcpy` and its kin, the allocator, the
//! panic handler.
//!
//! One macro, [`freestanding!`](macro@crate::freestanding), expanded once in each final object. It
//! is a macro and no cargo feature because features unify over a workspace: a feature would put a
//! second panic handler into every std test binary. The memory routines are in `arch`.

use crate::linux::general::{SIG_UNBLOCK, SIGABRT, STDERR_FILENO};
use crate::process::{pid_now, tid};
use crate::signal::SIGSET_BYTES;
use core::fmt::{self, Write};
use core::panic::PanicInfo;
use syscalls::{Sysno, raw_syscall};

#[doc(hidden)]
pub use crate::heap::Heap;

/// Text for standard error, collected so that one message is one write.
struct PanicMessage {
    bytes: [u8; 512],
    len: usize,
}

impl Write for PanicMessage {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.len;
        let taken = text.len().min(room);
        self.bytes[self.len..self.len + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        Ok(())
    }
}

/// What the panic handler of [`freestanding!`](macro@crate::freestanding) does: one message on
/// standard error, then death by SIGABRT.
///
/// The process ends even when SIGABRT is blocked, ignored or caught: an engine in an unknown state
/// must not go on moving the program's data.
pub fn panicked(object: &str, info: &PanicInfo<'_>) -> ! {
    let mut message = PanicMessage { bytes: [0; 512], len: 0 };
    let _ = writeln!(message, "{object}: internal error, aborting: {info}");
    // SAFETY: write(2) reads `len` bytes of a live array.
    unsafe { raw_syscall!(Sysno::write, STDERR_FILENO, message.bytes.as_ptr(), message.len) };
    abort()
}

fn abort() -> ! {
    let only_abrt: u64 = 1 << (SIGABRT - 1);
    // SAFETY: rt_sigprocmask(2) reads one live u64; the other calls take no address.
    unsafe {
        raw_syscall!(Sysno::rt_sigprocmask, SIG_UNBLOCK, &raw const only_abrt, 0, SIGSET_BYTES);
        raw_syscall!(Sysno::tgkill, pid_now(), tid(), SIGABRT);
        loop {
            raw_syscall!(Sysno::exit_group, 128 + SIGABRT);
        }
    }
}

/// Makes the crate it is expanded in a complete object without libc. `$object` is the name that
/// panic messages carry.
///
/// The heap is the static `FREESTANDING_HEAP`: fork handlers call its `lock_for_fork` and
/// `unlock_after_fork`.
#[macro_export]
macro_rules! freestanding {
    ($object:literal) => {
        /// The heap of this object; fork handlers lock it.
        #[global_allocator]
        pub(crate) static FREESTANDING_HEAP: $crate::freestanding::Heap = $crate::freestanding::Heap::new();

        #[panic_handler]
        fn freestanding_panic(info: &::core::panic::PanicInfo<'_>) -> ! {
            $crate::freestanding::panicked($object, info)
        }

        $crate::freestanding_memory!("");
    };
}
