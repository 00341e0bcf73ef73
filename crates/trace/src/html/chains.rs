//! Chains of linked requests, from the submission of the first to the end of the last.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::clock::TickClock;
use crate::request::{CqeShown, SubmittedRequest};

/// So many are shown.
const SHOWN: usize = 200;
/// So many are kept, before the fastest are dropped.
const KEPT: usize = 1 << 16;

/// A chain, as far as its requests have ended.
#[derive(Debug)]
struct ShownChain {
    first: u64,
    last: u64,
    /// By place.
    ops: BTreeMap<u32, String>,
    errors: u32,
}

/// By process, ring and number.
#[derive(Debug, Default)]
pub(super) struct LinkChains {
    chains: BTreeMap<(u32, u32, u32), ShownChain>,
    /// Those that were dropped.
    dropped: usize,
}

impl LinkChains {
    pub(super) fn add(&mut self, submission: &SubmittedRequest, shown: &CqeShown, op: &str) {
        let Some((number, place)) = submission.chain else { return };
        let (first, last) = (submission.ticks, shown.ticks);
        let key = (submission.pid, submission.ring, number);
        let chain = self.chains.entry(key).or_insert_with(|| ShownChain { first, last, ops: BTreeMap::new(), errors: 0 });
        (chain.first, chain.last) = (chain.first.min(first), chain.last.max(last));
        chain.ops.insert(place, op.to_owned());
        chain.errors += u32::from(shown.res < 0);
        if self.chains.len() > KEPT {
            self.drop_fast_half();
        }
    }

    fn drop_fast_half(&mut self) {
        let mut spans: Vec<u64> = self.chains.values().map(ShownChain::span).collect();
        let (_, &mut median, _) = spans.select_nth_unstable(KEPT / 2);
        let before = self.chains.len();
        self.chains.retain(|_, chain| chain.span() > median);
        self.dropped += before - self.chains.len();
    }

    pub(super) fn table(&self, first: u64, clock: &TickClock) -> Value {
        let mut chains: Vec<_> = self.chains.iter().collect();
        chains.sort_by_key(|(_, chain)| Reverse(chain.span()));
        let row = |((pid, ring, number), chain): (&(u32, u32, u32), &ShownChain)| {
            let ops: Vec<&str> = chain.ops.values().map(String::as_str).collect();
            let at = clock.ns(chain.first.wrapping_sub(first));
            json!([clock.ns(chain.span()), at, ops.join(" → "), ops.len(), chain.errors, pid.to_string(), ring, number])
        };
        json!({
            "name": "Chains",
            "note": format!("Linked requests, from the first submission to the last result: {} chains, of which at most {SHOWN} are shown.", self.chains.len() + self.dropped),
            "columns": [["took", "time"], ["at", "time"], ["requests", "text"], ["length", "count"], ["errors", "count"], ["process", "word"], ["ring", "count"], ["chain", "count"]],
            "rows": chains.into_iter().take(SHOWN).map(row).collect::<Vec<_>>(),
        })
    }
}

impl ShownChain {
    const fn span(&self) -> u64 {
        self.last.wrapping_sub(self.first)
    }
}
