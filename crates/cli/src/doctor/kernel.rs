//! What the kernel says to io_uring here.

use uringlet_sys::Errno;
use uringlet_sys::spawn::{CopyEnd, ask_kernel_for_ring};

use super::place::BlockCause;

/// The answer of io_uring_setup(2).
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelAnswer {
    end: Result<CopyEnd, Errno>,
}

pub(super) fn ask() -> KernelAnswer {
    KernelAnswer { end: ask_kernel_for_ring() }
}

impl KernelAnswer {
    pub(super) fn works(self) -> bool {
        self.errno() == Some(Errno::EFAULT)
    }

    /// `None`: it could not be asked.
    pub(super) fn is_free(self) -> Option<bool> {
        self.end.is_ok().then(|| self.works())
    }

    fn errno(self) -> Option<Errno> {
        match self.end {
            Ok(CopyEnd::Exit(errno)) => Some(Errno::new(errno)),
            _ => None,
        }
    }

    /// In words.
    pub(super) fn describe(self, cause: &BlockCause) -> String {
        match (self.end, self.errno()) {
            (_, Some(Errno::EFAULT)) => "allowed".into(),
            (_, Some(Errno::EPERM)) => format!("denied (EPERM): {}", cause.of_eperm()),
            (_, Some(Errno::ENOSYS)) if cause.has_filter => "not there (ENOSYS): hidden by a seccomp filter, or not in this kernel".into(),
            (_, Some(Errno::ENOSYS)) => "not there (ENOSYS): not in this kernel".into(),
            (_, Some(errno)) => format!("denied ({errno})"),
            (Ok(CopyEnd::Signal(signal)), _) => format!("kills the process (signal {signal}): by a seccomp filter"),
            (Err(errno), _) => format!("not known: no process can be made to ask ({errno})"),
            (Ok(CopyEnd::Exit(_)), None) => "not known".into(),
        }
    }
}
