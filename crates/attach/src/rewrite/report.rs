//! What `--explain` prints about an object.

use core::ffi::CStr;

use super::plan::{LeftAlone, PatchKind, PatchPlan};
use crate::convert::address;
use crate::symbol_table::SymbolTable;

/// The outcome of examining one object.
#[derive(Debug)]
pub(crate) struct ObjectReport<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) build_id: &'a [u8],
    pub(crate) base: u64,
    /// Its dynamic symbols.
    pub(crate) symbols: Option<SymbolTable>,
    /// The sites that were rewritten, by address.
    pub(crate) sites: &'a [&'a PatchPlan],
    /// Their number, by kind.
    pub(crate) kinds: [(PatchKind, u32); 4],
    /// Rewritten sites with a constant io_uring number.
    pub(crate) ring: u32,
    /// Rewritten sites whose number is looked up.
    pub(crate) any_number: u32,
    /// Sites that may be intercepted calls and stay as they are.
    pub(crate) left: &'a [LeftAlone],
    pub(crate) source: FindingsSource,
    pub(crate) microseconds: u64,
}

impl ObjectReport<'_> {
    /// The function that a site lies in, as far as the dynamic symbols tell, and how far behind its
    /// beginning, bytes. `site` is relative to the object's load address.
    pub(crate) fn function_at(&self, site: u64) -> Option<(&'static CStr, usize)> {
        self.symbols?.containing(address(self.base.wrapping_add(site)))
    }
}

/// Where an object's findings come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FindingsSource {
    Cache,
    Scan,
}
