//! Rewriting the system calls that programs and libraries issue themselves.
//!
//! | module | holds |
//! |---|---|
//! | `examine` | which objects are rewritten, and when |
//! | `object`, `unwind` | loaded objects; their functions |
//! | `prefilter`, `scan` | whether an object may have a site; finding its sites |
//! | `plan` | how a site is rewritten, as data; `arch` decides it |
//! | `install`, `region`, `patch` | writing trampolines and the jumps to them |
//! | `cache`, `record` | findings kept between starts |
//! | `libc_sites` | the hooks in libc and the dynamic linker |
//! | `report` | what `--explain` prints about an object |

mod cache;
mod examine;
mod install;
mod libc_sites;
mod object;
mod patch;
mod plan;
mod prefilter;
mod record;
mod region;
mod report;
mod scan;
mod unwind;

pub(crate) use examine::{CacheUse, examine, examine_loaded};
pub(crate) use libc_sites::{hook_empty_function, hook_exec_calls, libc_of, own_path, r_debug_address};
pub(crate) use object::{LoadedObject, loaded};
pub(crate) use plan::{ANY_NUMBER, MovedInsn, PatchKind, PatchPlan, Relocation, SiteClass};
#[cfg(test)]
pub(crate) use region::HEADER_BYTES;
pub(crate) use region::{HEADER_ENTRY, HEADER_TABLE, trampolines_at};
pub(crate) use report::{FindingsSource, ObjectReport};
