//! What `--explain` prints about an object.

use super::plan::PatchKind;

/// The outcome of examining one object.
#[derive(Debug)]
pub(crate) struct ObjectReport<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) build_id: &'a [u8],
    /// Sites rewritten, by kind.
    pub(crate) kinds: [(PatchKind, u32); 4],
    /// Rewritten sites with a constant io_uring number.
    pub(crate) ring: u32,
    /// Rewritten sites whose number is looked up.
    pub(crate) any_number: u32,
    /// Sites that may be intercepted calls and stay as they are.
    pub(crate) unpatched: u32,
    pub(crate) source: FindingsSource,
    pub(crate) microseconds: u64,
}

/// Where an object's findings come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FindingsSource {
    Cache,
    Scan,
}
