//! The life cycle of a device: start, stop, quiesce, loss of the server, recovery.

use super::UblkDevice;
use super::plug::Plug;
use super::state::{DeviceState, Teardown};
use crate::deferred::DeferredActions;
use crate::platform::Platform;
use crate::queue::DispatchMode;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Acquire, SeqCst};
use uringlet_abi::ublk::{IoCmd, feature, state};
use uringlet_sys::Errno;
use uringlet_sys::lock::futex_wait;
use uringlet_sys::process::monotonic_ns;
use uringlet_sys::sync::AtomicBool;

/// Interval at which QUIESCE_DEV checks for idle commands: a new one wakes no futex.
const IDLE_POLL_NS: u64 = 3_000_000;

impl<P: Platform> UblkDevice<P> {
    /// START_DEV: waits until every tag was fetched.
    ///
    /// # Errors
    /// `EEXIST` the device is live; `EINTR`; the errors of a front end.
    pub(crate) fn start(&self, pid: i32, cancelled: &AtomicBool) -> Result<(), Errno> {
        let actions = loop {
            self.wait(cancelled, Self::is_ready)?;
            let mut state = self.state();
            if state.dev_state == state::LIVE || state.is_started || state.teardown.is_some() || state.is_notifying_stop {
                return Err(Errno::EEXIST);
            }
            // If the server was lost after the wait, wait for the next one.
            if self.is_ready() {
                state.is_started = true;
                state.is_notifying_start = true;
                break self.go_live(&mut state, pid);
            }
        };
        self.perform_and_unplug(actions);
        let announced = self.notify_started();
        let is_over = {
            let mut state = self.state();
            state.is_notifying_start = false;
            state.is_notifying_stop
        };
        if is_over {
            self.notify_stopped();
        }
        if announced.is_err() {
            self.stop(&AtomicBool::new(false))?;
        }
        announced
    }

    /// Calls `start` of every front end.
    fn notify_started(&self) -> Result<(), Errno> {
        let me = self.weak_self.upgrade();
        me.map_or(Ok(()), |me| self.owner.front_ends().iter().try_for_each(|front_end| front_end.start(Arc::clone(&me) as _)))
    }

    /// Calls `stop` of every front end.
    fn notify_stopped(&self) {
        self.owner.front_ends().iter().for_each(|front_end| front_end.stop(self.info.dev_id));
        self.state().is_notifying_stop = false;
        self.notify();
        self.remove_if_gone();
    }

    fn go_live(&self, state: &mut DeviceState, pid: i32) -> DeferredActions<P::Command> {
        state.dev_state = state::LIVE;
        state.pid = pid;
        let limits = state.params.limits();
        self.step_all(|inner, ctx, actions| {
            inner.limits = limits;
            inner.set_mode(ctx, DispatchMode::Open, actions);
        })
    }

    /// UPDATE_SIZE, sectors.
    ///
    /// # Errors
    /// `ENODEV` it is not live.
    pub(crate) fn resize(&self, sectors: u64) -> Result<(), Errno> {
        let actions = {
            let mut state = self.state();
            if !state.is_started {
                return Err(Errno::ENODEV);
            }
            state.params.set_size(sectors);
            self.step_all(|inner, _, _| inner.limits.sectors = sectors)
        };
        self.perform_and_unplug(actions);
        if let Some(me) = self.weak_self.upgrade() {
            let device: Arc<dyn crate::frontend::BlockDevice> = me;
            self.owner.front_ends().iter().for_each(|front_end| front_end.resized(&device));
        }
        Ok(())
    }

