//! dup2(2) and dup3(2): the program chooses a number, which requests or the engine may be using.

use super::Engine;
use crate::state::{LockOwner, RINGS};
use crate::submit::{move_file, uses_of};
use crate::virtual_file;
use uringlet_sys::fd::{any_number_lingers, move_away};
use uringlet_sys::{Errno, fd_table, io};

impl Engine {
    /// Before dup2(2) or dup3(2), which close `new` if they succeed. A descriptor of the engine's
    /// with that number moves to another one.
    ///
    /// # Errors
    /// `EBUSY` it cannot move: the call must not be made.
    pub fn before_dup(&'static self, old: i32, new: i32) -> Result<(), Errno> {
        let concerns_us = !fd_table::is_unused(new) || any_number_lingers();
        if old == new || !concerns_us || self.is_foreign_process() || io::file_flags(old).is_err() {
            return Ok(());
        }
        if !fd_table::is_internal(new) {
            self.before_replace(new);
            return Ok(());
        }
        if fd_table::is_lingering(new) {
            // Only its locks were of use.
            let _ = fd_table::take_lingering(new);
            fd_table::set_owner(new, fd_table::FdOwner::Program);
            return Ok(());
        }
        self.give_up(new)
    }

    /// Moves the engine's descriptor away from a number.
    fn give_up(&'static self, number: i32) -> Result<(), Errno> {
        let file = virtual_file::get(number);
        virtual_file::forget(number);
        let moved = move_away(number).map_err(|_| Errno::EBUSY)?;
        if let Some(file) = file {
            virtual_file::register(moved, file);
        }
        for ring in RINGS.all() {
            if let Some(mut guard) = ring.lock(LockOwner::Worker) {
                move_file(&mut guard, number, moved);
                let uses = uses_of(&mut guard, moved);
                drop(guard);
                uses.into_iter().for_each(|number_use| number_use.wait(ring));
            }
        }
        Ok(())
    }
}
