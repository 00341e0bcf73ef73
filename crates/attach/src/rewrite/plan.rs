//! How one system call site is rewritten, as data: what `arch` decides, `record` stores and
//! `install` carries out.

use alloc::vec::Vec;

use uringlet_sys::Sysno;

use crate::intercepted::{is_intercepted, may_change_identity, may_replace_a_number, may_start_a_program};

/// The number comes from a register: looked up at each call.
pub(crate) const ANY_NUMBER: u32 = u32::MAX;

/// io_uring_setup, io_uring_enter, io_uring_register: the same numbers on every architecture.
const RING_NUMBERS: core::ops::RangeInclusive<u32> = 425..=427;

/// Whether a site with this number is rewritten in every object: io_uring's, those that change what
/// the engine's threads act as, those that may take a number which requests or the engine use, and
/// those that start a program.
pub(super) fn matters_everywhere(nr: u32) -> bool {
    RING_NUMBERS.contains(&nr) || may_change_identity(nr) || may_replace_a_number(nr) || may_start_a_program(nr)
}

/// Which bytes the jump to the trampoline overwrites. The order is that of the cache's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    /// Instructions before the system call instruction.
    BeforeSyscall,
    /// The instruction that loads the number, alone.
    NumberLoad,
    /// Instructions before the system call instruction, and that instruction.
    OverSyscall,
    /// The system call instruction and instructions behind it.
    AfterSyscall,
}

impl PatchKind {
    pub(crate) const ALL: [Self; 4] = [Self::BeforeSyscall, Self::NumberLoad, Self::OverSyscall, Self::AfterSyscall];

    /// The original system call instruction stays in place.
    pub(crate) fn keeps_syscall(self) -> bool {
        matches!(self, Self::BeforeSyscall | Self::NumberLoad)
    }

    /// What `--explain` calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BeforeSyscall => "before the call",
            Self::NumberLoad => "at the number",
            Self::OverSyscall => "over the call",
            Self::AfterSyscall => "behind the call",
        }
    }
}

/// What has to change in an instruction that moves to another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relocation {
    /// Nothing.
    None,
    /// Its four-byte displacement, this many bytes in, counts from its end.
    Displacement(u8),
    /// A direct jump, conditional or not: it is encoded anew with four bytes of displacement.
    Jump,
    /// It cannot be moved.
    Never,
}

/// An instruction that moves into the trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MovedInsn {
    pub(crate) len: u8,
    pub(crate) relocation: Relocation,
}

/// How one site is rewritten. Addresses are relative to the object's load address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PatchPlan {
    pub(crate) kind: PatchKind,
    /// The system call's number, or [`ANY_NUMBER`].
    pub(crate) nr: u32,
    pub(crate) start: u64,
    /// Offset of the system call instruction from `start`.
    pub(crate) syscall: u8,
    /// The present bytes, from `start` to where the program continues.
    pub(crate) bytes: Vec<u8>,
    /// The instructions in `bytes`, without the system call instruction.
    pub(crate) moved: Vec<MovedInsn>,
}

impl PatchPlan {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Address of the system call instruction.
    pub(crate) fn syscall_address(&self) -> u64 {
        self.start + u64::from(self.syscall)
    }

    /// What `--explain` calls the system call.
    pub(crate) fn call_name(&self) -> &'static str {
        Sysno::new(self.nr as usize).map_or("any call", |nr| nr.name())
    }

    pub(crate) fn is_ring(&self) -> bool {
        RING_NUMBERS.contains(&self.nr)
    }

    pub(crate) fn has_any_number(&self) -> bool {
        self.nr == ANY_NUMBER
    }

    /// Whether the site looks up at each call if the number is intercepted now.
    pub(crate) fn is_looked_up(&self) -> bool {
        self.has_any_number() || (is_intercepted(self.nr) && !self.is_ring())
    }

    /// A jump from elsewhere to an address strictly between these two would break the plan.
    pub(crate) fn window(&self) -> Option<(u64, u64)> {
        match self.kind {
            PatchKind::NumberLoad => None,
            PatchKind::BeforeSyscall => Some((self.start, self.syscall_address())),
            PatchKind::OverSyscall | PatchKind::AfterSyscall => Some((self.start, self.end())),
        }
    }
}

/// What a system call site is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SiteClass {
    Rewrite(PatchPlan),
    /// Its number is constant and not intercepted.
    NotIntercepted,
    /// It may be an intercepted call and cannot be rewritten.
    LeftAlone(Reason),
}

/// Why a site that may be an intercepted call stays as it is. The order is that of the cache's
/// records; of several reasons the last one is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    NoRoom,
    ComputedJumps,
    JumpTarget,
    Overlap,
    MaybeData,
    NotWritten,
}

impl Reason {
    pub(super) const ALL: [Self; 6] =
        [Self::NoRoom, Self::ComputedJumps, Self::JumpTarget, Self::Overlap, Self::MaybeData, Self::NotWritten];

    /// What `--explain` says.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NoRoom => "there are not enough bytes around it that can be moved",
            Self::ComputedJumps => "its function jumps to computed addresses, perhaps between the instructions to be overwritten",
            Self::JumpTarget => "a jump leads between the instructions to be overwritten",
            Self::Overlap => "another site needs the same bytes",
            Self::MaybeData => "it may be data: no path of known code leads to it",
            Self::NotWritten => "it is out of reach, has been changed, or the system forbids to write there",
        }
    }
}

/// A site that stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftAlone {
    /// The system call instruction's address, relative to the object's load address.
    pub(crate) at: u64,
    pub(crate) reason: Reason,
}

/// What was found in an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// The sites to rewrite, by address.
    pub(crate) plans: Vec<PatchPlan>,
    /// The sites that may be intercepted calls and cannot be rewritten.
    pub(crate) left: Vec<LeftAlone>,
}

impl Findings {
    /// Keeps the plans that are `wanted`. The sites of the others are left alone.
    pub(super) fn retain(&mut self, reason: Reason, mut wanted: impl FnMut(&PatchPlan) -> bool) {
        let left = &mut self.left;
        self.plans.retain(|plan| {
            let is_wanted = wanted(plan);
            if !is_wanted {
                left.push(LeftAlone { at: plan.syscall_address(), reason });
            }
            is_wanted
        });
    }
}
