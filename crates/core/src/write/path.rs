//! which path a buffered write takes. Pure.

use super::WriteMode;
use super::history::History;

/// Who executes a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritePath {
    /// The caller, as a plain pwrite: the page cache is expected to take it.
    Inline,
    /// The caller, as far as it goes without waiting (`RWF_NOWAIT`); a worker does the rest.
    Nowait,
    /// The same, but if nothing can be done so the caller writes it all: only a part of it is reason to wait elsewhere.
    NowaitThenInline,
    /// A worker.
    Worker,
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteCtx {
    pub(crate) mode: WriteMode,
    pub(crate) history: History,
    /// The file did not refuse `RWF_NOWAIT` so far.
    pub(crate) supports_nowait: bool,
    /// It waits for the disk by its nature: `O_SYNC`, `O_DSYNC`, `RWF_SYNC`, `RWF_DSYNC`.
    pub(crate) is_synchronous: bool,
    /// `RLIMIT_FSIZE`: beyond it SIGXFSZ kills, but nobody on a worker.
    pub(crate) may_raise_signal: bool,
    /// On a thread of the program, not on one that brings other requests on, too.
    pub(crate) is_caller: bool,
    /// How much is to be written, as far as known.
    pub(crate) bytes: u64,
}

/// From here on a write takes the caller a while even if it does not block.
const LARGE: u64 = 128 << 10;

/// The choose_path of one write.
pub(crate) fn choose_path(ctx: WriteCtx) -> WritePath {
    let WriteCtx { mode, history, .. } = ctx;
    if mode != WriteMode::Adaptive || ctx.is_synchronous || ctx.may_raise_signal || history.has_queued() {
        WritePath::Worker
    } else if history.is_fast() && ctx.is_caller {
        if ctx.bytes >= LARGE && ctx.supports_nowait { WritePath::NowaitThenInline } else { WritePath::Inline }
    } else if ctx.supports_nowait && history.may_try() {
        WritePath::Nowait
    } else {
        WritePath::Worker
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Latency;
    use super::*;

    #[test]
    fn the_table() {
        let plain = WriteCtx {
            mode: WriteMode::Adaptive,
            history: History::default(),
            supports_nowait: false,
            is_synchronous: false,
            may_raise_signal: false,
            is_caller: true,
            bytes: 4096,
        };
        let slow = History::default().after_inline(Latency::Slow);
        let slower = slow.after_worker(Latency::Slow).after_worker(Latency::Fast);
        let queued = History::default().queue();
        let table = [
            (plain, WritePath::Inline),
            (WriteCtx { supports_nowait: true, ..plain }, WritePath::Inline),
            (WriteCtx { history: slow, ..plain }, WritePath::Worker),
            (WriteCtx { history: slow, supports_nowait: true, ..plain }, WritePath::Worker),
            (WriteCtx { history: slower, supports_nowait: true, ..plain }, WritePath::Nowait),
            (WriteCtx { history: slower, ..plain }, WritePath::Worker),
            (WriteCtx { bytes: LARGE, ..plain }, WritePath::Inline),
            (WriteCtx { bytes: LARGE, supports_nowait: true, ..plain }, WritePath::NowaitThenInline),
            (WriteCtx { history: slow.after_worker(Latency::Fast), ..plain }, WritePath::Inline),
            (WriteCtx { history: queued, supports_nowait: true, ..plain }, WritePath::Worker),
            (WriteCtx { is_synchronous: true, supports_nowait: true, ..plain }, WritePath::Worker),
            (WriteCtx { may_raise_signal: true, supports_nowait: true, ..plain }, WritePath::Worker),
            (WriteCtx { is_caller: false, ..plain }, WritePath::Worker),
            (WriteCtx { is_caller: false, supports_nowait: true, ..plain }, WritePath::Nowait),
            (WriteCtx { mode: WriteMode::Uringlet, supports_nowait: true, ..plain }, WritePath::Worker),
            (WriteCtx { mode: WriteMode::Workers, supports_nowait: true, ..plain }, WritePath::Worker),
        ];
        for (n, (ctx, expected)) in table.into_iter().enumerate() {
            assert_eq!(choose_path(ctx), expected, "row {n}: {ctx:?}");
        }
    }
}
