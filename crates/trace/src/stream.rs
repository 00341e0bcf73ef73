//! Records to events. The records come from programs: nothing in them is trusted.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use uringlet_abi::{Opcode, Sqe, cqe, sqe};
use uringlet_sys::trace::{RecordKind, TraceRecord, argument, road};

use crate::request::{Call, CallKind, CqeShown, Data, Event, FileNames, LostEntries, PostedCqe, ProcessStart, SubmittedRequest};

/// No argument is longer (`PATH_MAX`, a generous `-s`).
const DATA_MAX: usize = 1 << 20;

/// What identifies a request: process, ring, number.
type RequestKey = (u32, u32, u32);

/// A request that has not ended.
#[derive(Debug)]
struct PendingRequest {
    submission: Rc<SubmittedRequest>,
    has_cqe: bool,
    /// Its last result has come, but not the notification that was announced.
    result: Option<Data>,
}

/// A chain that is being submitted.
#[derive(Clone, Copy, Debug, Default)]
struct ChainState {
    /// How many the ring has had.
    count: u32,
    /// The place of the last request in the open one; 0: none is open.
    place: u32,
}

/// Puts records together.
#[derive(Debug, Default)]
pub struct Assembler {
    pending: HashMap<RequestKey, Vec<PendingRequest>>,
    /// Data of requests that come later.
    early: HashMap<RequestKey, BTreeMap<u16, Data>>,
    files: HashMap<u32, FileNames>,
    /// Names that come in several records.
    partial_names: HashMap<(u32, i32), Vec<u8>>,
    chains: HashMap<(u32, u32), ChainState>,
}

impl Assembler {
    /// Takes the next record. Calls `emit` for what it completes.
    pub fn take(&mut self, record: &TraceRecord, mut emit: impl FnMut(Event)) {
        match RecordKind::from_u8(record.kind) {
            Some(RecordKind::Process) => self.process(record, &mut emit),
            Some(RecordKind::Submission) => self.submission(record),
            Some(RecordKind::Completion) if record.detail & TraceRecord::NO_REQUEST != 0 => emit(posted(record)),
            Some(RecordKind::Completion) => emit(self.completion(record)),
            Some(RecordKind::Executed) => emit(self.executed(record)),
            Some(RecordKind::Data) => self.data(record),
            Some(RecordKind::File) => self.file(record),
            Some(RecordKind::Setup) => {
                self.end_ring(record.pid, record.ring, &mut emit);
                emit(call(record, setup(record)));
            }
            Some(RecordKind::Enter) => emit(call(record, enter(record))),
            Some(RecordKind::Register) => emit(call(record, register(record))),
            Some(RecordKind::Lost) => emit(lost(record)),
            // The results say that something was injected.
            Some(RecordKind::Fault) | None => {}
        }
    }

    /// The trace is over, or the process: what has not ended.
    pub fn finish(&mut self, pid: Option<u32>, reason: &'static str, mut emit: impl FnMut(Event)) {
        let mut left: Vec<Rc<SubmittedRequest>> = Vec::new();
        self.early.retain(|(of, ..), _| pid.is_some_and(|pid| pid != *of));
        self.pending.retain(|(of, ..), requests| {
            let is_meant = pid.is_none_or(|pid| pid == *of);
            if is_meant {
                left.extend(requests.iter().map(|pending| Rc::clone(&pending.submission)));
            }
            !is_meant
        });
        left.sort_by_key(|submission| (submission.ticks, submission.number));
        left.into_iter().for_each(|submission| emit(unfinished(submission, reason)));
    }

