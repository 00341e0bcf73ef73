//! The outcome of an op.

use uringlet_sys::Errno;

/// The outcome of a finished op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The CQE's result.
    pub(crate) res: i32,
    /// `IORING_CQE_F_*` bits.
    pub(crate) flags: u32,
    /// Whether it breaks a link: an error, or less done than requested.
    pub(crate) is_failure: bool,
}

impl Outcome {
    pub(crate) const fn ok(res: i32) -> Self {
        Self { res, flags: 0, is_failure: false }
    }

    pub(crate) fn err(errno: Errno) -> Self {
        Self { res: -errno.into_raw(), flags: 0, is_failure: true }
    }

    /// An errno that is no failure: it breaks no link, and `CQE_SKIP_SUCCESS` suppresses its CQE.
    pub(crate) fn errno_ok(errno: Errno) -> Self {
        Self { is_failure: false, ..Self::err(errno) }
    }

    /// The result of a call whose errors the kernel does not count as failures.
    pub(crate) fn result_ok(res: Result<usize, Errno>) -> Self {
        Self { is_failure: false, ..Self::from(res) }
    }

    /// A transfer of `done` of `wanted` bytes: a short one breaks a link.
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

/// The second CQE of a zero-copy send: its buffer may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    /// Its user_data.
    pub(crate) user_data: u64,
    /// Its result.
    pub(crate) res: i32,
    /// Whether the first CQE announces it (`F_MORE`).
    pub(crate) is_announced: bool,
}
