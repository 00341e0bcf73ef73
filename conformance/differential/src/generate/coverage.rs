//! What the engine supports is generated: each opcode, register operation and flag of Linux 6.18.

use crate::generate;
use crate::scenario::{Scenario, ScenarioKind, ScenarioStep};
use uringlet_abi::support::{self, SupportGroup};

/// The oracle's release.
const ORACLE: (u32, u32) = (6, 18);
const KINDS: [ScenarioKind; 3] = [ScenarioKind::Files, ScenarioKind::Net, ScenarioKind::Recent];

/// Setup flags that no scenario has, and why.
const SETUP_LEFT_OUT: [&str; 6] = [
    "IOPOLL",             // polls nothing here: `docs/differences.md`
    "HYBRID_IOPOLL",      // as IOPOLL
    "SQ_AFF",             // a thread is bound, which no answer shows
    "ATTACH_WQ",          // needs a second ring with workers, which no answer shows
    "NO_MMAP",            // the worker maps its rings
    "REGISTERED_FD_ONLY", // needs NO_MMAP
];

/// Linux has instances without a device since 7.1, and this machine no device with them.
const NEEDS_DEVICE: [&str; 2] = ["RECV_ZC", "ZCRX_IFQ"];

fn is_in_oracle(since: &str) -> bool {
    let (major, minor) = since.split_once('.').expect("a release has two numbers");
    (major.parse().expect("a number"), minor.parse().expect("a number")) <= ORACLE
}

/// The entries of a group that should be generated, and are not.
fn missing(group: &SupportGroup, left_out: &[&str], is_generated: impl Fn(u32) -> bool) -> Vec<&'static str> {
    let wanted = group.entries.iter().filter(|entry| entry.is_supported() && is_in_oracle(entry.since));
    wanted.filter(|entry| !left_out.contains(&entry.name) && !is_generated(entry.number)).map(|entry| entry.name).collect()
}

fn scenarios() -> Vec<Scenario> {
    KINDS.into_iter().flat_map(|kind| (1..=600).map(move |seed| generate::scenario(seed, 24, kind))).collect()
}

fn steps(scenarios: &[Scenario]) -> impl Iterator<Item = &ScenarioStep> {
    scenarios.iter().flat_map(|scenario| scenario.early.iter().chain(&scenario.steps))
}

#[test]
fn each_opcode_and_sqe_flag_is_generated() {
    let scenarios = scenarios();
    let (mut opcodes, mut flags) = ([false; 256], 0_u32);
    for step in steps(&scenarios) {
        let ScenarioStep::Submit(ops) = step else { continue };
        for op in ops {
            opcodes[usize::from(op.sqe.opcode)] = true;
            flags |= u32::from(op.sqe.flags);
        }
    }
    assert_eq!(missing(&support::OPCODES, &NEEDS_DEVICE, |opcode| opcodes[opcode as usize]), [""; 0]);
    assert_eq!(missing(&support::SQE, &[], |flag| flags & flag != 0), [""; 0]);
}

#[test]
fn each_register_operation_is_generated() {
    let scenarios = scenarios();
    let made = |opcode| steps(&scenarios).any(|step| matches!(step, ScenarioStep::Register { opcode: made, .. } if *made == opcode));
    assert_eq!(missing(&support::REGISTER, &NEEDS_DEVICE, made), [""; 0]);
}

#[test]
fn each_setup_and_enter_flag_is_generated() {
    let scenarios = scenarios();
    let setup = scenarios.iter().fold(0, |flags, scenario| flags | scenario.setup_flags);
    assert_eq!(missing(&support::SETUP, &SETUP_LEFT_OUT, |flag| setup & flag != 0), [""; 0]);
    let enter = steps(&scenarios).fold(0, |all, step| match step {
        ScenarioStep::Enter { flags, .. } => all | flags,
        _ => all,
    });
    assert_eq!(missing(&support::ENTER, &[], |flag| enter & flag != 0), [""; 0]);
}
