//! Eventfds, timers and epoll sets: as much of epoll(7) as the engine uses on its own numbers.

use super::{Kernel, On};
use crate::fd::{EPOLLET, EPOLLIN, EPOLLONESHOT, EpollEvent, EpollOp};
use std::collections::BTreeMap;
use std::vec::Vec;
use syscalls::Errno;

/// No real descriptor has such a number.
const FIRST_NUMBER: i32 = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct EventTable {
    next: i32,
    /// Signals of each eventfd that were not read, and expiries of each timer.
    eventfds: BTreeMap<i32, u64>,
    /// When each running timer expires.
    timers: BTreeMap<i32, u64>,
    sets: BTreeMap<i32, BTreeMap<i32, Member>>,
}

/// A file in an epoll set.
#[derive(Clone, Copy, Debug)]
struct Member {
    events: u32,
    data: u64,
    /// Edge-triggered, with an edge that is not reported yet.
    has_edge: bool,
    /// One-shot, and it has fired.
    is_spent: bool,
}

impl EventTable {
    fn number(&mut self) -> i32 {
        self.next += 1;
        FIRST_NUMBER + self.next
    }

    pub(crate) fn new_eventfd(&mut self) -> i32 {
        let number = self.number();
        self.eventfds.insert(number, 0);
        number
    }

    pub(crate) fn new_set(&mut self) -> i32 {
        let number = self.number();
        self.sets.insert(number, BTreeMap::new());
        number
    }

    /// Whether an eventfd is readable; `None` for any other number.
    pub(crate) fn is_readable(&self, number: i32) -> Option<bool> {
        self.eventfds.get(&number).map(|&signals| signals > 0)
    }

    /// Reads one signal, as `EFD_SEMAPHORE` has it. `false`: there is none (`EAGAIN`).
    pub(crate) fn read_eventfd(&mut self, number: i32) -> bool {
        let signals = self.eventfds.entry(number).or_default();
        let has_one = *signals > 0;
        *signals -= u64::from(has_one);
        has_one
    }

    pub(crate) fn start_timer(&mut self, number: i32, expires_ns: u64) {
        self.timers.insert(number, expires_ns);
    }

    /// Takes the timers that have expired.
    pub(crate) fn take_expired(&mut self, now_ns: u64) -> Vec<i32> {
        let expired: Vec<i32> = self.timers.iter().filter(|&(_, &at_ns)| at_ns <= now_ns).map(|(&number, _)| number).collect();
        self.timers.retain(|_, at_ns| *at_ns > now_ns);
        expired
    }

    fn is_ready(&self, number: i32) -> bool {
        match self.sets.get(&number) {
            Some(members) => members.iter().any(|(&file, member)| self.has_event(file, member)),
            None => self.is_readable(number) == Some(true),
        }
    }

    fn has_event(&self, file: i32, member: &Member) -> bool {
        // An edge whose file was read meanwhile is dropped, as epoll_wait(2) does.
        let is_due = if member.events & EPOLLET != 0 { member.has_edge } else { !member.is_spent };
        is_due && self.is_ready(file)
    }

    /// Stores events as epoll_wait(2) does. Returns how many.
    pub(crate) fn take(&mut self, set: i32, events: &mut [EpollEvent]) -> usize {
        let Some(members) = self.sets.get(&set) else { return 0 };
        let ready: Vec<i32> = members.iter().filter(|(file, member)| self.has_event(**file, member)).map(|(&file, _)| file).collect();
        let not_ready: Vec<i32> = members.keys().copied().filter(|&file| !self.is_ready(file)).collect();
        let mut n = 0;
        for (file, member) in self.sets.get_mut(&set).into_iter().flatten() {
            member.has_edge &= !not_ready.contains(file);
            if !ready.contains(file) || n == events.len() {
                continue;
            }
            events[n] = EpollEvent { events: EPOLLIN, data: member.data };
            member.has_edge = false;
            member.is_spent = member.events & EPOLLONESHOT != 0;
            n += 1;
        }
        n
    }
}

impl Kernel {
    pub(crate) fn start_timer(&mut self, number: i32, ns: u64) {
        self.events.start_timer(number, self.now_ns.saturating_add(ns));
    }

    pub(crate) fn signal(&mut self, eventfd: i32) {
        let Some(signals) = self.events.eventfds.get_mut(&eventfd) else { return };
        *signals += 1;
        for members in self.events.sets.values_mut() {
            if let Some(member) = members.get_mut(&eventfd) {
                member.has_edge = true;
            }
        }
        self.wake_ready_sets();
    }

    pub(crate) fn ctl(&mut self, set: i32, op: EpollOp, file: i32, events: u32, data: u64) -> Result<(), Errno> {
        if !self.events.eventfds.contains_key(&file) && !self.events.sets.contains_key(&file) {
            return Err(Errno::EPERM);
        }
        let is_ready = self.events.is_ready(file);
        let members = self.events.sets.get_mut(&set).ok_or(Errno::EBADF)?;
        match (op, members.contains_key(&file)) {
            (EpollOp::Add, true) => return Err(Errno::EEXIST),
            (EpollOp::Mod | EpollOp::Del, false) => return Err(Errno::ENOENT),
            (EpollOp::Del, true) => drop(members.remove(&file)),
            (EpollOp::Add | EpollOp::Mod, _) => {
                members.insert(file, Member { events, data, has_edge: is_ready, is_spent: false });
            }
        }
        self.wake_ready_sets();
        Ok(())
    }

    fn wake_ready_sets(&mut self) {
        let ready: Vec<i32> = self.events.sets.keys().copied().filter(|&set| self.events.is_ready(set)).collect();
        for set in ready {
            self.wake(On::Epoll(set), u32::MAX);
        }
    }
}
