//! What an op says when it is done.

use uringlet_sys::Errno;

/// What a finished op says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The CQE's result.
    pub(crate) res: i32,
    /// `IORING_CQE_F_*` bits.
    pub(crate) flags: u32,
    /// Whether a link behind it breaks: an error, or less done than asked.
    pub(crate) is_failure: bool,
}

impl Outcome {
    pub(crate) const fn ok(res: i32) -> Self {
        Self { res, flags: 0, is_failure: false }
    }

    pub(crate) fn err(errno: Errno) -> Self {
        Self { res: -errno.into_raw(), flags: 0, is_failure: true }
    }

    /// An errno that is no failure: it breaks no link, and `CQE_SKIP_SUCCESS` silences it.
    pub(crate) fn errno_ok(errno: Errno) -> Self {
        Self { is_failure: false, ..Self::err(errno) }
    }

    /// What a call said, for an op whose errors the kernel does not count as failures.
    pub(crate) fn result_ok(res: Result<usize, Errno>) -> Self {
        Self { is_failure: false, ..Self::from(res) }
    }

    /// A transfer of `done` bytes where `wanted` were asked for: less breaks a link.
    pub(crate) fn transfer(done: usize, wanted: usize) -> Self {
        Self { res: done as i32, flags: 0, is_failure: done < wanted }
    }

    pub(crate) const fn with_flags(self, flags: u32) -> Self {
        Self { flags: self.flags | flags, ..self }
    }
}

impl From<Result<usize, Errno>> for Outcome {
    fn from(res: Result<usize, Errno>) -> Self {
        match res {
            Ok(n) => Self::ok(n as i32),
            Err(errno) => Self::err(errno),
        }
    }
}

/// A second CQE, which says that a send's buffer may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    /// Its result.
    pub(crate) res: i32,
    /// The first CQE says that another one follows (`F_MORE`).
    pub(crate) is_announced: bool,
}
