//! In a model there are no rings of the kernel's.

pub(crate) const fn lose_number(_fd: i32) {}

pub(crate) const fn duped(_old: i32, _new: i32) {}

pub(crate) const fn before_identity_call() {}

pub(crate) const fn after_identity_call() {}

pub(crate) const fn lock_for_fork() {}

pub(crate) const fn unlock_after_fork() {}

pub(crate) const fn recover_in_copy() {}

pub(crate) const fn forget_in_child() {}
