//! What was done to which request of a run.

use uringlet_abi::Opcode;
use uringlet_sys::fault_plan::{CALLS, DecisionId, DecisionRange, Fault, FaultActions};
use uringlet_sys::trace::{FaultedCall, TraceRecord};
use uringlet_trace::inject;

/// A decision that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) pid: u32,
    pub(super) request: u32,
    pub(super) fault: Fault,
    /// An opcode, or a call.
    subject: u64,
    pub(super) user_data: u64,
}

impl Decision {
    /// That of a record of kind `Fault`.
    pub(super) fn of_record(record: &TraceRecord) -> Self {
        let words = &record.payload;
        let id = DecisionId { ring: record.ring, number: u32::try_from(words[0]).unwrap_or(u32::MAX) };
        let actions = FaultActions::from_words([words[3], words[4], words[5], words[6]]);
        Self { pid: record.pid, request: record.request, fault: Fault { id, actions }, subject: words[1], user_data: words[2] }
    }

    /// The request or the call.
    pub(super) fn subject(&self) -> String {
        if self.fault.id.ring == CALLS {
            return FaultedCall::name(self.subject).to_owned();
        }
        let name = u8::try_from(self.subject).ok().and_then(Opcode::from_u8).map_or("a request", Opcode::name);
        format!("{name} user_data={:#x}", self.user_data)
    }

    /// What is done.
    pub(super) fn action(&self) -> String {
        inject::describe(&self.fault.actions)
    }
}

/// The ids as ranges, each once.
pub(super) fn ranges(ids: &[DecisionId]) -> Vec<DecisionRange> {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    let mut ranges: Vec<DecisionRange> = Vec::new();
    for id in sorted {
        match ranges.last_mut() {
            Some(range) if range.first.ring == id.ring && id.number <= range.last.saturating_add(1) => {
                range.last = range.last.max(id.number)
            }
            _ => ranges.push(DecisionRange { first: id, last: id.number }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringlet_sys::fault_plan::ranges_to_text;

    #[test]
    fn neighbours_become_ranges() {
        let ids = [(0, 3), (0, 4), (1, 5), (0, 5), (0, 7), (CALLS, 2), (0, 4), (1, 6)].map(|(ring, number)| DecisionId { ring, number });
        assert_eq!(ranges_to_text(&ranges(&ids)), "0.3-5,0.7,1.5-6,call.2");
        assert_eq!(ranges(&[]), []);
    }
}