    /// The server is lost. `cmd`: a command whose ring ends, and then only the requests of that
    /// queue are lost; `None`: the char device was closed.
    pub(super) fn lose_server(&self, cmd: Option<&IoCmd>, plug: &mut Plug) {
        let queue = cmd.map(|cmd| cmd.q_id);
        let mut actions = {
            let mut state = self.state();
            if state.dev_state != state::LIVE {
                if let Some(cmd) = cmd
                    && let Some(queue) = self.queue(cmd.q_id)
                {
                    queue.inner.lock().server_lost_before_start(cmd.tag);
                }
                return;
            }
            let teardown = match () {
                // Front ends flush and wait for their writes: those must not wait for another
                // server.
                () if state.is_stopping || !self.has(feature::USER_RECOVERY) => Teardown::Stop,
                () if self.has(feature::USER_RECOVERY_FAIL_IO) => Teardown::FailIo,
                () => Teardown::Quiesce,
            };
            let mut actions = if state.teardown.is_none() { self.begin_teardown(&mut state, teardown) } else { DeferredActions::new() };
            for (number, other) in self.queues.iter().enumerate() {
                if queue.is_none_or(|queue| queue as usize == number) {
                    other.inner.lock().server_lost(&self.ctx(number as u16), &mut actions);
                }
            }
            actions
        };
        self.perform(&mut actions, plug);
    }

    /// Closes the queues to new requests. [`finish_if_idle`](Self::finish_if_idle) does the rest.
    fn begin_teardown(&self, state: &mut DeviceState, teardown: Teardown) -> DeferredActions<P::Command> {
        state.teardown = Some(teardown);
        self.is_tearing_down.store(true, SeqCst);
        let mode = if teardown == Teardown::Quiesce { DispatchMode::Hold } else { DispatchMode::Fail };
        self.step_all(|inner, ctx, actions| inner.set_mode(ctx, mode, actions))
    }

    /// Finishes a pending teardown if no request is in flight.
    pub(super) fn finish_if_idle(&self, plug: &mut Plug) {
        let mut actions = DeferredActions::new();
        let is_stopped = {
            let mut state = self.state();
            let Some(teardown) = state.teardown.filter(|_| self.is_idle()) else { return };
            state.teardown = None;
            self.is_tearing_down.store(false, SeqCst);
            self.finish_teardown(&mut state, teardown, &mut actions);
            // The thread that notifies of the start also notifies of the stop, after it.
            teardown == Teardown::Stop && !state.is_notifying_start
        };
        self.perform(&mut actions, plug);
        // A front end that is notified next may wait for results that are still plugged.
        self.unplug_all(plug);
        if is_stopped {
            return self.notify_stopped();
        }
        self.notify();
        self.remove_if_gone();
    }

    fn finish_teardown(&self, state: &mut DeviceState, teardown: Teardown, actions: &mut DeferredActions<P::Command>) {
        state.dev_state = match teardown {
            Teardown::Stop => state::DEAD,
            Teardown::Quiesce => state::QUIESCED,
            Teardown::FailIo => state::FAIL_IO,
        };
        self.cancel_all(actions);
        if teardown == Teardown::Stop {
            state.pid = -1;
            state.is_started = false;
            state.is_stopping = false;
            state.is_notifying_stop = true;
            self.reset_all(actions);
        }
        if state.is_close_pending {
            self.finish_close(state, actions);
        }
    }

    pub(super) fn cancel_all(&self, actions: &mut DeferredActions<P::Command>) {
        self.queues.iter().for_each(|queue| queue.inner.lock().cancel_all(actions));
    }

    /// STOP_DEV: returns once the device is stopped. Front ends flush first, as the kernel flushes
    /// before a disk goes away.
    ///
    /// # Errors
    /// `EINTR`: the stop goes on by itself.
    pub(crate) fn stop(&self, cancelled: &AtomicBool) -> Result<(), Errno> {
        if self.begin_stop() {
            self.owner.front_ends().iter().for_each(|front_end| front_end.before_stop(self.info.dev_id));
            self.end_stop();
        }
        self.wait(cancelled, |device| {
            let state = device.state();
            state.dev_state == state::DEAD && state.teardown.is_none() && !state.is_notifying_stop
        })
    }

    /// Returns whether the caller has to flush the front ends and end the stop.
    fn begin_stop(&self) -> bool {
        let mut state = self.state();
        if state.is_stopping {
            return false;
        }
        let has_server = state.dev_state == state::LIVE && state.teardown.is_none();
        state.is_stopping = has_server;
        drop(state);
        if has_server {
            // Ends the wait of a QUIESCE_DEV for idle commands.
            self.notify();
        } else {
            self.end_stop();
        }
        has_server
    }

