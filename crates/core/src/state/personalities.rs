//! Registered personalities (`IORING_REGISTER_PERSONALITY`): identities that a request may act with
//! in place of its submitter's.
//!
//! A worker of the identity stays while it is registered, or a request in flight has it: a thread
//! that has given it up can start none.

use crate::identity::Identity;
use crate::request::CapturedIdentity;
use alloc::collections::BTreeMap;
use uringlet_sys::Errno;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Personalities {
    by_id: BTreeMap<u16, CapturedIdentity>,
    /// The id that was given last: the next one is the first free one behind it.
    last: u16,
}

impl Personalities {
    /// Registers an identity. Returns its id, which is not 0.
    ///
    /// # Errors
    /// `EBUSY`: all ids are in use.
    pub(crate) fn register(&mut self, captured: CapturedIdentity) -> Result<u16, Errno> {
        let behind = (self.last..=u16::MAX).skip(1).find(|id| !self.by_id.contains_key(id));
        let id = behind.or_else(|| (1..self.last).find(|id| !self.by_id.contains_key(id))).ok_or(Errno::EBUSY)?;
        self.by_id.insert(id, captured);
        self.last = id;
        Ok(id)
    }

    /// Forgets one. Requests that have it keep it.
    ///
    /// # Errors
    /// `EINVAL`: there is none.
    pub(crate) fn unregister(&mut self, id: u32) -> Result<(), Errno> {
        let id = u16::try_from(id).map_err(|_| Errno::EINVAL)?;
        self.by_id.remove(&id).map(drop).ok_or(Errno::EINVAL)
    }

    /// The identity with this id.
    pub(crate) fn find(&self, id: u16) -> Option<CapturedIdentity> {
        self.by_id.get(&id).cloned()
    }

    /// In a forked child, whose only thread has the identity `former` of its parent: keeps what was
    /// registered with it. Workers of others cannot be had.
    pub(crate) fn reset_in_child(&mut self, former: Identity, own: &CapturedIdentity) {
        self.by_id.retain(|_, captured| captured.identity == former);
        self.by_id.values_mut().for_each(|captured| *captured = own.clone());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}
