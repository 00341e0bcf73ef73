//! Requests of a ring that wait for their CQEs. A CQE tells nothing of its request but
//! `user_data`.

use crate::trace::FirstIovecs;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use uringlet_abi::{Cqe, Opcode, cqe};

/// A request that was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AwaitedRequest {
    /// In its ring.
    pub(super) number: u32,
    /// Its submitter.
    pub(super) tid: u32,
    pub(super) opcode: u8,
    /// It has no CQE if it succeeds.
    pub(super) skips_success: bool,
    /// It installs a registered file into a slot that its result names.
    pub(super) allocates_slot: bool,
    /// Where it reads or receives to.
    pub(super) filled: Option<Box<FirstIovecs>>,
}

/// Which request a CQE is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MatchedRequest {
    pub(super) request: AwaitedRequest,
    /// No other request has this `user_data`.
    pub(super) is_certain: bool,
}

/// Of requests without a CQE so many are kept: nothing tells when they end.
const SKIPPING_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct AwaitedRequests {
    /// By `user_data` and number.
    requests: BTreeMap<(u64, u32), AwaitedRequest>,
    skipping: VecDeque<(u64, u32)>,
}

impl AwaitedRequests {
    /// Returns a request that is not kept any more: it has surely ended, without a CQE.
    pub(super) fn insert(&mut self, user_data: u64, request: AwaitedRequest) -> Option<(u64, AwaitedRequest)> {
        let key = (user_data, request.number);
        let skips_success = request.skips_success;
        self.requests.insert(key, request);
        if skips_success {
            self.skipping.push_back(key);
        }
        if self.skipping.len() <= SKIPPING_MAX {
            return None;
        }
        let oldest = self.skipping.pop_front()?;
        self.requests.remove(&oldest).map(|request| (oldest.0, request))
    }

    /// Whether CQEs are to come.
    pub(super) fn awaits_any(&self) -> bool {
        self.requests.len() > self.skipping.len()
    }

    /// The request of a CQE: the oldest that may have such a one. It stays if more follow.
    pub(super) fn take(&mut self, entry: &Cqe) -> Option<MatchedRequest> {
        let of_user_data = (entry.user_data, 0)..=(entry.user_data, u32::MAX);
        let mut candidates = self.requests.range(of_user_data.clone()).filter(|(_, request)| may_have(request, entry));
        let first = candidates.next().or_else(|| self.requests.range(of_user_data).next());
        let (&key, request) = first?;
        let request = request.clone();
        let is_certain = candidates.next().is_none();
        if entry.flags & cqe::MORE == 0 {
            self.requests.remove(&key);
            if request.skips_success {
                self.skipping.retain(|kept| *kept != key);
            }
        }
        Some(MatchedRequest { request, is_certain })
    }
}

fn may_have(request: &AwaitedRequest, entry: &Cqe) -> bool {
    let is_of_many = Opcode::from_u8(request.opcode).is_some_and(has_several);
    let is_first_of_many = entry.flags & (cqe::MORE | cqe::NOTIF) != 0;
    (is_of_many || !is_first_of_many) && !(request.skips_success && entry.res >= 0 && !is_first_of_many)
}

/// Whether a request may have more than one CQE.
const fn has_several(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::PollAdd
            | Opcode::Accept
            | Opcode::Recv
            | Opcode::Recvmsg
            | Opcode::RecvZc
            | Opcode::ReadMultishot
            | Opcode::Timeout
            | Opcode::SendZc
            | Opcode::SendmsgZc
            | Opcode::UringCmd
            | Opcode::UringCmd128
            | Opcode::EpollWait
            | Opcode::Waitid
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(number: u32, opcode: Opcode) -> AwaitedRequest {
        AwaitedRequest { number, tid: 1, opcode: opcode as u8, skips_success: false, allocates_slot: false, filled: None }
    }

    fn entry(user_data: u64, res: i32, flags: u32) -> Cqe {
        Cqe { user_data, res, flags }
    }

    #[test]
    fn a_cqe_is_of_the_oldest_request_with_its_user_data() {
        let mut pending = AwaitedRequests::default();
        for (number, user_data) in [(1, 7), (2, 8), (3, 7)] {
            assert_eq!(pending.insert(user_data, request(number, Opcode::Read)), None);
        }
        let mut take = |user_data| pending.take(&entry(user_data, 1, 0)).map(|found| (found.request.number, found.is_certain));
        assert_eq!([take(7), take(7), take(7), take(8)], [Some((1, false)), Some((3, true)), None, Some((2, true))]);
        assert!(!pending.awaits_any());
    }

    #[test]
    fn a_cqe_of_many_is_of_a_multishot_request() {
        let mut pending = AwaitedRequests::default();
        pending.insert(7, request(1, Opcode::Read));
        pending.insert(7, request(2, Opcode::PollAdd));
        let found = pending.take(&entry(7, 1, cqe::MORE)).unwrap();
        assert_eq!((found.request.number, found.is_certain), (2, true));
        // It stays until its last CQE.
        assert_eq!(pending.take(&entry(7, 1, cqe::MORE)).unwrap().request.number, 2);
        assert_eq!(pending.take(&entry(7, 1, 0)).unwrap().request.number, 1);
        assert_eq!(pending.take(&entry(7, -125, 0)).unwrap().request.number, 2);
    }

    #[test]
    fn requests_without_a_cqe_are_given_up() {
        let mut pending = AwaitedRequests::default();
        let skipping = |number| AwaitedRequest { skips_success: true, ..request(number, Opcode::Nop) };
        assert_eq!((1..=256).find_map(|number| pending.insert(5, skipping(number))), None);
        assert!(!pending.awaits_any());
        assert_eq!(pending.insert(5, skipping(257)), Some((5, skipping(1))));
        // A success is of another one; a failure may be theirs.
        pending.insert(5, request(300, Opcode::Nop));
        assert!(pending.awaits_any());
        assert_eq!(pending.take(&entry(5, 0, 0)).unwrap().request.number, 300);
        assert_eq!(pending.take(&entry(5, -22, 0)).unwrap().request.number, 2);
        assert_eq!(pending.insert(5, skipping(400)), None);
    }
}
