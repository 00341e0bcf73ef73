//! As whom requests act, and what a ring may be used for, as the program has registered it; on the
//! engine and on the kernel's ring.

mod common;

common::oracle::compare! {
    /// `IORING_REGISTER_RESTRICTIONS`.
    policy_restrictions,
    /// `IORING_REGISTER_PERSONALITY`, with users that give up root.
    policy_personality,
}
