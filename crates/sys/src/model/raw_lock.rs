//! The raw lock with `--cfg loom`: one of loom's own, so that models of other protocols do not
//! explore ours.

use super::checker::sync::{Mutex, MutexGuard};
use std::boxed::Box;
use std::sync::OnceLock;

type LoomGuard = Option<MutexGuard<'static, ()>>;

/// Created at its first use, so that `new` can be `const`.
pub struct RawLock {
    guard: OnceLock<&'static Mutex<()>>,
    cell: std::sync::Mutex<GuardCell>,
}

struct GuardCell(LoomGuard);

// SAFETY: loom runs all threads of a model on one system thread: no value moves to another.
unsafe impl Send for GuardCell {}

impl core::fmt::Debug for RawLock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RawLock")
    }
}

impl RawLock {
    pub(crate) const fn new() -> Self {
        Self { guard: OnceLock::new(), cell: std::sync::Mutex::new(GuardCell(None)) }
    }

    fn guard(&self) -> &'static Mutex<()> {
        self.guard.get_or_init(|| Box::leak(Box::new(Mutex::new(()))))
    }

    pub(crate) fn lock(&self) {
        let guard = self.guard().lock().unwrap();
        self.swap(Some(guard));
    }

    pub(crate) fn try_lock(&self) -> bool {
        let guard = self.guard().try_lock().ok();
        let is_mine = guard.is_some();
        if is_mine {
            self.swap(guard);
        }
        is_mine
    }

    pub(crate) fn unlock(&self) {
        let guard = self.swap(None);
        drop(guard);
    }

    /// Only called with loom's mutex held, so never by two threads at once.
    fn swap(&self, guard: LoomGuard) -> LoomGuard {
        core::mem::replace(&mut self.cell.lock().unwrap().0, guard)
    }
}
