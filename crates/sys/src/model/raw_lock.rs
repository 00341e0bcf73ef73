//! What locks are made of with `--cfg loom`: one of loom's own, so that other protocols' models are not about ours.

use super::checker::sync::{Mutex, MutexGuard};
use std::boxed::Box;
use std::sync::OnceLock;

type LoomGuard = Option<MutexGuard<'static, ()>>;

/// Made at its first use, so that `new` can be `const`.
pub struct RawLock {
    turn: OnceLock<&'static Mutex<()>>,
    holder: std::sync::Mutex<GuardCell>,
}

struct GuardCell(LoomGuard);

// SAFETY: loom runs all threads of a model on one thread of the system: nothing ever moves to another.
unsafe impl Send for GuardCell {}

impl core::fmt::Debug for RawLock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RawLock")
    }
}

impl RawLock {
    pub(crate) const fn new() -> Self {
        Self { turn: OnceLock::new(), holder: std::sync::Mutex::new(GuardCell(None)) }
    }

    fn turn(&self) -> &'static Mutex<()> {
        self.turn.get_or_init(|| Box::leak(Box::new(Mutex::new(()))))
    }

    pub(crate) fn lock(&self) {
        let turn = self.turn().lock().unwrap();
        self.swap(Some(turn));
    }

    pub(crate) fn try_lock(&self) -> bool {
        let turn = self.turn().try_lock().ok();
        let is_mine = turn.is_some();
        if is_mine {
            self.swap(turn);
        }
        is_mine
    }

    pub(crate) fn unlock(&self) {
        let turn = self.swap(None);
        drop(turn);
    }

    /// The caller has the turn: nobody else is in here.
    fn swap(&self, turn: LoomGuard) -> LoomGuard {
        core::mem::replace(&mut self.holder.lock().unwrap().0, turn)
    }
}