    /// The processes that have recorded something and are not known to have ended.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.files.keys().copied()
    }

    /// A process has ended.
    pub fn forget(&mut self, pid: u32, emit: impl FnMut(Event)) {
        self.files.remove(&pid);
        self.finish(Some(pid), "its process has ended", emit);
    }

    fn process(&mut self, record: &TraceRecord, emit: &mut impl FnMut(Event)) {
        // Another program in the same process, or another process of this number.
        self.finish(Some(record.pid), "its program was replaced", &mut *emit);
        self.files.insert(record.pid, FileNames::new());
        let bytes: Vec<u8> = record.payload[..2].iter().flat_map(|word| word.to_le_bytes()).take_while(|&byte| byte != 0).collect();
        emit(Event::Process(ProcessStart { pid: record.pid, name: String::from_utf8_lossy(&bytes).into_owned() }));
    }

    fn submission(&mut self, record: &TraceRecord) {
        let submission = Rc::new(self.submitted(record, record.ticks));
        let pending = PendingRequest { submission, has_cqe: false, result: None };
        self.pending.entry(key(record)).or_default().push(pending);
    }

    /// A request whose records are this one and data before it.
    fn executed(&mut self, record: &TraceRecord) -> Event {
        let mut submission = self.submitted(record, record.payload[10]);
        submission.data = self.early.remove(&key(record)).unwrap_or_default();
        let result = submission.data.remove(&argument::RESULT);
        Event::Completion(Rc::new(submission), CqeShown { result, ..shown(record, record.payload[9]) })
    }

    fn submitted(&mut self, record: &TraceRecord, ticks: u64) -> SubmittedRequest {
        let mut words = [0; 8];
        words.copy_from_slice(&record.payload[..8]);
        let entry = Sqe::from_words(words);
        let chain = self.chain_of(record, &entry);
        let files = self.files.entry(record.pid).or_default();
        let file = low(record.payload[8]).cast_signed();
        let numbers = [file, entry.fd, entry.splice_fd_in, entry.len.cast_signed(), low(entry.off).cast_signed()];
        let paths = numbers.iter().filter_map(|number| Some((*number, Rc::clone(files.get(number)?)))).collect();
        SubmittedRequest {
            pid: record.pid,
            tid: record.tid,
            ring: record.ring,
            ticks,
            number: record.request,
            sqe: entry,
            paths,
            file,
            chain,
            data: BTreeMap::new(),
        }
    }

    fn chain_of(&mut self, record: &TraceRecord, entry: &Sqe) -> Option<(u32, u32)> {
        let state = self.chains.entry((record.pid, record.ring)).or_default();
        let links = entry.flags & (sqe::IO_LINK | sqe::IO_HARDLINK) != 0;
        let is_last = !links || record.detail & TraceRecord::LAST != 0;
        if state.place == 0 {
            if is_last {
                return None;
            }
            state.count = state.count.wrapping_add(1);
        }
        let place = state.place + 1;
        state.place = if is_last { 0 } else { place };
        Some((state.count, place))
    }

    fn data(&mut self, record: &TraceRecord) {
        let (at, total) = (record.payload[0] as usize, record.payload[1]);
        let data = match self.pending.get_mut(&key(record)).and_then(|requests| requests.last_mut()) {
            Some(pending) if record.detail == argument::RESULT => pending.result.get_or_insert_default(),
            Some(pending) => {
                let Some(submission) = Rc::get_mut(&mut pending.submission) else { return };
                submission.data.entry(record.detail).or_default()
            }
            None => self.early.entry(key(record)).or_default().entry(record.detail).or_default(),
        };
        if at == 0 {
            data.bytes.clear();
        }
        if at == data.bytes.len() && at < DATA_MAX {
            data.bytes.extend(chunk(record));
            data.total = total;
        }
    }

    fn file(&mut self, record: &TraceRecord) {
        let (at, number) = (low(record.payload[0]) as usize, high(record.payload[0]).cast_signed());
        let name = self.partial_names.entry((record.pid, number)).or_default();
        if at == 0 {
            name.clear();
        }
        if at == name.len() && at < DATA_MAX {
            name.extend(chunk(record));
        }
        if name.len() as u64 >= record.payload[1] {
            let name = self.partial_names.remove(&(record.pid, number)).unwrap_or_default();
            let files = self.files.entry(record.pid).or_default();
            if name.is_empty() {
                files.remove(&number);
            } else {
                files.insert(number, String::from_utf8_lossy(&name).into());
            }
        }
    }

    fn completion(&mut self, record: &TraceRecord) -> Event {
        let user_data = record.payload[0];
        let mut shown = shown(record, record.payload[1]);
        let is_meant = |pending: &PendingRequest| {
            let entry = &pending.submission.sqe;
            // An injected short READV is executed as a READ.
            let may_differ = record.road & road::INJECTED != 0 || Opcode::from_u8(entry.opcode).is_none();
            entry.user_data == user_data && (u64::from(entry.opcode) == record.payload[2] || may_differ)
        };
        let Some(requests) = self.pending.get_mut(&key(record)) else { return Event::Completion(from_before(record), shown) };
        let Some(at) = requests.iter().position(is_meant) else { return Event::Completion(from_before(record), shown) };
        let pending = &mut requests[at];
        shown.is_later = std::mem::replace(&mut pending.has_cqe, true);
        shown.result = pending.result.take();
        let submission = Rc::clone(&pending.submission);
        if !shown.has_more {
            requests.swap_remove(at);
            if requests.is_empty() {
                self.pending.remove(&key(record));
            }
        }
        Event::Completion(submission, shown)
    }

    /// The index of a ring is used again.
    fn end_ring(&mut self, pid: u32, ring: u32, emit: &mut impl FnMut(Event)) {
        let mut left = Vec::new();
        self.pending.retain(|(of, index, _), requests| {
            let is_meant = (*of, *index) == (pid, ring);
            if is_meant {
                left.append(requests);
            }
            !is_meant
        });
        left.sort_by_key(|pending| pending.submission.number);
        left.into_iter().for_each(|pending| emit(unfinished(pending.submission, "its ring was closed")));
    }
}

