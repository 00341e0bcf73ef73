//! Walks all inputs of [`route`], and merges them into the fewest rows, for `docs/routing.md` and
//! the table test.

use super::hint::{AsyncHint, LIGHT};
use super::{
    BlockedFacts, FastPathRule, Inline, OpRouting, PollDirection, QueuedWrite, RequestFacts, Route, RunQueueRule, SqeFacts, Step,
    TransferFacts, Tried, WorkerClass, WriteFacts, WriteSpeed, route,
};
use crate::file::{FileKind, IoDirection};
use crate::write::WriteMode;
use alloc::vec::Vec;
use alloc::{format, string::String};

/// An input of [`route`].
pub(crate) type Input = (FileKind, WriteMode, Step);

/// The inputs of one [`Step`]: columns, each with its values, and the input that a choice of values
/// stands for.
pub(crate) struct Walk {
    pub(crate) title: &'static str,
    pub(crate) columns: &'static [(&'static str, &'static [&'static str])],
    pub(crate) input: fn(&[usize]) -> Input,
}

/// A row of the merged table: the values of each column, and the answer for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) values: Vec<Vec<usize>>,
    pub(crate) answer: String,
}

impl Walk {
    /// All inputs. Values of a column that lead to the same answers share their rows.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.merge(&mut Vec::new())
    }

    fn merge(&self, chosen: &mut Vec<usize>) -> Vec<Row> {
        let Some((_, values)) = self.columns.get(chosen.len()) else {
            let (file, mode, step) = (self.input)(chosen);
            return [Row { values: Vec::new(), answer: answer(route(file, mode, step)) }].into();
        };
        let mut groups: Vec<(Vec<usize>, Vec<Row>)> = Vec::new();
        for value in 0..values.len() {
            chosen.push(value);
            let rows = self.merge(chosen);
            chosen.pop();
            match groups.iter_mut().find(|(_, known)| *known == rows) {
                Some((values, _)) => values.push(value),
                None => groups.push(([value].into(), rows)),
            }
        }
        let prefixed = |(values, rows): (Vec<usize>, Vec<Row>)| {
            rows.into_iter().map(move |row| Row { values: [&[values.clone()][..], &row.values].concat(), answer: row.answer })
        };
        groups.into_iter().flat_map(prefixed).collect()
    }

    /// Every input that a row stands for.
    pub(crate) fn inputs(&self, row: &Row) -> Vec<Input> {
        let mut choices: Vec<Vec<usize>> = [Vec::new()].into();
        for values in &row.values {
            choices = choices.iter().flat_map(|choice| values.iter().map(move |&value| [&choice[..], &[value]].concat())).collect();
        }
        choices.iter().map(|choice| (self.input)(choice)).collect()
    }
}

/// An answer as the document names it. The class of io-wq workers has a table of its own.
pub(crate) fn answer(route: Route) -> String {
    match route {
        Route::IoWq(_) => "IoWq".into(),
        Route::IoWqTry(_) => "IoWqTry".into(),
        Route::UringletPunt(_) => "UringletPunt".into(),
        other => format!("{other:?}"),
    }
}

const NO_YES: &[&str] = &["no", "yes"];
const MODES: &[&str] = &["Adaptive", "Uringlet", "Workers"];

fn mode(value: usize) -> WriteMode {
    [WriteMode::Adaptive, WriteMode::Uringlet, WriteMode::Workers][value]
}

fn hint(value: usize) -> AsyncHint {
    [AsyncHint::Weighed, AsyncHint::Worker, AsyncHint::Block][value]
}

/// Of no opcode: facts that a step does not look at.
pub(super) const NO_OP: OpRouting = OpRouting {
    fast_path: FastPathRule::Never,
    inline: Inline::Never,
    poll: PollDirection::Never,
    worker: WorkerClass::Bounded,
    run_queue: RunQueueRule::Never,
    honours_async: true,
};

