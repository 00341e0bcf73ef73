//! The facts of a request that [`route`] decides on.

use super::attempt::Depth;
use crate::file::FileKind;
use crate::ops::{OpFile, table};
use crate::request::Request;
use crate::route::hint::AsyncHint;
use crate::route::{BlockedFacts, QueuedWrite, RequestFacts, Route, Step, route};
use crate::state::UringGuard;
use crate::write;
use uringlet_abi::sqe;

/// The kind of the request's file, if its opcode's route depends on it.
pub(super) fn file_kind(req: &Request, file: OpFile) -> FileKind {
    if table::of(req.opcode).routing.depends_on_file() { file.kind() } else { FileKind::UNKNOWN }
}

/// Whether the kernel arms such a request, rather than let a worker sleep in it.
pub(super) fn is_polled(req: &Request, fd: i32) -> bool {
    table::of(req.opcode).routing.has_poll_direction(FileKind::of(fd))
}

/// The facts of a request.
pub(super) fn of_request(req: &Request) -> RequestFacts {
    let is_async = req.has(sqe::ASYNC);
    RequestFacts {
        op: table::of(req.opcode).routing,
        is_async,
        poll_fired: req.poll_fired,
        hybrid_done: req.hybrid_done,
        // The others only matter with IOSQE_ASYNC.
        hint: if is_async { AsyncHint::current() } else { AsyncHint::Weighed },
        is_lockless: !is_async || req.op.is_lockless(),
        max_transfer: if is_async { req.op.max_transfer() } else { None },
        is_known_empty: false,
    }
}

/// The route of a request that needs a thread that may sleep.
pub(super) fn blocked_route(guard: &UringGuard, req: &Request, file: OpFile, depth: Depth) -> Route {
    let kind = file_kind(req, file);
    let write = req.queued_on.get().map(|fd| QueuedWrite {
        waits_for_disk: req.op.waits_for_disk(kind),
        is_fast: write::history_of(fd).is_fast(),
        is_held_back: guard.run_queue.is_blocked(fd),
    });
    let is_quick = match depth {
        Depth::Shallow => true,
        Depth::Deep => guard.metadata_pace.is_quick(req.opcode),
        Depth::Driving => false,
    };
    let facts = BlockedFacts { request: of_request(req), is_quick, write };
    route(kind, guard.res.mode, Step::Blocked(facts))
}
