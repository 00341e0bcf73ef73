//! The notes of `driver::watcher` on a ring.

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    /// The watcher scans this ring.
    pub(crate) is_listed: bool,
    /// The ring's epoll set is armed in the watcher's.
    pub(crate) is_armed: bool,
    /// It was added there at some time.
    pub(crate) is_added: bool,
    /// The program polls the CQ without system calls: the watcher has driven this ring, or has not
    /// seen yet who does.
    pub(crate) polls_cq: bool,
    /// Counts returns from enter().
    pub(crate) seq: u32,
    pub(crate) seen_seq: u32,
}

impl Default for Watched {
    fn default() -> Self {
        Self { is_listed: false, is_armed: false, is_added: false, polls_cq: true, seq: 0, seen_seq: 0 }
    }
}