/// A request without `IOSQE_ASYNC`.
pub(super) const PLAIN_REQUEST: RequestFacts = RequestFacts {
    op: NO_OP,
    is_async: false,
    hint: AsyncHint::Weighed,
    poll_fired: false,
    hybrid_done: false,
    is_lockless: true,
    max_transfer: None,
    is_known_empty: false,
};

/// See [`Step::Sqe`].
pub(crate) const SQE: Walk = Walk {
    title: "Before a request is built (`Step::Sqe`)",
    columns: &[
        ("`fast_path`", &["Never", "Always", "CachedReads", "CachedWrites", "WhileQuick"]),
        ("plain SQE", NO_YES),
        (
            "`IOSQE_ASYNC`",
            &["no", "light, Weighed", "light, Worker", "light, Block", "heavy, Weighed", "unknown size, Weighed", "unknown size, Worker"],
        ),
        ("file", &["cached", "no `RWF_NOWAIT` reads", "`O_DIRECT`", "`O_SYNC`", "stream", "unknown"]),
        ("mode", MODES),
        ("clean history", NO_YES),
        ("`RLIMIT_FSIZE`", NO_YES),
        ("dirty budget", NO_YES),
        ("quick", NO_YES),
    ],
    input: |v| {
        use FastPathRule::{Always, CachedReads, CachedWrites, Never, WhileQuick};
        let fast_path = [Never, Always, CachedReads, CachedWrites, WhileQuick][v[0]];
        let files = [
            FileKind::CACHED,
            FileKind::CACHED.without_nowait(IoDirection::Read),
            FileKind::DIRECT,
            FileKind::SYNCHRONOUS,
            FileKind::STREAM,
            FileKind::UNKNOWN,
        ];
        let light = Some(LIGHT);
        let (max_transfer, hint) = [
            (None, AsyncHint::Weighed),
            (light, AsyncHint::Weighed),
            (light, AsyncHint::Worker),
            (light, AsyncHint::Block),
            (Some(LIGHT + 1), AsyncHint::Weighed),
            (None, AsyncHint::Weighed),
            (None, AsyncHint::Worker),
        ][v[2]];
        let facts = SqeFacts {
            op: OpRouting { fast_path, ..NO_OP },
            is_plain: v[1] == 1,
            is_async: v[2] > 0,
            max_transfer,
            hint,
            is_clean: v[5] == 1,
            may_raise_signal: v[6] == 1,
            has_budget: v[7] == 1,
            is_quick: v[8] == 1,
        };
        (files[v[3]], mode(v[4]), Step::Sqe(facts))
    },
};

/// See [`Step::Request`].
pub(crate) const REQUEST: Walk = Walk {
    title: "Before a request is issued (`Step::Request`)",
    columns: &[
        ("`IOSQE_ASYNC`", NO_YES),
        ("`honours_async`", NO_YES),
        ("before", &["nothing", "poll fired", "tried by a worker"]),
        ("`poll`, file", &["Never", "Streams, with positions", "Streams, other", "Always"]),
        ("hint", &["Weighed", "Worker", "Block"]),
        ("transfer", &["light", "heavy", "unknown size"]),
        ("lockless", NO_YES),
        ("known empty", NO_YES),
    ],
    input: |v| {
        let (poll, file) = [
            (PollDirection::Never, FileKind::CACHED),
            (PollDirection::Streams, FileKind::CACHED),
            (PollDirection::Streams, FileKind::STREAM),
            (PollDirection::Always, FileKind::STREAM),
        ][v[3]];
        let facts = RequestFacts {
            op: OpRouting { poll, honours_async: v[1] == 1, ..NO_OP },
            is_async: v[0] == 1,
            poll_fired: v[2] == 1,
            hybrid_done: v[2] == 2,
            hint: hint(v[4]),
            max_transfer: [Some(LIGHT), Some(LIGHT + 1), None][v[5]],
            is_lockless: v[6] == 1,
            is_known_empty: v[7] == 1,
        };
        (file, WriteMode::Adaptive, Step::Request(facts))
    },
};

