//! A request under construction, and the resources that it accesses.

use crate::fixture;
use crate::scenario::ScenarioOp;
use uringlet_abi::{Opcode, Timespec, op_flags, sqe};

/// The access of a request to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(super) resource: Resource,
    pub(super) is_write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// By the number of its first descriptor.
    File(i32),
    Names,
    Table,
    Group(u16),
    FixedBuffer(u16),
    Futex(u64),
    /// By its user_data.
    Request(u64),
    /// Everything that may be pending.
    Pending,
}

impl Access {
    /// Whether it is one to a file of these.
    pub(super) fn is_of(&self, files: &[i32]) -> bool {
        matches!(self.resource, Resource::File(fd) if files.contains(&fd))
    }
}

pub(super) fn writes(resource: Resource) -> Access {
    Access { resource, is_write: true }
}

pub(super) fn reads(resource: Resource) -> Access {
    Access { resource, is_write: false }
}

pub(super) fn conflict(a: &[Access], b: &[Access]) -> bool {
    a.iter().any(|x| b.iter().any(|y| x.resource == y.resource && (x.is_write || y.is_write)))
}

/// A request under construction.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) op: ScenarioOp,
    pub(super) touches: Vec<Access>,
    /// Continues after its first completion.
    pub(super) is_multishot: bool,
}

impl Draft {
    /// Whether it takes provided buffers, or, being corrupted, a bundle of none.
    pub(super) fn is_provided(&self) -> bool {
        let s = &self.op.sqe;
        let is_bundle = s.opcode == Opcode::Send as u8 && s.ioprio & op_flags::RECVSEND_BUNDLE != 0;
        s.flags & sqe::BUFFER_SELECT != 0 || is_bundle
    }
}

/// Address of the request's own chunk.
pub(super) fn chunk(op: &ScenarioOp) -> u64 {
    fixture::ARENA + (op.user_data() - 1) * fixture::CHUNK
}

pub(super) fn simple(op: ScenarioOp, touches: Vec<Access>) -> Draft {
    Draft { op, touches, is_multishot: false }
}

pub(super) fn timespec(ns: i64) -> Vec<u8> {
    let ts = Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
    [ts.tv_sec.to_ne_bytes(), ts.tv_nsec.to_ne_bytes()].concat()
}

/// The resource of a descriptor: both ends of a pipe or a socket pair are one resource.
pub(super) fn resource_of(fd: i32) -> Resource {
    let is_pair = (110..130).contains(&fd) || (fixture::UDP..fixture::UDP + 2).contains(&fd);
    Resource::File(if is_pair { fd & !1 } else { fd })
}

/// Adds iovecs at the request's AUX, over memory from `base` on.
pub(super) fn iovecs(op: &mut ScenarioOp, base: u64, lens: &[u64]) {
    let mut at = base;
    let mut bytes = Vec::new();
    for len in lens {
        bytes.extend(at.to_ne_bytes());
        bytes.extend(len.to_ne_bytes());
        at += len;
    }
    op.memory.push((chunk(op) + fixture::AUX, bytes));
}
