//! Plays one scenario on the io_uring that this process finds, and prints a transcript.

mod ring;
mod setup_fixture;
mod state;

use crate::fixture;
use crate::scenario::{ResultKind, Scenario, ScenarioOp, ScenarioStep, WaitMethod};
use ring::{PoppedCqe, RawRing};
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};
use uringlet_abi::{Cqe, Opcode, Sqe, cqe, enter, op_flags, register as reg, setup};

/// The user_data of the cancel at the end.
const LAST_CANCEL: u64 = 9999;
const FIRST_BUFFERS: u64 = 9998;

struct Player {
    ring: RawRing,
    /// Receives messages.
    other: RawRing,
    waiting: WaitMethod,
    /// The ring is idle after this time without a completion.
    idle_time: Duration,
    ops: BTreeMap<u64, ScenarioOp>,
    /// Submitted requests that complete by themselves.
    awaited: HashSet<u64>,
}

/// Plays in the current directory, which is empty.
pub(crate) fn play(scenario: &Scenario, idle_time: Duration) -> anyhow::Result<()> {
    setup_fixture::build()?;
    let ring = match RawRing::new(scenario.entries, scenario.cq_entries, scenario.setup_flags) {
        Ok(ring) => ring,
        Err(errno) => {
            println!("setup: {errno}");
            return Ok(());
        }
    };
    println!("setup: {:?}", ring.entries());
    println!("registered: {:?}", setup_fixture::register_all(&ring));
    let mut player = Player {
        ring,
        other: setup_fixture::other_ring()?,
        waiting: scenario.waiting,
        idle_time,
        ops: BTreeMap::new(),
        awaited: HashSet::new(),
    };
    scenario.early.iter().for_each(|step| player.step(step));
    if scenario.setup_flags & setup::R_DISABLED != 0 {
        println!("before enabling: {}", player.ring.enter(0, 0, enter::GETEVENTS, 0, 0));
        println!("enable: {}", player.ring.register(reg::ENABLE_RINGS, 0, 0));
    }
    player.provide();
    player.wait_until_idle();
    for (index, step) in scenario.steps.iter().enumerate() {
        println!("step {index}:");
        player.step(step);
        player.wait_until_idle();
    }
    if scenario.cancels_at_end {
        println!("cancel all:");
        player.cancel_all();
        player.wait_until_idle();
    }
    state::print(&player.ops);
    Ok(())
}

impl Player {
    fn step(&mut self, step: &ScenarioStep) {
        match step {
            ScenarioStep::Submit(ops) => self.submit(ops),
            ScenarioStep::Refill(group, n) => setup_fixture::refill(*group, *n),
            ScenarioStep::Register { opcode, arg, memory, nr_args } => {
                setup_fixture::write_arena(if memory.is_empty() { fixture::ARENA } else { *arg }, memory);
                println!("  register {opcode}: {}", self.register(*opcode, *arg, *nr_args));
            }
            ScenarioStep::Enter { min_complete, flags, arg, memory, arg_len } => {
                setup_fixture::write_arena(if memory.is_empty() { fixture::ARENA } else { *arg }, memory);
                let answer = if flags & enter::REGISTERED_RING != 0 {
                    RawRing::enter_registered(0, *min_complete, *flags, *arg, *arg_len)
                } else {
                    self.ring.enter(0, *min_complete, *flags, *arg, *arg_len)
                };
                println!("  enter: {answer}");
            }
            other => println!("  {}", state::direct_call(other)),
        }
    }

    fn submit(&mut self, ops: &[ScenarioOp]) {
        for op in ops {
            op.memory.iter().for_each(|(address, bytes)| setup_fixture::write_arena(*address, bytes));
            self.ring.push(&self.with_ring_fd(op.sqe));
            if !op.may_pend {
                self.awaited.insert(op.user_data());
            }
            self.ops.insert(op.user_data(), op.clone());
        }
        self.submit_pushed();
    }

    /// The call's result, with what it wrote for some operations.
    fn register(&self, opcode: u32, arg: u64, nr_args: u32) -> String {
        let fd_at = match opcode {
            reg::CLONE_BUFFERS => Some(0),
            reg::SEND_MSG_RING => Some(4),
            reg::RING_FDS => Some(8),
            _ => None,
        };
        if let Some(at) = fd_at {
            let bytes = setup_fixture::read_arena(arg + at, 4);
            let fd = i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            setup_fixture::write_arena(arg + at, &self.ring_fd(fd).to_ne_bytes());
        }
        if opcode == reg::SEND_MSG_RING {
            return RawRing::register_without_ring(opcode, arg, nr_args).to_string();
        }
        let answer = self.ring.register(opcode, arg, nr_args);
        let written = match opcode {
            reg::RING_FDS | reg::PBUF_STATUS => 8,
            reg::QUERY => 64,
            _ => return answer.to_string(),
        };
        format!("{answer} {:x?}", setup_fixture::read_arena(arg, written))
    }

    /// Replaces the placeholders by the rings' descriptors.
    fn ring_fd(&self, fd: i32) -> i32 {
        match fd {
            fixture::OWN_RING => self.ring.fd,
            fixture::OTHER_RING => self.other.fd,
            fd => fd,
        }
    }

    fn with_ring_fd(&self, sqe: Sqe) -> Sqe {
        Sqe { fd: self.ring_fd(sqe.fd), ..sqe }
    }

