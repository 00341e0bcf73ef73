//! The queues that a ring shares with its program. They know no request.

pub(crate) mod cq;
pub(crate) mod resize;
pub(crate) mod sq;

pub(crate) use sq::SubmitBaton;