    fn end_stop(&self) {
        let mut actions = DeferredActions::new();
        {
            let mut state = self.state();
            if state.dev_state != state::DEAD {
                actions = self.begin_teardown(&mut state, Teardown::Stop);
            } else if state.teardown.is_none() {
                self.reset_all(&mut actions);
            }
        }
        self.perform_and_unplug(actions);
    }

    /// QUIESCE_DEV: asks the server to exit, by -ENODEV for its commands.
    ///
    /// # Errors
    /// `ENODEV` not started, or being stopped; `EBUSY` some queue had no idle command before the
    /// deadline; `EINTR`.
    pub(crate) fn quiesce(&self, deadline_ns: u64, cancelled: &AtomicBool) -> Result<(), Errno> {
        let held = {
            let state = self.state();
            match state.dev_state {
                state::DEAD => return Err(Errno::ENODEV),
                _ if state.is_stopping => return Err(Errno::ENODEV),
                state::LIVE if state.teardown.is_none() => {}
                _ => return Ok(()),
            }
            self.step_all(|inner, ctx, actions| inner.set_mode(ctx, DispatchMode::Hold, actions))
        };
        self.perform_and_unplug(held);
        let result = self.wait_for_idle_commands(deadline_ns, cancelled);
        let mut state = self.state();
        // STOP_DEV waits for writes that the Hold mode would keep back.
        let result = if state.is_stopping { Err(Errno::ENODEV) } else { result };
        let actions = {
            let is_live = state.dev_state == state::LIVE && state.teardown.is_none();
            match result {
                // Another teardown began meanwhile.
                _ if !is_live => DeferredActions::new(),
                Ok(()) => {
                    let mut actions = self.begin_teardown(&mut state, Teardown::Quiesce);
                    self.cancel_all(&mut actions);
                    actions
                }
                Err(_) => self.step_all(|inner, ctx, actions| inner.set_mode(ctx, DispatchMode::Open, actions)),
            }
        };
        drop(state);
        self.perform_and_unplug(actions);
        result
    }

    fn wait_for_idle_commands(&self, deadline_ns: u64, cancelled: &AtomicBool) -> Result<(), Errno> {
        loop {
            let seen = self.event_seq.load(Acquire);
            if cancelled.load(Acquire) || self.state().is_stopping {
                return Err(Errno::EINTR);
            }
            if self.queues.iter().all(|queue| queue.inner.lock().has_idle_command()) {
                return Ok(());
            }
            let now = monotonic_ns();
            if now >= deadline_ns {
                return Err(Errno::EBUSY);
            }
            if futex_wait(&self.event_seq, seen, deadline_ns.min(now + IDLE_POLL_NS)) == Err(Errno::EINTR) {
                return Err(Errno::EINTR);
            }
        }
    }

    /// START_USER_RECOVERY.
    ///
    /// # Errors
    /// `EINVAL` the device cannot be recovered, or never had a server; `EBUSY` the char device is
    /// open, or it has a server.
    pub(crate) fn start_recovery(&self) -> Result<(), Errno> {
        let mut state = self.state();
        if !self.has(feature::USER_RECOVERY) || !state.had_server {
            return Err(Errno::EINVAL);
        }
        if state.is_open || !is_recoverable(state.dev_state) {
            return Err(Errno::EBUSY);
        }
        state.had_server = false;
        Ok(())
    }

    /// END_USER_RECOVERY: waits until every tag was fetched.
    ///
    /// # Errors
    /// `EINVAL` the device cannot be recovered; `EBUSY` it does not need recovery; `EINTR`.
    pub(crate) fn end_recovery(&self, pid: i32, cancelled: &AtomicBool) -> Result<(), Errno> {
        let actions = loop {
            self.wait(cancelled, Self::is_ready)?;
            let mut state = self.state();
            if !self.has(feature::USER_RECOVERY) {
                return Err(Errno::EINVAL);
            }
            if !is_recoverable(state.dev_state) || state.teardown.is_some() {
                return Err(Errno::EBUSY);
            }
            if self.is_ready() {
                break self.go_live(&mut state, pid);
            }
        };
        self.perform_and_unplug(actions);
        Ok(())
    }
}

fn is_recoverable(device_state: u16) -> bool {
    matches!(device_state, state::QUIESCED | state::FAIL_IO)
}