    /// A malformed SQE ends a submission: repeat until all are consumed.
    fn submit_pushed(&mut self) {
        let mut answers = Vec::new();
        for _ in 0..ops_limit(&self.ring) {
            let answer = self.ring.submit();
            answers.push(answer);
            if answer <= 0 || self.ring.pending() == 0 {
                break;
            }
            if self.ring.is_polled_by_thread() {
                break;
            }
        }
        self.ring.wait_until_taken();
        println!("  submitted: {answers:?}");
    }

    /// Provides the first buffers of the legacy group.
    fn provide(&mut self) {
        let sqe = Sqe {
            opcode: Opcode::ProvideBuffers as u8,
            fd: 4,
            addr: fixture::provided(fixture::LEGACY_GROUP, 0),
            len: fixture::PROVIDED_LEN as u32,
            buf_index: fixture::LEGACY_GROUP,
            user_data: FIRST_BUFFERS,
            ..Sqe::default()
        };
        self.ring.push(&sqe);
        self.awaited.insert(FIRST_BUFFERS);
        self.submit_pushed();
    }

    fn cancel_all(&mut self) {
        let sqe = Sqe {
            opcode: Opcode::AsyncCancel as u8,
            op_flags: op_flags::CANCEL_ANY | op_flags::CANCEL_ALL,
            user_data: LAST_CANCEL,
            ..Sqe::default()
        };
        self.ring.push(&sqe);
        self.submit_pushed();
    }

    /// Waits until the ring is idle. Prints the completions ordered by request.
    fn wait_until_idle(&mut self) {
        let mut seen = Vec::new();
        let mut last = Instant::now();
        loop {
            while let Some(popped) = self.ring.pop() {
                if popped.cqe.flags & cqe::MORE == 0 {
                    self.awaited.remove(&popped.cqe.user_data);
                }
                last = Instant::now();
                seen.push(popped);
                if seen.len() > 5000 {
                    println!("  a flood of completions: {popped:?}");
                    std::process::exit(3);
                }
            }
            let limit = if self.awaited.is_empty() { self.idle_time } else { self.idle_time * 10 + Duration::from_millis(40) };
            if last.elapsed() >= limit {
                break;
            }
            self.wait_once();
        }
        self.awaited.clear();
        self.print(&seen);
        let mut others: Vec<PoppedCqe> = std::iter::from_fn(|| self.other.pop()).collect();
        others.sort_by_key(|popped| popped.cqe.user_data);
        for PoppedCqe { cqe, .. } in others {
            println!("  the other ring: #{} {} flags={:#x}", cqe.user_data, cqe.res, cqe.flags);
        }
    }

    fn wait_once(&self) {
        let quiet_ms = self.idle_time.as_millis().max(1) as u64;
        if self.waiting == WaitMethod::Enter || self.ring.has_overflow() {
            self.ring.wait(quiet_ms);
            return;
        }
        if self.waiting == WaitMethod::Memory {
            std::thread::sleep(Duration::from_micros(100));
            return;
        }
        let mut poll = libc::pollfd { fd: self.ring.fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        unsafe { libc::poll(&mut poll, 1, quiet_ms as i32) };
    }

    fn print(&self, seen: &[PoppedCqe]) {
        let mut by_request: BTreeMap<u64, Vec<&PoppedCqe>> = BTreeMap::new();
        seen.iter().for_each(|popped| by_request.entry(popped.cqe.user_data).or_default().push(popped));
        for (user_data, cqes) in &by_request {
            let meaning = self.ops.get(user_data).map_or(ResultKind::Number, |op| op.result);
            for PoppedCqe { cqe, extra } in cqes {
                let extra = if self.has_extra(cqe) { format!(" extra={extra:x?}") } else { String::new() };
                println!("  #{user_data} {} flags={:#x}{extra}", result(cqe.res, meaning), cqe.flags);
            }
        }
        self.print_order(seen);
    }

    /// Whether the second half of a big CQE is defined: of a NOP that was issued. Linux 6.18 leaves
    /// there what the request's memory had before.
    fn has_extra(&self, cqe: &Cqe) -> bool {
        const NOT_ISSUED: [i32; 2] = [-libc::EINVAL, -libc::ECANCELED];
        self.ops.get(&cqe.user_data).is_some_and(|op| {
            let is_nop = op.sqe.opcode == Opcode::Nop as u8 && op.sqe.op_flags & op_flags::NOP_CQE32 != 0;
            is_nop && !NOT_ISSUED.contains(&cqe.res)
        })
    }

    /// Completions of a chain come in the chain's order. The position of a notification is
    /// undefined.
    fn print_order(&self, seen: &[PoppedCqe]) {
        let mut chains: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for cqe in seen.iter().map(|popped| popped.cqe).filter(|cqe| cqe.flags & cqe::NOTIF == 0) {
            if let Some(op) = self.ops.get(&cqe.user_data) {
                chains.entry(op.chain).or_default().push(cqe.user_data);
            }
        }
        for order in chains.values().filter(|order| order.len() > 1 && order.iter().any(|u| *u != order[0])) {
            println!("  order {order:?}");
        }
    }
}

fn ops_limit(ring: &RawRing) -> u32 {
    ring.entries().0 + 1
}

fn result(res: i32, meaning: ResultKind) -> String {
    match meaning {
        ResultKind::Descriptor(number) if res >= 0 => {
            state::adopt(res, number);
            "fd".to_owned()
        }
        ResultKind::Pipe(address, number) if res == 0 => {
            state::adopt_pipe(address, number);
            "pipe".to_owned()
        }
        ResultKind::Statx(address) if res == 0 => state::statx(address),
        _ => res.to_string(),
    }
}
