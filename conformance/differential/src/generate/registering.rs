//! Calls of io_uring_register(2), and io_uring_enter(2) with the arguments that are registered.

use super::generator::ScenarioGenerator;
use crate::fixture;
use crate::scenario::ScenarioStep;
use uringlet_abi::{Opcode, enter, op_flags, register as reg};

/// Memory of a call's argument, behind all chunks.
const ARG: u64 = fixture::ARENA + (3 << 20);
/// The number of entries in the region of registered waits.
const N_WAITS: u64 = 64;
const WAIT_SIZE: usize = 64;

fn words32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn words64(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn call(opcode: u32, memory: Vec<u8>, nr_args: u32) -> ScenarioStep {
    ScenarioStep::Register { opcode, arg: ARG, memory, nr_args }
}

fn call_without_argument(opcode: u32, nr_args: u32) -> ScenarioStep {
    ScenarioStep::Register { opcode, arg: 0, memory: vec![], nr_args }
}

/// Calls on a ring that is not enabled yet.
pub(super) fn before_enabling(g: &mut ScenarioGenerator) -> Vec<ScenarioStep> {
    let mut steps = vec![call_without_argument(reg::PERSONALITY, 0), call_without_argument(reg::PERSONALITY, 0)];
    if g.rng.percent(80) {
        steps.push(region(g.rng.pick(&[1, 1, 1, 1, 0, 2])));
    }
    if g.rng.percent(8) {
        steps.push(restrictions(g));
    }
    steps
}

/// Registers a region of waits (`IORING_REGISTER_MEM_REGION`).
fn region(flags: u64) -> ScenarioStep {
    let mut memory = words64(&[ARG + 64, flags, 0, 0, 0, 0, 0, 0]);
    memory.extend(words64(&[ARG + 4096, 4096]));
    memory.extend(words32(&[reg::MEM_REGION_TYPE_USER, 0]));
    memory.resize(4096, 0);
    for entry in 0..N_WAITS {
        // A timeout; a bad one; an unknown flag; a timeout and a shorter one.
        let (nanoseconds, min_wait, flags) = match entry % 4 {
            0 => (1_000_000, 0, reg::REG_WAIT_TS),
            1 => (2_000_000_000, 0, reg::REG_WAIT_TS),
            2 => (0, 0, 1 << 9),
            _ => (1_000_000, 200, reg::REG_WAIT_TS),
        };
        let mut wait = words64(&[0, nanoseconds]);
        wait.extend(words32(&[min_wait, flags]));
        wait.resize(WAIT_SIZE, 0);
        memory.extend(wait);
    }
    call(reg::MEM_REGION, memory, 1)
}

/// Allows some opcodes, flags and register operations.
fn restrictions(g: &mut ScenarioGenerator) -> ScenarioStep {
    let entry = |kind: u16, value: u8| [&kind.to_ne_bytes()[..], &[value], &[0; 13]].concat();
    let mut memory = Vec::new();
    // What Linux 6.18 does not know is an error.
    for opcode in 0..=Opcode::Pipe as u8 {
        if g.rng.percent(85) {
            memory.extend(entry(reg::RESTRICTION_SQE_OP, opcode));
        }
    }
    memory.extend(entry(reg::RESTRICTION_SQE_FLAGS_ALLOWED, g.rng.pick(&[0x7f, 0x3f, 0x2f])));
    for opcode in [reg::ENABLE_RINGS, reg::CLOCK, reg::BUFFERS_UPDATE, reg::PBUF_STATUS] {
        memory.extend(entry(reg::RESTRICTION_REGISTER_OP, u8::try_from(opcode).expect("a small number")));
    }
    let n = u32::try_from(memory.len() / 16).expect("a short list");
    call(reg::RESTRICTIONS, memory, n)
}

/// One call.
pub(super) fn step(g: &mut ScenarioGenerator) -> ScenarioStep {
    match g.rng.below(16) {
        0..3 => clone_buffers(g),
        3..5 => update(g),
        5 => call(reg::PBUF_STATUS, words32(&[g.rng.pick(&[1, 2, 3, 9]), 0, 0, 0, 0, 0, 0, 0, 0, 0]), 1),
        6 => buffer_ring(g),
        7 => message(g),
        8 => ring_descriptor(g),
        9 => sets_of_resources(g),
        10 => of_the_ring(g),
        11 => cancel(g),
        12 => workers(g),
        13 => query(g),
        _ => wait(g),
    }
}

/// From the other ring or this one, all or some, into new or used slots.
fn clone_buffers(g: &mut ScenarioGenerator) -> ScenarioStep {
    let from = g.rng.pick(&[fixture::OTHER_RING, fixture::OTHER_RING, fixture::OTHER_RING, fixture::OWN_RING, 100, fixture::CLOSED]);
    let flags = g.rng.pick(&[reg::CLONE_DST_REPLACE, reg::CLONE_DST_REPLACE, reg::CLONE_DST_REPLACE, 0, 1 << 8]);
    let (from_at, to_at, n) =
        g.rng.pick(&[(0, 0, 0), (0, 0, 0), (1, 0, 2), (0, 2, 2), (0, 1, 1), (3, 0, 1), (0, 0, 9), (u32::MAX, 0, 2), (4, 0, 0)]);
    let padding = u32::from(g.rng.percent(5));
    call(reg::CLONE_BUFFERS, words32(&[from.cast_unsigned(), flags, from_at, to_at, n, padding, 0, 0]), 1)
}

/// Replaces a registered buffer or file that has a tag.
fn update(g: &mut ScenarioGenerator) -> ScenarioStep {
    let is_buffer = g.rng.percent(50);
    let offset = if is_buffer { g.rng.pick(&[0, 1, 2, 3, 70]) } else { g.rng.pick(&[13, 14, 14, 15, 40]) };
    let (data, tags) = (ARG + 64, ARG + 128);
    let tag = g.rng.pick(&[0, 6000 + g.next_id, 6000 + g.next_id]);
    let nr = g.rng.pick(&[1, 1, 1, 0, 2]);
    let mut memory = [words32(&[offset, 0]), words64(&[data, g.rng.pick(&[tags, tags, 0])]), words32(&[nr, 0])].concat();
    memory.resize(64, 0);
    if is_buffer {
        let start = fixture::FIXED_BUFFERS + g.rng.below(fixture::N_FIXED_BUFFERS) * fixture::FIXED_BUFFER_LEN;
        let (start, len) = g.rng.pick(&[(start, 4096), (start + 100, 300), (0, 0), (fixture::UNMAPPED, 4096), (0, 5), (start, 0)]);
        memory.extend(words64(&[start, len, start, len]));
    } else {
        memory.extend(words32(&[g.rng.pick(&[100, 100, u32::MAX, u32::MAX, u32::MAX - 1, 199]), u32::MAX]));
    }
    memory.resize(128, 0);
    memory.extend(words64(&[tag, 0]));
    let size = g.rng.pick(&[32, 32, 32, 32, 32, 16]);
    call(if is_buffer { reg::BUFFERS_UPDATE } else { reg::FILES_UPDATE2 }, memory, size)
}

/// A further ring of provided buffers.
fn buffer_ring(g: &mut ScenarioGenerator) -> ScenarioStep {
    let group = g.rng.pick(&[7, 7, 7, u32::from(fixture::RING_GROUP), u32::from(fixture::NO_GROUP)]);
    if g.rng.percent(40) && group != u32::from(fixture::RING_GROUP) {
        return call(reg::UNREGISTER_PBUF_RING, [words64(&[0]), words32(&[0, group, 0, 0, 0, 0, 0, 0])].concat(), 1);
    }
    let flags = g.rng.pick(&[0, 2, 1 << 8]);
    let address = g.rng.pick(&[fixture::INC_RING + 4096, fixture::INC_RING + 4096, fixture::INC_RING + 4097, 0]);
    let entries = g.rng.pick(&[8, 8, 8, 7, 0, 65536]);
    call(reg::PBUF_RING, [words64(&[address]), words32(&[entries, group | flags << 16, 0, 0, 0, 0, 0, 0])].concat(), 1)
}

/// A message by a call, without a ring of the sender.
fn message(g: &mut ScenarioGenerator) -> ScenarioStep {
    let opcode = g.rng.pick(&[Opcode::MsgRing, Opcode::MsgRing, Opcode::MsgRing, Opcode::Nop]) as u32;
    let flags = g.rng.pick(&[0, 0, 0, 1]) << 8;
    let target = g.rng.pick(&[fixture::OTHER_RING, fixture::OTHER_RING, fixture::OTHER_RING, 100]);
    let mut memory = words32(&[opcode | flags, target.cast_unsigned()]);
    // The user_data, the kind of message, the result, its flags.
    memory.extend(words64(&[5500 + g.next_id, g.rng.pick(&[0, 0, 0, 1, 9])]));
    memory.extend(words32(&[g.rng.pick(&[0, 5, u32::MAX - 4]), g.rng.pick(&[0, 0, 1])]));
    memory.resize(64, 0);
    call(reg::SEND_MSG_RING, memory, g.rng.pick(&[1, 1, 1, 2]))
}

fn ring_descriptor(g: &mut ScenarioGenerator) -> ScenarioStep {
    let index = g.rng.pick(&[0, 0, 0, 3, 16, u32::MAX]);
    if g.rng.percent(40) {
        return call(reg::UNREGISTER_RING_FDS, [words32(&[index, 0]), words64(&[0])].concat(), 1);
    }
    let fd = g.rng.pick(&[fixture::OWN_RING, fixture::OWN_RING, fixture::OWN_RING, 100, fixture::CLOSED]);
    call(reg::RING_FDS, [words32(&[index, 0]), words64(&[u64::from(fd.cast_unsigned())])].concat(), g.rng.pick(&[1, 1, 1, 0, 17]))
}

/// Whole sets of buffers and files.
fn sets_of_resources(g: &mut ScenarioGenerator) -> ScenarioStep {
    let set = |nr: u32, flags: u32| [words32(&[nr, flags]), words64(&[0, 0, 0])].concat();
    match g.rng.below(6) {
        0 => call(reg::FILES2, set(g.rng.pick(&[4, 0]), reg::RSRC_SPARSE), 32),
        1 => call(reg::BUFFERS2, set(g.rng.pick(&[4, 4, 0]), g.rng.pick(&[reg::RSRC_SPARSE, 2])), 32),
        2 => call_without_argument(reg::UNREGISTER_BUFFERS, 0),
        3 => call_without_argument(reg::UNREGISTER_FILES, g.rng.pick(&[0, 1])),
        _ => {
            let (offset, len) = g.rng.pick(&[(13, 3), (0, 20), (19, 2), (5, 0), (u32::MAX, 2)]);
            call(reg::FILE_ALLOC_RANGE, [words32(&[offset, len]), words64(&[0])].concat(), 0)
        }
    }
}

fn of_the_ring(g: &mut ScenarioGenerator) -> ScenarioStep {
    match g.rng.below(9) {
        7 => poll_of_devices(g),
        6 => resize(g),
        0 => call(reg::CLOCK, words32(&[g.rng.pick(&[1, 7, 0, 99]), 0, 0, 0]), 0),
        1 => call_without_argument(reg::ENABLE_RINGS, 0),
        2 => call_without_argument(reg::PERSONALITY, g.rng.pick(&[0, 1])),
        3 => call_without_argument(reg::UNREGISTER_PERSONALITY, g.rng.pick(&[1, 2, 3, 77])),
        4 => call(reg::EVENTFD_ASYNC, words32(&[g.rng.pick(&[fixture::NOTIFIED as u32, 100])]), 1),
        5 => region(g.rng.pick(&[0, 1])),
        _ => restrictions(g),
    }
}

/// A size that is refused: the worker does not map its rings again.
fn resize(g: &mut ScenarioGenerator) -> ScenarioStep {
    let (entries, flags) = g.rng.pick(&[(0, 0), (0, 1 << 3), (64, 1), (1 << 20, 0)]);
    let mut memory = words32(&[entries, 64, flags]);
    memory.resize(120, 0);
    call(reg::RESIZE_RINGS, memory, g.rng.pick(&[1, 1, 1, 0, 2]))
}

/// NAPI, with arguments that are refused: busy polling changes when completions come.
fn poll_of_devices(g: &mut ScenarioGenerator) -> ScenarioStep {
    let memory = words32(&[50, 1 << 16, 0, 0]);
    call(g.rng.pick(&[reg::NAPI, reg::UNREGISTER_NAPI]), memory, g.rng.pick(&[0, 2]))
}

/// A cancel by a call, of a request that is not there or only one of which waits.
fn cancel(g: &mut ScenarioGenerator) -> ScenarioStep {
    let flags = g.rng.pick(&[0, op_flags::CANCEL_USERDATA, op_flags::CANCEL_OP, 1 << 9]);
    let mut memory = words64(&[7777]);
    memory.extend(words32(&[u32::MAX, flags]));
    let (seconds, nanoseconds) = g.rng.pick(&[(u64::MAX, u64::MAX), (0, 1000), (0, 2_000_000_000)]);
    memory.extend(words64(&[seconds, nanoseconds]));
    memory.extend([Opcode::LinkTimeout as u8, 0, 0, 0, 0, 0, 0, u8::from(g.rng.percent(5))]);
    memory.resize(64, 0);
    call(reg::SYNC_CANCEL, memory, 1)
}

fn workers(g: &mut ScenarioGenerator) -> ScenarioStep {
    if g.rng.percent(50) {
        return call_without_argument(reg::UNREGISTER_IOWQ_AFF, g.rng.pick(&[0, 0, 1]));
    }
    call(reg::IOWQ_AFF, vec![g.rng.pick(&[1, 1, 0]); 8], g.rng.pick(&[8, 8, 1, 0]))
}

/// Questions that no release answers.
fn query(g: &mut ScenarioGenerator) -> ScenarioStep {
    let mut memory = words64(&[g.rng.pick(&[0, 0, 0, fixture::UNMAPPED]), ARG + 64]);
    memory.extend(words32(&[g.rng.pick(&[200, 200, 0]), g.rng.pick(&[0, 0, 8192]), 0, g.rng.pick(&[0, 0, 1]), 0, 0]));
    memory.resize(128, 0);
    call(reg::QUERY, memory, g.rng.pick(&[0, 0, 0, 1]))
}

/// io_uring_enter(2) that waits with a time limit.
fn wait(g: &mut ScenarioGenerator) -> ScenarioStep {
    let min_complete = g.rng.pick(&[0, 1, 5]);
    if g.rng.percent(50) {
        let flags = enter::GETEVENTS | enter::EXT_ARG | enter::EXT_ARG_REG;
        // Not the last entry, which Linux 6.18 takes for the first.
        let entry = g.rng.below(N_WAITS - 1);
        let arg = g.rng.pick(&[entry * 64, entry * 64, entry * 64, entry * 64, 4, 4096, u64::MAX]);
        return ScenarioStep::Enter { min_complete, flags, arg, memory: vec![], arg_len: g.rng.pick(&[64, 64, 64, 64, 24]) };
    }
    let extra = g.rng.pick(&[0, enter::NO_IOWAIT, enter::ABS_TIMER, enter::REGISTERED_RING, enter::SQ_WAIT, enter::SQ_WAKEUP]);
    let min_wait = g.rng.pick(&[0, 0, 300]);
    // The signal mask, its size, the minimal wait, the time.
    let memory = [words64(&[0]), words32(&[8, min_wait]), words64(&[ARG + 24, 0, 1_000_000])].concat();
    ScenarioStep::Enter { min_complete, flags: enter::GETEVENTS | enter::EXT_ARG | extra, arg: ARG, memory, arg_len: 24 }
}
