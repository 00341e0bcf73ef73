//! Events as lines of text, in strace's habits.

use std::fmt::Write;

use uringlet_abi::cqe;

use crate::clock::TickClock;
use crate::request::{Call, CallKind, CqeShown, Event, LostEntries, PostedCqe, SubmittedRequest};
use crate::{decode, errno, flags};

/// What a line has beside the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineStyle {
    /// When the request was submitted.
    pub time: TimeStyle,
    /// How long it took.
    pub has_latency: bool,
}

/// The beginning of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeStyle {
    /// No time.
    #[default]
    None,
    /// The time of day, UTC, in seconds.
    Seconds,
    /// With microseconds.
    Microseconds,
}

/// The line of an event, with its newline.
#[must_use]
pub fn line(event: &Event, clock: &TickClock, style: LineStyle) -> String {
    let mut text = match event {
        Event::Process(start) => format!("{}--- {} ---", pid(start.pid), start.name),
        Event::Call(call) => call_line(call, clock, style),
        Event::Completion(submission, shown) => {
            let mut text = beginning(submission, Some(shown), clock, style);
            push_result(&mut text, submission, shown, clock, style);
            text
        }
        Event::Posted(posted) => posted_line(posted, clock, style),
        Event::Lost(lost) => {
            let LostEntries { ring, sqes, cqes, .. } = lost;
            format!("{}ring {ring}: {sqes} SQEs and {cqes} CQEs were overwritten before they were seen", pid(lost.tid))
        }
        Event::Unfinished(submission, reason) => {
            let mut text = beginning(submission, None, clock, style);
            let _ = write!(text, " <unfinished: {reason}>");
            text
        }
    };
    text.push('\n');
    text
}

fn pid(number: u32) -> String {
    format!("[pid {number}] ")
}

