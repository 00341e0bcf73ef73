//! What `driver::watcher` remembers of a ring.

/// A ring as the watcher sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watched {
    /// The watcher looks at this ring.
    pub(crate) is_listed: bool,
    /// The ring's epoll set is armed in the watcher's.
    pub(crate) is_armed: bool,
    /// It was added there once.
    pub(crate) is_added: bool,
    /// The watcher has brought this ring on: its program reads the CQ without calls.
    pub(crate) is_useful: bool,
    /// Counts returns from enter().
    pub(crate) seq: u32,
    pub(crate) seen_seq: u32,
}
