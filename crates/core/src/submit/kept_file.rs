//! A file whose number the program closes while requests use it.

use super::arm::rearm;
use super::attempt::Depth;
use super::complete::fail;
use super::dispatch::run_ready;
use crate::apoll::PollTarget;
use crate::request::{FileTarget, Stage};
use crate::rsrc::files::FileNode;
use crate::state::UringGuard;
use alloc::sync::Arc;
use uringlet_sys::fd::EngineFd;
use uringlet_sys::fd_table;

/// The program is about to close a descriptor number that requests use: they go on with a
/// duplicate.
pub(crate) fn keep_file(guard: &mut UringGuard, fd: i32) {
    let waiting = guard.res.poller.as_mut().map(|p| p.remove_file(fd)).unwrap_or_default();
    if !fd_table::has_users(fd) {
        return;
    }
    end_duplicates(guard, fd);
    let users = guard.matching(|_, p| matches!(p.req.target, FileTarget::Fd(n) if n == fd));
    if users.is_empty() {
        return;
    }
    let kept = match EngineFd::dup_of(fd) {
        Ok(kept) => kept,
        // No event will come for the waiting ones any more: they fail. The others get EBADF when
        // issued.
        Err(errno) => {
            waiting.iter().for_each(|w| fail(guard, w.id, errno));
            return run_ready(guard, Depth::Deep);
        }
    };
    let node = Arc::new(FileNode { fd: kept, tag: 0 });
    guard.res.has_nodes = true;
    for id in users {
        let Some(parked) = guard.parked(id) else { continue };
        parked.req.target = FileTarget::Held(Arc::clone(&node));
        fd_table::drop_user(fd);
        if let Stage::Armed { fd: armed } = &mut parked.stage {
            *armed = node.fd.number();
        }
    }
    for w in waiting {
        rearm(guard, w, PollTarget { fd: node.fd.number(), node: Some(Arc::downgrade(&node)) });
    }
    guard.res.release_file(node);
    run_ready(guard, Depth::Deep);
}

/// The engine's descriptor of a file has another number, and the old one is about to be the
/// program's.
pub(crate) fn move_file(guard: &mut UringGuard, old: i32, new: i32) {
    let waiting = guard.res.poller.as_mut().map(|p| p.remove_file(old)).unwrap_or_default();
    for w in waiting {
        let Some(parked) = guard.parked(w.id) else { continue };
        if let Stage::Armed { fd } = &mut parked.stage {
            *fd = new;
        }
        let node = parked.req.node().map(Arc::downgrade);
        rearm(guard, w, PollTarget { fd: new, node });
    }
    run_ready(guard, Depth::Deep);
}

/// Requests that have a duplicate of the file already: the number is not theirs any more.
fn end_duplicates(guard: &mut UringGuard, fd: i32) {
    for id in guard.matching(|_, p| matches!(p.req.target, FileTarget::Duplicate(n, _) if n == fd)) {
        let Some(parked) = guard.parked(id) else { continue };
        if let FileTarget::Duplicate(_, node) = core::mem::replace(&mut parked.req.target, FileTarget::None) {
            parked.req.target = FileTarget::Held(node);
            fd_table::drop_user(fd);
        }
    }
}
