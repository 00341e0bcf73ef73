//! Eventfds and epoll sets: as much of epoll(7) as the engine uses on its own numbers.

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
    /// Whether an eventfd was ever signalled: the engine does not read them.
    eventfds: BTreeMap<i32, bool>,
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
        self.eventfds.insert(number, false);
        number
    }

    pub(crate) fn new_set(&mut self) -> i32 {
        let number = self.number();
        self.sets.insert(number, BTreeMap::new());
        number
    }

    pub(crate) fn eventfd(&self, number: i32) -> Option<bool> {
        self.eventfds.get(&number).copied()
    }

    fn is_ready(&self, number: i32) -> bool {
        match self.sets.get(&number) {
            Some(members) => members.iter().any(|(&file, member)| self.has_event(file, member)),
            None => self.eventfd(number) == Some(true),
        }
    }

    fn has_event(&self, file: i32, member: &Member) -> bool {
        if member.events & EPOLLET != 0 { member.has_edge } else { !member.is_spent && self.is_ready(file) }
    }

    /// Stores events as epoll_wait(2) does. Returns how many.
    pub(crate) fn take(&mut self, set: i32, events: &mut [EpollEvent]) -> usize {
        let Some(members) = self.sets.get(&set) else { return 0 };
        let ready: Vec<i32> = members.iter().filter(|(file, member)| self.has_event(**file, member)).map(|(&file, _)| file).collect();
        let members = self.sets.get_mut(&set).into_iter().flatten().filter(|(file, _)| ready.contains(file));
        let mut n = 0;
        for (slot, (_, member)) in events.iter_mut().zip(members) {
            *slot = EpollEvent { events: EPOLLIN, data: member.data };
            member.has_edge = false;
            member.is_spent = member.events & EPOLLONESHOT != 0;
            n += 1;
        }
        n
    }
}

impl Kernel {
    pub(crate) fn signal(&mut self, eventfd: i32) {
        let Some(is_signalled) = self.events.eventfds.get_mut(&eventfd) else { return };
        *is_signalled = true;
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
