//! How a device's life ends and begins again: start, stop, quiesce, the loss of its server, recovery.

use super::{End, Life, Plug, UblkDevice};
use crate::actions::Actions;
use crate::platform::Platform;
use crate::queue::Mode;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Acquire, SeqCst};
use uringlet_abi::ublk::{IoCmd, feature, state};
use uringlet_sys::Errno;
use uringlet_sys::lock::futex_wait;
use uringlet_sys::process::monotonic_ns;
use uringlet_sys::sync::AtomicBool;

/// Between two looks at what tells nobody.
const LOOK_NS: u64 = 3_000_000;

impl<P: Platform> UblkDevice<P> {
    /// START_DEV: waits until every tag was fetched.
    ///
    /// # Errors
    /// `EEXIST` it is live; `EINTR`; those of a front end.
    pub(crate) fn start(&self, pid: i32, gone: &AtomicBool) -> Result<(), Errno> {
        let actions = loop {
            self.wait(gone, Self::is_ready)?;
            let mut life = self.life();
            if life.state == state::LIVE || life.is_started || life.ending.is_some() || life.is_leaving {
                return Err(Errno::EEXIST);
            }
            // The server may have gone since: then the next one is waited for.
            if self.is_ready() {
                life.is_started = true;
                life.is_arriving = true;
                break self.go_live(&mut life, pid);
            }
        };
        self.perform_unplugged(actions);
        let announced = self.announce();
        let is_over = {
            let mut life = self.life();
            life.is_arriving = false;
            life.is_leaving
        };
        if is_over {
            self.take_leave();
        }
        if announced.is_err() {
            self.stop(&AtomicBool::new(false))?;
        }
        announced
    }

    /// Tells front ends of the device.
    fn announce(&self) -> Result<(), Errno> {
        let me = self.me.upgrade();
        me.map_or(Ok(()), |me| self.owner.front_ends().iter().try_for_each(|front_end| front_end.start(Arc::clone(&me) as _)))
    }

    /// Tells front ends of the end.
    fn take_leave(&self) {
        self.owner.front_ends().iter().for_each(|front_end| front_end.stop(self.info.dev_id));
        self.life().is_leaving = false;
        self.tell();
        self.forget_if_gone();
    }

    fn go_live(&self, life: &mut Life, pid: i32) -> Actions<P::Command> {
        life.state = state::LIVE;
        life.pid = pid;
        let limits = life.params.limits();
        self.step_all(|inner, cx, actions| {
            inner.limits = limits;
            inner.set_mode(cx, Mode::Open, actions);
        })
    }

    /// UPDATE_SIZE, sectors.
    ///
    /// # Errors
    /// `ENODEV` it is not live.
    pub(crate) fn resize(&self, sectors: u64) -> Result<(), Errno> {
        let actions = {
            let mut life = self.life();
            if !life.is_started {
                return Err(Errno::ENODEV);
            }
            life.params.set_size(sectors);
            self.step_all(|inner, _, _| inner.limits.sectors = sectors)
        };
        self.perform_unplugged(actions);
        if let Some(me) = self.me.upgrade() {
            let device: Arc<dyn crate::frontend::BlockDevice> = me;
            self.owner.front_ends().iter().for_each(|front_end| front_end.resized(&device));
        }
        Ok(())
    }

    /// The server is gone: the ring of this command, or all of it. Requests of the command's queue are lost, or all.
    pub(super) fn lose_server(&self, cmd: Option<&IoCmd>, plug: &mut Plug) {
        let queue = cmd.map(|cmd| cmd.q_id);
        let mut actions = {
            let mut life = self.life();
            if life.state != state::LIVE {
                if let Some(cmd) = cmd
                    && let Some(queue) = self.queue(cmd.q_id)
                {
                    queue.inner.lock().lose_early(cmd.tag);
                }
                return;
            }
            let end = match () {
                // Front ends may wait for their writes: they must not wait for a next server.
                () if life.is_stopping || !self.has(feature::USER_RECOVERY) => End::Stop,
                () if self.has(feature::USER_RECOVERY_FAIL_IO) => End::FailIo,
                () => End::Quiesce,
            };
            let mut actions = if life.ending.is_none() { self.begin_end(&mut life, end) } else { Actions::new() };
            for (number, other) in self.queues.iter().enumerate() {
                if queue.is_none_or(|queue| queue as usize == number) {
                    other.inner.lock().lose(&self.cx(number as u16), &mut actions);
                }
            }
            actions
        };
        self.perform(&mut actions, plug);
    }

    /// Closes the queues to new requests; [`settle`](Self::settle) does the rest.
    fn begin_end(&self, life: &mut Life, end: End) -> Actions<P::Command> {
        life.ending = Some(end);
        self.is_ending.store(true, SeqCst);
        let mode = if end == End::Quiesce { Mode::Hold } else { Mode::Fail };
        self.step_all(|inner, cx, actions| inner.set_mode(cx, mode, actions))
    }

    /// Finishes an end, if no request is in flight any more.
    pub(super) fn settle(&self, plug: &mut Plug) {
        let mut actions = Actions::new();
        let takes_leave = {
            let mut life = self.life();
            let Some(end) = life.ending.filter(|_| self.busy.load(SeqCst) == 0) else { return };
            life.ending = None;
            self.is_ending.store(false, SeqCst);
            self.finish_end(&mut life, end, &mut actions);
            // Who tells of the beginning goes on with this.
            end == End::Stop && !life.is_arriving
        };
        self.perform(&mut actions, plug);
        // Whoever is notified next may wait for the peers.
        self.unplug_all(plug);
        if takes_leave {
            return self.take_leave();
        }
        self.tell();
        self.forget_if_gone();
    }

