//! Rewriting the system calls that programs and libraries issue themselves.
//!
//! | module | holds |
//! |---|---|
//! | `examine` | which objects are rewritten, and when |
//! | `object`, `relocations` | loaded objects; addresses that a static program is yet to store |
//! | `unwind`, `go_table`, `call_targets` | their functions: by unwind tables, Go's table, or calls |
//! | `computed_targets` | where their computed jumps lead |
//! | `prefilter`, `scan` | whether an object may have a site; finding its sites |
//! | `plan` | how a site is rewritten, as data; `arch` decides it |
//! | `install`, `region`, `patch` | writing trampolines and the jumps to them |
//! | `cache`, `record` | findings kept between starts |
//! | `libc_sites` | the hooks in libc and the dynamic linker |
//! | `report` | what `--explain` prints about an object |

mod cache;
mod call_targets;
mod computed_targets;
mod examine;
mod go_table;
mod install;
mod libc_sites;
mod object;
mod patch;
mod plan;
mod prefilter;
#[cfg(test)]
mod real_programs;
mod record;
mod region;
mod relocations;
mod report;
mod scan;
mod unwind;

pub(crate) use cache::Cache;
pub(crate) use examine::{CacheUse, ScanTotals, examine, examine_loaded};
pub(crate) use go_table::is_static_go;
pub(crate) use libc_sites::{hook_calls, hook_empty_function, hook_exec_calls, libc_of, own_path, r_debug_address};
pub(crate) use object::{LoadedObject, loaded};
pub(crate) use plan::{ANY_NUMBER, LeftAlone, MovedInsn, PatchKind, PatchPlan, Reason, Relocation, SiteClass};
#[cfg(test)]
pub(crate) use region::HEADER_BYTES;
pub(crate) use region::{HEADER_ENTRY, HEADER_TABLE, trampolines_at};
pub(crate) use report::{FindingsSource, ObjectReport};