/// See [`Step::Transfer`].
pub(crate) const TRANSFER: Walk = Walk {
    title: "A read or write of a file with positions (`Step::Transfer`)",
    columns: &[
        ("op", &["read", "write"]),
        ("transfer", &["buffered", "`O_DIRECT`, in part", "`O_DIRECT`, whole"]),
        ("mode", MODES),
        ("dirty budget", NO_YES),
        ("worker only", &["no", "`RLIMIT_FSIZE`", "queued writes", "waits for disk"]),
        ("tried", &["no", "would block", "short"]),
        ("speed", &["Fast", "Recovering", "Slow"]),
        ("submitter", NO_YES),
        ("large", NO_YES),
        ("`RWF_NOWAIT`", NO_YES),
    ],
    input: |v| {
        let write = WriteFacts {
            has_budget: v[3] == 1,
            has_queued: v[4] == 2,
            waits_for_disk: v[4] == 3,
            speed: [WriteSpeed::Fast, WriteSpeed::Recovering, WriteSpeed::Slow][v[6]],
            is_submitter: v[7] == 1,
            is_large: v[8] == 1,
        };
        let facts = TransferFacts {
            is_write: v[0] == 1,
            is_whole: v[1] != 1,
            may_raise_signal: v[4] == 1,
            tried: [Tried::No, Tried::WouldBlock, Tried::Short][v[5]],
            write,
        };
        let file = if v[1] == 0 { FileKind::CACHED } else { FileKind::DIRECT };
        let file = if v[9] == 1 { file } else { file.without_nowait(if facts.is_write { IoDirection::Write } else { IoDirection::Read }) };
        (file, mode(v[2]), Step::Transfer(facts))
    },
};

/// See [`Step::Blocked`].
pub(crate) const BLOCKED: Walk = Walk {
    title: "A request that needs a thread that may sleep (`Step::Blocked`)",
    columns: &[
        ("`IOSQE_ASYNC`", NO_YES),
        ("before", &["nothing", "poll fired", "tried by a worker"]),
        ("mode", MODES),
        ("`inline`", &["Never", "WhileQuick, slow", "WhileQuick, quick", "Always"]),
        (
            "`run_queue`, write",
            &[
                "Never",
                "Always",
                "BufferedWrites, none",
                "BufferedWrites, fast",
                "BufferedWrites, slow",
                "BufferedWrites, slow, held back",
                "BufferedWrites, waits for disk",
            ],
        ),
        ("`poll`", &["Never", "Always"]),
        ("hint", &["Weighed", "Worker", "Block"]),
        ("lockless", NO_YES),
    ],
    input: |v| {
        let fast = QueuedWrite { waits_for_disk: false, is_fast: true, is_held_back: false };
        let slow = QueuedWrite { is_fast: false, ..fast };
        let (run_queue, write) = [
            (RunQueueRule::Never, None),
            (RunQueueRule::Always, None),
            (RunQueueRule::BufferedWrites, None),
            (RunQueueRule::BufferedWrites, Some(fast)),
            (RunQueueRule::BufferedWrites, Some(slow)),
            (RunQueueRule::BufferedWrites, Some(QueuedWrite { is_held_back: true, ..slow })),
            (RunQueueRule::BufferedWrites, Some(QueuedWrite { waits_for_disk: true, ..fast })),
        ][v[4]];
        let op = OpRouting {
            inline: [Inline::Never, Inline::WhileQuick, Inline::WhileQuick, Inline::Always][v[3]],
            run_queue,
            poll: [PollDirection::Never, PollDirection::Always][v[5]],
            ..NO_OP
        };
        let request = RequestFacts {
            op,
            is_async: v[0] == 1,
            poll_fired: v[1] == 1,
            hybrid_done: v[1] == 2,
            hint: hint(v[6]),
            is_lockless: v[7] == 1,
            ..PLAIN_REQUEST
        };
        let facts = BlockedFacts { request, is_quick: v[3] == 2, write };
        (FileKind::CACHED, mode(v[2]), Step::Blocked(facts))
    },
};

/// All steps, in the order of a request's life.
pub(crate) const WALKS: [&Walk; 4] = [&SQE, &REQUEST, &TRANSFER, &BLOCKED];