/// A request of which nothing was seen but its submission.
fn unfinished(submission: Rc<SubmittedRequest>, reason: &'static str) -> Event {
    let has_cqe = submission.sqe.flags & sqe::CQE_SKIP_SUCCESS == 0;
    Event::Unfinished(submission, if has_cqe { reason } else { "no CQE was asked for" })
}

const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn key(record: &TraceRecord) -> RequestKey {
    (record.pid, record.ring, record.request)
}

/// A result, of this word.
const fn shown(record: &TraceRecord, result: u64) -> CqeShown {
    let flags = high(result);
    CqeShown {
        ticks: record.ticks,
        tid: record.tid,
        res: low(result).cast_signed(),
        flags,
        road: record.road,
        is_skipped: record.kind == RecordKind::Completion as u8 && record.detail & TraceRecord::NO_CQE != 0,
        has_more: flags & cqe::MORE != 0,
        is_notification: flags & cqe::NOTIF != 0,
        is_later: false,
        result: None,
        is_uncertain: record.kind == RecordKind::Completion as u8 && record.detail & TraceRecord::UNCERTAIN != 0,
        is_unseen: record.kind == RecordKind::Completion as u8 && record.detail & TraceRecord::UNSEEN != 0,
        is_of_kernel: record.kind == RecordKind::Completion as u8 && record.detail & TraceRecord::OF_KERNEL != 0,
    }
}

const fn posted(record: &TraceRecord) -> Event {
    let (pid, tid, ring, ticks) = (record.pid, record.tid, record.ring, record.ticks);
    let result = record.payload[1];
    Event::Posted(PostedCqe { pid, tid, ring, ticks, user_data: record.payload[0], res: low(result).cast_signed(), flags: high(result) })
}

const fn lost(record: &TraceRecord) -> Event {
    let (sqes, cqes) = (record.payload[0], record.payload[1]);
    Event::Lost(LostEntries { pid: record.pid, tid: record.tid, ring: record.ring, sqes, cqes })
}

fn chunk(record: &TraceRecord) -> Vec<u8> {
    record.payload[2..].iter().flat_map(|word| word.to_le_bytes()).take(record.len as usize).collect()
}

/// What is known of a request that was submitted before the trace.
fn from_before(record: &TraceRecord) -> Rc<SubmittedRequest> {
    let entry = Sqe { opcode: record.payload[2] as u8, user_data: record.payload[0], fd: -1, ..Sqe::default() };
    Rc::new(SubmittedRequest {
        pid: record.pid,
        tid: record.tid,
        ring: record.ring,
        ticks: record.ticks,
        number: 0,
        sqe: entry,
        paths: FileNames::new(),
        file: -1,
        chain: None,
        data: BTreeMap::new(),
    })
}

const fn call(record: &TraceRecord, kind: CallKind) -> Event {
    let is_injected = record.road & road::INJECTED != 0;
    Event::Call(Call { pid: record.pid, tid: record.tid, ticks: record.ticks, is_injected, kind })
}

const fn setup(record: &TraceRecord) -> CallKind {
    let words = &record.payload;
    let (sq_entries, cq_entries) = (low(words[0]), high(words[0]));
    CallKind::Setup { ring: record.ring, sq_entries, cq_entries, flags: low(words[1]), fd: low(words[2]).cast_signed() }
}

const fn enter(record: &TraceRecord) -> CallKind {
    let words = &record.payload;
    CallKind::Enter {
        fd: low(words[0]),
        to_submit: high(words[0]),
        min_complete: low(words[1]),
        flags: high(words[1]),
        result: words[2].cast_signed(),
        since: words[3],
    }
}

