//! The notes of `driver::watcher` on a ring.

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watched {
    /// The watcher scans this ring.
    pub(crate) is_listed: bool,
    /// The ring's epoll set is armed in the watcher's.
    pub(crate) is_armed: bool,
    /// It was added there at some time.
    pub(crate) is_added: bool,
    /// The watcher has driven this ring: its program polls the CQ without system calls.
    pub(crate) polls_cq: bool,
    /// Counts returns from enter().
    pub(crate) seq: u32,
    pub(crate) seen_seq: u32,
}