    fn finish_end(&self, life: &mut Life, end: End, actions: &mut Actions<P::Command>) {
        life.state = match end {
            End::Stop => state::DEAD,
            End::Quiesce => state::QUIESCED,
            End::FailIo => state::FAIL_IO,
        };
        self.cancel_all(actions);
        if end == End::Stop {
            life.pid = -1;
            life.is_started = false;
            life.is_stopping = false;
            life.is_leaving = true;
            self.reset_all(actions);
        }
        if life.is_closing {
            self.finish_close(life, actions);
        }
    }

    fn cancel_all(&self, actions: &mut Actions<P::Command>) {
        self.queues.iter().for_each(|queue| queue.inner.lock().cancel(actions));
    }

    /// STOP_DEV: returns when it is over. First front ends write what they keep, as the kernel does before its disk goes.
    ///
    /// # Errors
    /// `EINTR`: it goes on by itself.
    pub(crate) fn stop(&self, gone: &AtomicBool) -> Result<(), Errno> {
        if self.begin_stop() {
            self.owner.front_ends().iter().for_each(|front_end| front_end.before_stop(self.info.dev_id));
            self.end_stop();
        }
        self.wait(gone, |device| {
            let life = device.life();
            life.state == state::DEAD && life.ending.is_none() && !life.is_leaving
        })
    }

    /// Whether the caller is the one to go on with it.
    fn begin_stop(&self) -> bool {
        let mut life = self.life();
        if life.is_stopping {
            return false;
        }
        let has_server = life.state == state::LIVE && life.ending.is_none();
        life.is_stopping = has_server;
        drop(life);
        if has_server {
            // A QUIESCE_DEV that waits for idle commands gives up.
            self.tell();
        } else {
            self.end_stop();
        }
        has_server
    }

    fn end_stop(&self) {
        let mut actions = Actions::new();
        {
            let mut life = self.life();
            if life.state != state::DEAD {
                actions = self.begin_end(&mut life, End::Stop);
            } else if life.ending.is_none() {
                self.reset_all(&mut actions);
            }
        }
        self.perform_unplugged(actions);
    }

    /// QUIESCE_DEV: the server hears that it shall go.
    ///
    /// # Errors
    /// `ENODEV` not started, or it is being stopped; `EBUSY` it had no idle command in each queue to hear it by, in time; `EINTR`.
    pub(crate) fn quiesce(&self, deadline_ns: u64, gone: &AtomicBool) -> Result<(), Errno> {
        let held = {
            let life = self.life();
            match life.state {
                state::DEAD => return Err(Errno::ENODEV),
                _ if life.is_stopping => return Err(Errno::ENODEV),
                state::LIVE if life.ending.is_none() => {}
                _ => return Ok(()),
            }
            self.step_all(|inner, cx, actions| inner.set_mode(cx, Mode::Hold, actions))
        };
        self.perform_unplugged(held);
        let result = self.wait_for_idle_commands(deadline_ns, gone);
        let mut life = self.life();
        // Who stops it waits for writes that we hold.
        let result = if life.is_stopping { Err(Errno::ENODEV) } else { result };
        let actions = {
            let is_live = life.state == state::LIVE && life.ending.is_none();
            match result {
                // Something else ended it meanwhile.
                _ if !is_live => Actions::new(),
                Ok(()) => {
                    let mut actions = self.begin_end(&mut life, End::Quiesce);
                    self.cancel_all(&mut actions);
                    actions
                }
                Err(_) => self.step_all(|inner, cx, actions| inner.set_mode(cx, Mode::Open, actions)),
            }
        };
        drop(life);
        self.perform_unplugged(actions);
        result
    }

    fn wait_for_idle_commands(&self, deadline_ns: u64, gone: &AtomicBool) -> Result<(), Errno> {
        loop {
            let seen = self.news.load(Acquire);
            if gone.load(Acquire) || self.life().is_stopping {
                return Err(Errno::EINTR);
            }
            if self.queues.iter().all(|queue| queue.inner.lock().has_idle_command()) {
                return Ok(());
            }
            let now = monotonic_ns();
            if now >= deadline_ns {
                return Err(Errno::EBUSY);
            }
            if futex_wait(&self.news, seen, deadline_ns.min(now + LOOK_NS)) == Err(Errno::EINTR) {
                return Err(Errno::EINTR);
            }
        }
    }

    /// START_USER_RECOVERY.
    ///
    /// # Errors
    /// `EINVAL` the device cannot be recovered, or never had a server; `EBUSY` the char device is open, or it has a server.
    pub(crate) fn start_recovery(&self) -> Result<(), Errno> {
        let mut life = self.life();
        if !self.has(feature::USER_RECOVERY) || !life.had_server {
            return Err(Errno::EINVAL);
        }
        if life.is_open || !is_recoverable(life.state) {
            return Err(Errno::EBUSY);
        }
        life.had_server = false;
        Ok(())
    }

    /// END_USER_RECOVERY: waits until every tag was fetched.
    ///
    /// # Errors
    /// `EINVAL` the device cannot be recovered; `EBUSY` it need not be; `EINTR`.
    pub(crate) fn end_recovery(&self, pid: i32, gone: &AtomicBool) -> Result<(), Errno> {
        let actions = loop {
            self.wait(gone, Self::is_ready)?;
            let mut life = self.life();
            if !self.has(feature::USER_RECOVERY) {
                return Err(Errno::EINVAL);
            }
            if !is_recoverable(life.state) || life.ending.is_some() {
                return Err(Errno::EBUSY);
            }
            if self.is_ready() {
                break self.go_live(&mut life, pid);
            }
        };
        self.perform_unplugged(actions);
        Ok(())
    }
}

fn is_recoverable(device_state: u16) -> bool {
    matches!(device_state, state::QUIESCED | state::FAIL_IO)
}
