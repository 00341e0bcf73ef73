//! Which road a buffered write takes. Pure.

use super::Mode;
use super::history::History;

/// Who executes a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Road {
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
pub(crate) struct Facts {
    pub(crate) mode: Mode,
    pub(crate) history: History,
    /// The file did not refuse `RWF_NOWAIT` so far.
    pub(crate) takes_nowait: bool,
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

/// The road of one write.
pub(crate) fn road(facts: Facts) -> Road {
    let Facts { mode, history, .. } = facts;
    if mode != Mode::Adaptive || facts.is_synchronous || facts.may_raise_signal || history.has_queued() {
        Road::Worker
    } else if history.is_quick() && facts.is_caller {
        if facts.bytes >= LARGE && facts.takes_nowait { Road::NowaitThenInline } else { Road::Inline }
    } else if facts.takes_nowait && history.may_try() {
        Road::Nowait
    } else {
        Road::Worker
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Took;
    use super::*;

    #[test]
    fn the_table() {
        let plain = Facts {
            mode: Mode::Adaptive,
            history: History::default(),
            takes_nowait: false,
            is_synchronous: false,
            may_raise_signal: false,
            is_caller: true,
            bytes: 4096,
        };
        let slow = History::default().after_inline(Took::Long);
        let slower = slow.after_elsewhere(Took::Long).after_elsewhere(Took::Quick);
        let queued = History::default().queue();
        let table = [
            (plain, Road::Inline),
            (Facts { takes_nowait: true, ..plain }, Road::Inline),
            (Facts { history: slow, ..plain }, Road::Worker),
            (Facts { history: slow, takes_nowait: true, ..plain }, Road::Worker),
            (Facts { history: slower, takes_nowait: true, ..plain }, Road::Nowait),
            (Facts { history: slower, ..plain }, Road::Worker),
            (Facts { bytes: LARGE, ..plain }, Road::Inline),
            (Facts { bytes: LARGE, takes_nowait: true, ..plain }, Road::NowaitThenInline),
            (Facts { history: slow.after_elsewhere(Took::Quick), ..plain }, Road::Inline),
            (Facts { history: queued, takes_nowait: true, ..plain }, Road::Worker),
            (Facts { is_synchronous: true, takes_nowait: true, ..plain }, Road::Worker),
            (Facts { may_raise_signal: true, takes_nowait: true, ..plain }, Road::Worker),
            (Facts { is_caller: false, ..plain }, Road::Worker),
            (Facts { is_caller: false, takes_nowait: true, ..plain }, Road::Nowait),
            (Facts { mode: Mode::Uringlet, takes_nowait: true, ..plain }, Road::Worker),
            (Facts { mode: Mode::Workers, takes_nowait: true, ..plain }, Road::Worker),
        ];
        for (n, (facts, expected)) in table.into_iter().enumerate() {
            assert_eq!(road(facts), expected, "row {n}: {facts:?}");
        }
    }
}
