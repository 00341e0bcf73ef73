//! A scenario: a ring and a list of steps with fixed numbers and addresses.

use std::fmt;
use uringlet_abi::{Opcode, Sqe, sqe};

/// What most requests of a scenario are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ScenarioKind {
    /// Files of all kinds.
    #[default]
    Files,
    /// Requests of network servers.
    Net,
    /// What Linux 6.7 to 6.18 brought.
    Recent,
}

impl ScenarioKind {
    pub(crate) const ALL: [Self; 3] = [Self::Files, Self::Net, Self::Recent];

    /// The option that asks for it.
    pub(crate) fn option(self) -> Option<&'static str> {
        match self {
            Self::Files => None,
            Self::Net => Some("--net"),
            Self::Recent => Some("--recent"),
        }
    }
}

/// How the worker waits until the ring is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitMethod {
    /// In io_uring_enter(2), with a timeout.
    Enter,
    /// Polling the CQ's memory only.
    Memory,
    /// In poll(2) on the ring's descriptor.
    Poll,
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) setup_flags: u32,
    pub(crate) entries: u32,
    /// 0: twice the entries.
    pub(crate) cq_entries: u32,
    pub(crate) waiting: WaitMethod,
    /// At the end all requests are cancelled; otherwise the ring is closed with requests in it.
    pub(crate) cancels_at_end: bool,
    /// Calls before the ring is enabled, or before the first step.
    pub(crate) early: Vec<ScenarioStep>,
    pub(crate) steps: Vec<ScenarioStep>,
}

#[derive(Clone, Debug)]
pub(crate) enum ScenarioStep {
    Submit(Vec<ScenarioOp>),
    /// write(2), read(2), shutdown(2) of both directions, close(2): system calls, not SQEs.
    Write(i32, usize),
    Read(i32, usize),
    Shutdown(i32),
    Close(i32),
    /// Adds this many buffers to the buffer ring of this group.
    Refill(u16, u16),
    /// io_uring_register(2) with this memory at the address. The result is compared.
    Register {
        opcode: u32,
        arg: u64,
        memory: Vec<u8>,
        nr_args: u32,
    },
    /// io_uring_enter(2) with nothing to submit.
    Enter {
        min_complete: u32,
        flags: u32,
        arg: u64,
        memory: Vec<u8>,
        arg_len: usize,
    },
}

/// The beginning of a structure, in hexadecimal.
fn hex(memory: &[u8]) -> String {
    let text = memory.iter().take(64).map(|byte| format!("{byte:02x}")).collect::<String>();
    if memory.len() > 64 { text + "..." } else { text }
}

impl ScenarioStep {
    fn shown(&self) -> String {
        match self {
            Self::Register { opcode, arg, memory, nr_args } => {
                format!("Register {opcode} arg={arg:#x} nr_args={nr_args:#x} memory={}", hex(memory))
            }
            Self::Enter { min_complete, flags, arg, memory, arg_len } => {
                format!("Enter min_complete={min_complete} flags={flags:#x} arg={arg:#x} arg_len={arg_len} memory={}", hex(memory))
            }
            other => format!("{other:x?}"),
        }
    }
}

/// How to interpret a request's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultKind {
    Number,
    /// A descriptor, which is moved to this number.
    Descriptor(i32),
    /// Two descriptors at this address, which are moved to this number and the next.
    Pipe(u64, i32),
    /// A `struct statx` at this address. Only some fields are compared.
    Statx(u64),
}

/// One SQE, with the memory it needs.
#[derive(Clone, Debug)]
pub(crate) struct ScenarioOp {
    pub(crate) sqe: Sqe,
    /// Written before the SQE is submitted.
    pub(crate) memory: Vec<(u64, Vec<u8>)>,
    pub(crate) result: ResultKind,
    /// May wait for an event that does not come by itself.
    pub(crate) may_pend: bool,
    /// Requests with the same number form a chain.
    pub(crate) chain: u64,
}

impl ScenarioOp {
    pub(crate) fn user_data(&self) -> u64 {
        self.sqe.user_data
    }
}

impl fmt::Display for ScenarioOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.sqe;
        let name = Opcode::from_u8(s.opcode).map_or("?", Opcode::name);
        write!(f, "#{} {name} fd={} off={:#x} addr={:#x} len={:#x} op_flags={:#x}", s.user_data, s.fd, s.off, s.addr, s.len, s.op_flags)?;
        let rest = [
            ("opcode", u64::from(if name == "?" { s.opcode } else { 0 })),
            ("ioprio", u64::from(s.ioprio)),
            ("buf_index", u64::from(s.buf_index)),
            ("personality", u64::from(s.personality)),
            ("splice_fd_in", u64::from(s.splice_fd_in as u32)),
            ("addr3", s.addr3),
            ("pad2", s.pad2),
        ];
        for (name, value) in rest.into_iter().filter(|(_, value)| *value != 0) {
            write!(f, " {name}={value:#x}")?;
        }
        let flags = [
            (sqe::FIXED_FILE, "FIXED_FILE"),
            (sqe::IO_DRAIN, "DRAIN"),
            (sqe::IO_LINK, "LINK"),
            (sqe::IO_HARDLINK, "HARDLINK"),
            (sqe::ASYNC, "ASYNC"),
            (sqe::BUFFER_SELECT, "BUFFER_SELECT"),
            (sqe::CQE_SKIP_SUCCESS, "CQE_SKIP"),
            (0x80, "bit7"),
        ];
        for (_, name) in flags.into_iter().filter(|(bit, _)| s.flags & bit != 0) {
            write!(f, " {name}")?;
        }
        for (address, bytes) in &self.memory {
            let text = bytes.iter().take(48).map(|b| format!("{b:02x}")).collect::<String>();
            write!(f, "\n        [{address:#x}] = {text}{}", if bytes.len() > 48 { "..." } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "ring: entries {} cq_entries {} setup flags {:#x}; waits by {:?}{}",
            self.entries,
            self.cq_entries,
            self.setup_flags,
            self.waiting,
            if self.cancels_at_end { "; cancels at the end" } else { "" }
        )?;
        self.early.iter().try_for_each(|step| writeln!(f, "early: {}", step.shown()))?;
        for (index, step) in self.steps.iter().enumerate() {
            match step {
                ScenarioStep::Submit(ops) => {
                    writeln!(f, "step {index}: submit")?;
                    ops.iter().try_for_each(|op| writeln!(f, "    {op}"))?;
                }
                other => writeln!(f, "step {index}: {}", other.shown())?,
            }
        }
        Ok(())
    }
}
