//! What a ring shares with its program: the queues in its memory. They know no request.

pub(crate) mod cq;
pub(crate) mod sq;

pub(crate) use sq::SubmitBaton;