const fn register(record: &TraceRecord) -> CallKind {
    let words = &record.payload;
    let (fd, opcode) = (low(words[0]), high(words[0]));
    CallKind::Register { fd, opcode, arg: words[1], nr_args: low(words[2]), result: words[3].cast_signed() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TickClock;
    use crate::text::{self, LineStyle};

    fn record(kind: RecordKind, request: u32, payload: &[u64]) -> TraceRecord {
        let mut record = TraceRecord { kind: kind as u8, pid: 7, tid: 8, ring: 1, request, ..TraceRecord::default() };
        record.payload[..payload.len()].copy_from_slice(payload);
        record
    }

    fn submitted(request: u32, opcode: Opcode, flags: u8, detail: u16) -> TraceRecord {
        let entry = Sqe { opcode: opcode as u8, flags, fd: 3, user_data: 5, len: 2, ..Sqe::default() };
        let mut record = record(RecordKind::Submission, request, &entry.to_words());
        record.payload[8] = 3;
        TraceRecord { detail, ..record }
    }

    fn completed(request: u32, opcode: Opcode, res: u32, flags: u32) -> TraceRecord {
        let record = record(RecordKind::Completion, request, &[5, u64::from(res) | u64::from(flags) << 32, opcode as u64]);
        TraceRecord { ticks: 1500, ..record }
    }

    fn data(kind: RecordKind, detail: u16, first: u64, total: u64, bytes: &[u8]) -> TraceRecord {
        let mut record = record(kind, 1, &[first, total]);
        for (word, chunk) in record.payload[2..].iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(whole);
        }
        TraceRecord { detail, len: bytes.len().try_into().unwrap(), ..record }
    }

    fn lines(records: &[TraceRecord]) -> Vec<String> {
        let (mut assembler, mut lines, clock) = (Assembler::default(), Vec::new(), TickClock::of_test());
        let style = LineStyle { has_latency: true, ..LineStyle::default() };
        let mut show = |event: Event| lines.push(text::line(&event, &clock, style));
        records.iter().for_each(|record| assembler.take(record, &mut show));
        assembler.finish(None, "the end", &mut show);
        lines
    }

    #[test]
    fn a_request_is_put_together_from_its_records() {
        let shown = lines(&[
            data(RecordKind::File, 0, 3 << 32, 10, b"/tmp"),
            data(RecordKind::File, 0, 3 << 32 | 4, 10, b"/file\n"),
            submitted(1, Opcode::Write, sqe::IO_LINK, 0),
            data(RecordKind::Data, argument::BUFFER, 0, 2, b"ab"),
            submitted(2, Opcode::Read, sqe::IO_LINK, TraceRecord::LAST),
            completed(1, Opcode::Write, 2, 0),
        ]);
        let chain = "user_data=0x5 IOSQE_IO_LINK chain=1";
        let expected = [
            format!("[pid 8] ring 1: WRITE(3</tmp/file\n>, \"ab\", 2, 0) {chain}.1 = 2 <0.000001500> [inline]\n"),
            format!("[pid 8] ring 1: READ(3</tmp/file\n>, NULL, 2, 0) {chain}.2 <unfinished: the end>\n"),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn multishots_go_on_and_old_requests_are_shown() {
        let shown = lines(&[
            submitted(1, Opcode::PollAdd, 0, 0),
            completed(1, Opcode::PollAdd, 1, cqe::MORE),
            completed(1, Opcode::PollAdd, 4, 0),
            completed(0, Opcode::Recv, 9, 0),
        ]);
        assert_eq!(
            shown[0],
            "[pid 8] ring 1: POLL_ADD(3, 0, flags=IORING_POLL_UPDATE_EVENTS) user_data=0x5 = 1 IORING_CQE_F_MORE <0.000001500> [inline]\n"
        );
        assert_eq!(shown[1], "[pid 8] ring 1: POLL_ADD(3, ...) user_data=0x5 = 4 <0.000001500> [inline]\n");
        assert_eq!(shown[2], "[pid 8] ring 1: RECV(<submitted before the trace>) user_data=0x5 = 9 [inline]\n");
    }

    #[test]
    fn any_records_are_survived() {
        let mut seed = 1_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 33
        };
        let mut assembler = Assembler::default();
        let clock = TickClock::of_test();
        for _ in 0..20_000 {
            let record = TraceRecord {
                kind: (random() % 11).try_into().unwrap(),
                detail: (random() % 8).try_into().unwrap(),
                pid: (random() % 2).try_into().unwrap(),
                request: (random() % 4).try_into().unwrap(),
                len: (random() % 100).try_into().unwrap(),
                payload: core::array::from_fn(|_| if random() % 2 == 0 { random() % 8 } else { random() << 31 }),
                ..TraceRecord::default()
            };
            assembler.take(&record, |event| {
                assert!(text::line(&event, &clock, LineStyle::default()).ends_with('\n'));
                assert!(crate::json::line(&event, &clock).starts_with('{'));
            });
        }
    }
}
