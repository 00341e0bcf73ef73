//! Plays one scenario, on whatever io_uring this process finds, and prints what happened.

mod ring;
mod stage;
mod state;

use crate::place;
use crate::scenario::{Op, Result as Meaning, Scenario, Step, Waiting};
use ring::Ring;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};
use uringlet_abi::{Cqe, Opcode, Sqe, cqe, enter, op_flags, register as reg, setup};

/// The user_data of the cancel at the end.
const LAST_CANCEL: u64 = 9999;
const FIRST_BUFFERS: u64 = 9998;

struct Player {
    ring: Ring,
    /// Gets messages.
    other: Ring,
    waiting: Waiting,
    /// Nothing happened for so long: nothing will.
    quiet: Duration,
    ops: BTreeMap<u64, Op>,
    /// Submitted requests that end by themselves.
    awaited: HashSet<u64>,
}

/// Plays in the current folder, which is empty.
pub(crate) fn play(scenario: &Scenario, quiet: Duration) -> anyhow::Result<()> {
    stage::build()?;
    let ring = match Ring::new(scenario.entries, scenario.cq_entries, scenario.setup_flags) {
        Ok(ring) => ring,
        Err(errno) => {
            println!("setup: {errno}");
            return Ok(());
        }
    };
    println!("setup: {:?}", ring.entries());
    println!("registered: {:?}", stage::register_all(&ring));
    if scenario.setup_flags & setup::R_DISABLED != 0 {
        println!("before enabling: {}", ring.enter(0, 0, enter::GETEVENTS, 0, 0));
        println!("enable: {}", ring.register(reg::ENABLE_RINGS, 0, 0));
    }
    let mut player =
        Player { ring, other: stage::other_ring()?, waiting: scenario.waiting, quiet, ops: BTreeMap::new(), awaited: HashSet::new() };
    player.provide();
    player.settle();
    for (index, step) in scenario.steps.iter().enumerate() {
        println!("step {index}:");
        player.step(step);
        player.settle();
    }
    if scenario.cancels_at_end {
        println!("cancel all:");
        player.cancel_all();
        player.settle();
    }
    state::print(&player.ops);
    Ok(())
}

impl Player {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Submit(ops) => self.submit(ops),
            Step::Refill(group, n) => stage::refill(*group, *n),
            Step::Register { opcode, arg, memory, nr_args } => {
                stage::poke(if memory.is_empty() { place::ARENA } else { *arg }, memory);
                println!("  register {opcode}: {}", self.ring.register(*opcode, *arg, *nr_args));
            }
            Step::Enter { min_complete, flags, arg, memory, arg_len } => {
                stage::poke(if memory.is_empty() { place::ARENA } else { *arg }, memory);
                println!("  enter: {}", self.ring.enter(0, *min_complete, *flags, *arg, *arg_len));
            }
            other => println!("  {}", state::plain_call(other)),
        }
    }

    fn submit(&mut self, ops: &[Op]) {
        for op in ops {
            op.memory.iter().for_each(|(address, bytes)| stage::poke(*address, bytes));
            self.ring.push(&self.named(op.sqe));
            if !op.may_pend {
                self.awaited.insert(op.user_data());
            }
            self.ops.insert(op.user_data(), op.clone());
        }
        self.submit_pushed();
    }

    /// With the rings' descriptors.
    fn named(&self, sqe: Sqe) -> Sqe {
        let fd = match sqe.fd {
            place::OWN_RING => self.ring.fd,
            place::OTHER_RING => self.other.fd,
            fd => fd,
        };
        Sqe { fd, ..sqe }
    }

    /// A malformed SQE ends a submission: again, until all are taken.
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

    /// The first buffers of the group that is no ring.
    fn provide(&mut self) {
        let sqe = Sqe {
            opcode: Opcode::ProvideBuffers as u8,
            fd: 4,
            addr: place::provided(place::LEGACY_GROUP, 0),
            len: place::PROVIDED_LEN as u32,
            buf_index: place::LEGACY_GROUP,
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

    /// Waits until nothing happens any more; prints the completions in the order of their requests.
    fn settle(&mut self) {
        let mut seen = Vec::new();
        let mut last = Instant::now();
        loop {
            while let Some(cqe) = self.ring.pop() {
                if cqe.flags & cqe::MORE == 0 {
                    self.awaited.remove(&cqe.user_data);
                }
                last = Instant::now();
                seen.push(cqe);
                if seen.len() > 5000 {
                    println!("  a flood of completions: {cqe:?}");
                    std::process::exit(3);
                }
            }
            let limit = if self.awaited.is_empty() { self.quiet } else { self.quiet * 10 + Duration::from_millis(40) };
            if last.elapsed() >= limit {
                break;
            }
            self.wait_a_little();
        }
        self.awaited.clear();
        self.print(&seen);
        let mut others: Vec<Cqe> = std::iter::from_fn(|| self.other.pop()).collect();
        others.sort_by_key(|cqe| cqe.user_data);
        for cqe in others {
            println!("  the other ring: #{} {} flags={:#x}", cqe.user_data, cqe.res, cqe.flags);
        }
    }

    fn wait_a_little(&self) {
        let quiet_ms = self.quiet.as_millis().max(1) as u64;
        if self.waiting == Waiting::Enter || self.ring.has_overflow() {
            self.ring.wait(quiet_ms);
            return;
        }
        if self.waiting == Waiting::Memory {
            std::thread::sleep(Duration::from_micros(100));
            return;
        }
        let mut poll = libc::pollfd { fd: self.ring.fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        unsafe { libc::poll(&mut poll, 1, quiet_ms as i32) };
    }

    fn print(&self, seen: &[Cqe]) {
        let mut by_request: BTreeMap<u64, Vec<&Cqe>> = BTreeMap::new();
        seen.iter().for_each(|cqe| by_request.entry(cqe.user_data).or_default().push(cqe));
        for (user_data, cqes) in &by_request {
            let meaning = self.ops.get(user_data).map_or(Meaning::Number, |op| op.result);
            for cqe in cqes {
                println!("  #{user_data} {} flags={:#x}", result(cqe.res, meaning), cqe.flags);
            }
        }
        self.print_order(seen);
    }

    /// A chain's completions come in the chain's order; when a notification comes is not promised.
    fn print_order(&self, seen: &[Cqe]) {
        let mut chains: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for cqe in seen.iter().filter(|cqe| cqe.flags & cqe::NOTIF == 0) {
            if let Some(op) = self.ops.get(&cqe.user_data) {
                chains.entry(op.chain).or_default().push(cqe.user_data);
            }
        }
        for order in chains.values().filter(|order| order.len() > 1 && order.iter().any(|u| *u != order[0])) {
            println!("  order {order:?}");
        }
    }
}

fn ops_limit(ring: &Ring) -> u32 {
    ring.entries().0 + 1
}

fn result(res: i32, meaning: Meaning) -> String {
    match meaning {
        Meaning::Descriptor(number) if res >= 0 => {
            state::adopt(res, number);
            "fd".to_owned()
        }
        Meaning::Pipe(address, number) if res == 0 => {
            state::adopt_two(address, number);
            "pipe".to_owned()
        }
        Meaning::Statx(address) if res == 0 => state::statx(address),
        _ => res.to_string(),
    }
}
