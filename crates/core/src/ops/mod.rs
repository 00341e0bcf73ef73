//! The operations: one module a family of opcodes, and the table of their facts.

pub(crate) mod buffers;
pub(crate) mod cancel;
pub(crate) mod fds;
mod filled;
mod filter_details;
pub(crate) mod fs;
pub(crate) mod futex;
mod iovecs;
mod issue;
pub(crate) mod msg_ring;
pub(crate) mod net;
pub(crate) mod nop;
mod op;
mod outcome;
pub(crate) mod poll;
#[cfg(test)]
mod routing_doc;
pub(crate) mod rw;
pub(crate) mod splice;
pub(crate) mod stream;
pub(crate) mod sync;
pub(crate) mod table;
pub(crate) mod timeout;
mod turn;
pub(crate) mod uring_cmd;
pub(crate) mod waitid;

pub(crate) use filled::FilledBytes;
pub(crate) use filter_details::{filter_details, filter_details_size};
pub(crate) use issue::{FastProgress, Issue, IssueCx, OpFamily, OpFile, PrepCx};
pub(crate) use op::Op;
pub(crate) use outcome::{Notification, Outcome};
pub(crate) use table::OPCODES;
