//! dup2(2) and dup3(2): the program chooses a number, which requests or the engine may be using.

use super::Engine;
use crate::state::{LockOwner, RINGS};
use crate::submit::{move_file, uses_of};
use crate::virtual_file;
use uringlet_sys::fd::{LeavingNumber, any_number_lingers, move_away, wait_until_left};
use uringlet_sys::{Errno, fd_table, io};

impl Engine {
    /// Before dup2(2) or dup3(2), which close `new` if they succeed. A descriptor of the engine's
    /// with that number moves to another one.
    ///
    /// # Errors
    /// `EBUSY` it cannot move: the call must not be made.
    pub fn before_dup(&'static self, old: i32, new: i32) -> Result<(), Errno> {
        let concerns_us = !fd_table::is_unused(new) || any_number_lingers();
        if old == new || !concerns_us || self.is_foreign_process() || io::fstat(old).is_err() {
            return Ok(());
        }
        loop {
            wait_until_left(new);
            if !fd_table::is_internal(new) {
                self.before_replace(new);
                return Ok(());
            }
            let has_left = if fd_table::is_lingering(new) {
                // Only its locks were of use.
                LeavingNumber::of_lingering(new).is_some()
            } else {
                self.give_up(new)?
            };
            if has_left {
                return Ok(());
            }
        }
    }

    /// Moves the engine's descriptor away from a number. False: it is not the engine's any more.
    fn give_up(&'static self, number: i32) -> Result<bool, Errno> {
        let file = virtual_file::get(number);
        virtual_file::forget(number);
        let Some(moved) = move_away(number).map_err(|_| Errno::EBUSY)? else { return Ok(false) };
        if let Some(file) = file {
            virtual_file::register(moved.new, file);
        }
        for ring in RINGS.all() {
            if let Some(mut guard) = ring.lock(LockOwner::Worker) {
                move_file(&mut guard, number, moved.new);
                let uses = uses_of(&mut guard, moved.new);
                drop(guard);
                uses.into_iter().for_each(|number_use| number_use.wait(ring));
            }
        }
        Ok(true)
    }
}
