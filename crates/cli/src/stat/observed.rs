//! A process with an engine, at one moment.

use super::block::{Snapshot, StatsBlock};
use super::error::StatError;
use super::process::RemoteProcess;
use super::tree;

/// A process and its counters.
pub(super) type Observed = (RemoteProcess, Snapshot);

pub(super) fn observe(pid: i32) -> Result<Observed, StatError> {
    let process = RemoteProcess::find(pid)?;
    let engine = StatsBlock::find(&process)?;
    let snapshot = engine.snapshot(&process)?;
    Ok((process, snapshot))
}

/// The processes of the tree that have an engine. Fails as for the first one if none has.
pub(super) fn observe_tree(pid: i32) -> Result<Vec<Observed>, StatError> {
    let mut observed = Vec::new();
    let mut failure = None;
    for pid in tree::with_descendants(pid) {
        match observe(pid) {
            Ok(one) => observed.push(one),
            Err(error) => {
                failure.get_or_insert(error);
            }
        }
    }
    failure.filter(|_| observed.is_empty()).map_or(Ok(observed), Err)
}