fn time(ticks: u64, clock: &TickClock, style: TimeStyle) -> String {
    /// Seconds of a day.
    const DAY: u64 = 86400;
    let ns = clock.epoch_ns(ticks);
    let (seconds, micros) = (ns / 1_000_000_000, ns / 1000 % 1_000_000);
    let of_day = seconds % DAY;
    let clock_time = format!("{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60);
    match style {
        TimeStyle::None => String::new(),
        TimeStyle::Seconds => format!("{clock_time} "),
        TimeStyle::Microseconds => format!("{clock_time}.{micros:06} "),
    }
}

fn beginning(submission: &SubmittedRequest, shown: Option<&CqeShown>, clock: &TickClock, style: LineStyle) -> String {
    let entry = &submission.sqe;
    let mut text =
        format!("{}{}ring {}: {}", pid(submission.tid), time(submission.ticks, clock, style.time), submission.ring, name(submission));
    if submission.number == 0 {
        let _ = write!(text, "(<submitted before the trace>) user_data={:#x}", entry.user_data);
        return text;
    }
    if shown.is_some_and(|shown| shown.is_later) {
        // What it is was shown with its first result.
        let file = decode::arguments(submission, shown);
        let again = file.iter().filter(|arg| matches!(arg.name, "fd" | "buf")).map(crate::value::RequestArg::text);
        let _ = write!(text, "({}) user_data={:#x}", again.chain(["...".to_owned()]).collect::<Vec<_>>().join(", "), entry.user_data);
        return text;
    }
    let args: Vec<String> = decode::arguments(submission, shown).iter().map(crate::value::RequestArg::text).collect();
    let _ = write!(text, "({}) user_data={:#x}", args.join(", "), entry.user_data);
    if entry.flags != 0 {
        let _ = write!(text, " {}", flags::names(entry.flags, flags::SQE));
    }
    if entry.personality != 0 {
        let _ = write!(text, " personality={}", entry.personality);
    }
    if let Some((chain, place)) = submission.chain {
        let _ = write!(text, " chain={chain}.{place}");
    }
    text
}

/// The opcode's name.
pub(crate) fn name(submission: &SubmittedRequest) -> String {
    submission.opcode().map_or_else(|| format!("opcode {}", submission.sqe.opcode), |opcode| opcode.name().to_owned())
}

/// The flags of a result.
fn push_cqe_flags(text: &mut String, flags: u32) {
    let cqe_flags = flags & !(u32::MAX << cqe::BUFFER_SHIFT);
    if cqe_flags != 0 {
        let _ = write!(text, " {}", flags::names(cqe_flags, flags::CQE));
    }
    if flags & cqe::BUFFER != 0 {
        let _ = write!(text, " buffer={}", flags >> cqe::BUFFER_SHIFT);
    }
}

/// What MSG_RING, a tag or a ring of another process has posted.
fn posted_line(posted: &PostedCqe, clock: &TickClock, style: LineStyle) -> String {
    let PostedCqe { tid, ring, ticks, user_data, res, flags, .. } = *posted;
    let mut text = format!("{}{}ring {ring}: CQE user_data={user_data:#x}", pid(tid), time(ticks, clock, style.time));
    let _ = write!(text, " {}", errno::text(res));
    push_cqe_flags(&mut text, flags);
    text + " (of no request of this ring)"
}

fn push_result(text: &mut String, submission: &SubmittedRequest, shown: &CqeShown, clock: &TickClock, style: LineStyle) {
    if shown.is_unseen {
        text.push_str(" = ? (no CQE)");
        return;
    }
    let _ = write!(text, " {}", errno::text(shown.res));
    if shown.is_injected() {
        text.push_str(INJECTED);
    }
    push_cqe_flags(text, shown.flags);
    if shown.is_skipped {
        text.push_str(" (no CQE)");
    }
    if style.has_latency && submission.number != 0 {
        let ns = clock.ns(shown.ticks.wrapping_sub(submission.ticks));
        let _ = write!(text, " <{}.{:09}>", ns / 1_000_000_000, ns % 1_000_000_000);
    }
    if shown.is_uncertain {
        text.push_str(" (or another with this user_data)");
    }
    let _ = write!(text, " [{}]", shown.road_name());
}

fn call_line(call: &Call, clock: &TickClock, style: LineStyle) -> String {
    let mut text = pid(call.tid);
    let since = if let CallKind::Enter { since, .. } = call.kind { since } else { call.ticks };
    text += &time(since, clock, style.time);
    match call.kind {
        CallKind::Setup { ring, sq_entries, cq_entries, flags: bits, fd } => {
            let bits = flags::names(bits, flags::SETUP);
            let _ = write!(text, "io_uring_setup({{sq_entries={sq_entries}, cq_entries={cq_entries}, flags={bits}}}) ");
            let _ = if fd < 0 { write!(text, "{}", call_result(fd.into())) } else { write!(text, "= {fd} (ring {ring})") };
        }
        CallKind::Enter { fd, to_submit, min_complete, flags: bits, result, .. } => {
            let bits = flags::names(bits, flags::ENTER);
            let _ = write!(text, "io_uring_enter({fd}, {to_submit}, {min_complete}, {bits}) {}", call_result(result));
            if style.has_latency {
                let ns = clock.ns(call.ticks.wrapping_sub(since));
                let _ = write!(text, " <{}.{:09}>", ns / 1_000_000_000, ns % 1_000_000_000);
            }
        }
        CallKind::Register { fd, opcode, arg, nr_args, result } => {
            let fd = fd.cast_signed();
            let _ = write!(text, "io_uring_register({fd}, {}, {arg:#x}, {nr_args}) {}", register_name(opcode), call_result(result));
        }
    }
    if call.is_injected {
        text.push_str(INJECTED);
    }
    text
}

/// As strace marks it.
const INJECTED: &str = " (INJECTED)";

fn call_result(result: i64) -> String {
    i32::try_from(result).map_or_else(
        |_| format!("= {result}"),
        |result| errno::of_result(result).map_or_else(|| format!("= {result}"), |(name, text)| format!("= -1 {name} ({text})")),
    )
}

/// `IORING_REGISTER_*` by number.
pub(crate) fn register_name(opcode: u32) -> String {
    const NAMES: &[&str] = &[
        "REGISTER_BUFFERS",
        "UNREGISTER_BUFFERS",
        "REGISTER_FILES",
        "UNREGISTER_FILES",
        "REGISTER_EVENTFD",
        "UNREGISTER_EVENTFD",
        "REGISTER_FILES_UPDATE",
        "REGISTER_EVENTFD_ASYNC",
        "REGISTER_PROBE",
        "REGISTER_PERSONALITY",
        "UNREGISTER_PERSONALITY",
        "REGISTER_RESTRICTIONS",
        "REGISTER_ENABLE_RINGS",
        "REGISTER_FILES2",
        "REGISTER_FILES_UPDATE2",
        "REGISTER_BUFFERS2",
        "REGISTER_BUFFERS_UPDATE",
        "REGISTER_IOWQ_AFF",
        "UNREGISTER_IOWQ_AFF",
        "REGISTER_IOWQ_MAX_WORKERS",
        "REGISTER_RING_FDS",
        "UNREGISTER_RING_FDS",
        "REGISTER_PBUF_RING",
        "UNREGISTER_PBUF_RING",
        "REGISTER_SYNC_CANCEL",
        "REGISTER_FILE_ALLOC_RANGE",
        "REGISTER_PBUF_STATUS",
        "REGISTER_NAPI",
        "UNREGISTER_NAPI",
        "REGISTER_CLOCK",
        "REGISTER_CLONE_BUFFERS",
        "REGISTER_SEND_MSG_RING",
        "REGISTER_ZCRX_IFQ",
        "REGISTER_RESIZE_RINGS",
        "REGISTER_MEM_REGION",
        "REGISTER_QUERY",
        "REGISTER_ZCRX_CTRL",
        "REGISTER_BPF_FILTER",
    ];
    NAMES.get(opcode as usize).map_or_else(|| opcode.to_string(), |name| format!("IORING_{name}"))
}
