//! What answers the io_uring calls of a process: the kernel or the engine (`URINGLET`), and whether
//! it is the engine already.

use syscalls::{Sysno, syscall};

/// What answers the io_uring calls of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RingBackend {
    /// The kernel's io_uring: the process is as without uringlet.
    Kernel,
    /// The engine.
    #[default]
    Engine,
    /// The kernel's io_uring where it works for this process, else the engine.
    WhenBlocked,
    /// The kernel's io_uring, whose rings `uringlet trace --kernel` looks at.
    KernelTraced,
}

impl RingBackend {
    /// The variable that chooses.
    pub const VARIABLE: &str = "URINGLET";

    /// The name of [`KernelTraced`](Self::KernelTraced).
    pub const NAME_KERNEL_TRACED: &str = "kernel-traced";

    /// The backends that users choose from, as the variable has them.
    pub const NAMES: [&str; 3] = ["kernel", "engine", "when-blocked"];

    /// The backend of this name.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"kernel" => Some(Self::Kernel),
            b"engine" => Some(Self::Engine),
            b"when-blocked" => Some(Self::WhenBlocked),
            b"kernel-traced" => Some(Self::KernelTraced),
            _ => None,
        }
    }
}

/// An option of prctl(2) that no kernel has. The engine answers it with 1 at the call sites that it
/// has rewritten.
///
/// It asks about the caller's own code, makes no ring, and is harmless where a seccomp filter kills
/// for io_uring calls.
pub const PR_GET_RING_ENGINE: u32 = 0x7572_6c74;

/// Whether the engine answers the system calls of the code that this is linked into.
#[must_use]
pub fn is_attached() -> bool {
    // SAFETY: no addresses.
    unsafe { syscall!(Sysno::prctl, PR_GET_RING_ENGINE, 0, 0, 0, 0) == Ok(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_meaning() {
        assert!(RingBackend::NAMES.iter().all(|name| RingBackend::named(name.as_bytes()).is_some()));
        assert_eq!(RingBackend::named(b""), None);
    }

    #[test]
    fn a_plain_process_is_not_attached() {
        assert!(!is_attached());
    }
}
