//! What the kernel says to io_uring here.

use uringlet_sys::Errno;
use uringlet_sys::spawn::{CopyEnd, ask_kernel_for_ring};

/// The answer of io_uring_setup(2), and the value of `kernel.io_uring_disabled`.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelAnswer {
    end: Result<CopyEnd, Errno>,
    disabled: Option<u32>,
}

pub(super) fn ask() -> KernelAnswer {
    let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    KernelAnswer { end: ask_kernel_for_ring(), disabled: text.ok().and_then(|text| text.trim().parse().ok()) }
}

impl KernelAnswer {
    pub(super) fn works(self) -> bool {
        self.errno() == Some(Errno::EFAULT)
    }

    fn errno(self) -> Option<Errno> {
        match self.end {
            Ok(CopyEnd::Exit(errno)) => Some(Errno::new(errno)),
            _ => None,
        }
    }

    /// In words.
    pub(super) fn describe(self) -> String {
        match (self.end, self.errno(), self.disabled) {
            (_, Some(Errno::EFAULT), _) => "allowed".into(),
            (_, Some(Errno::EPERM), Some(disabled @ 1..)) => format!("denied (EPERM): kernel.io_uring_disabled is {disabled}"),
            (_, Some(Errno::EPERM), _) => "denied (EPERM): by a seccomp filter or a security module".into(),
            (_, Some(Errno::ENOSYS), _) => "not there (ENOSYS): not in this kernel, or hidden by a filter".into(),
            (_, Some(errno), _) => format!("denied ({errno})"),
            (Ok(CopyEnd::Signal(signal)), ..) => format!("kills the process (signal {signal}): by a seccomp filter"),
            (Err(errno), ..) => format!("not known: no process can be made to ask ({errno})"),
            (Ok(CopyEnd::Exit(_)), None, _) => "not known".into(),
        }
    }
}
