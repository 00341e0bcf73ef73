//! What is done to requests on purpose (`uringlet run --inject`, `--legal`, `uringlet chaos`).
//!
//! The launcher makes a plan of its command line, the engine of each process reads it once. A plan
//! is text in a variable of the environment: children inherit it, no descriptor stays in a program,
//! and it works across users and containers.
//!
//! A **decision** is one request, or one call, that something is done to. Decisions of a ring are
//! numbered, `0.3` is ring 0's fourth; those on calls are `call.0`, `call.1` and so on. A decision
//! depends on the seed, the ring's index and how many requests of that ring were like this before:
//! the same program with the same seed gets the same ones.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// The variable of the environment.
pub const VARIABLE: &str = "URINGLET_FAULTS";
/// The ring of decisions on calls.
pub const CALLS: u32 = u32::MAX;
/// Of a million, always.
pub const ALWAYS: u32 = 1_000_000;

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTarget {
    /// Requests: a bit for each opcode.
    Requests(u128),
    /// io_uring_setup(2).
    Setup,
    /// io_uring_enter(2).
    Enter,
    /// io_uring_register(2).
    Register,
}

/// Which of the requests that a rule is about are hit: the `first` one, counted from 1, and each
/// `step`-th behind it up to the `last`; of these, so many of a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultWhen {
    /// From 1.
    pub first: u32,
    /// At least `first`.
    pub last: u32,
    /// At least 1.
    pub step: u32,
    /// [`ALWAYS`] at most.
    pub per_million: u32,
}

impl FaultWhen {
    /// Every one.
    pub const EACH: Self = Self { first: 1, last: u32::MAX, step: 1, per_million: ALWAYS };

    /// Whether the `nth`, from 1, may be hit.
    #[must_use]
    pub const fn has(&self, nth: u32) -> bool {
        nth >= self.first && nth <= self.last && (nth - self.first).is_multiple_of(self.step)
    }
}

/// What is done to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultActions {
    /// It is not executed: this is its result.
    pub result: Option<i32>,
    /// It waits for so long before it is executed.
    pub delay_ns: u64,
    /// It moves so many percent of the bytes that were asked for; 0: all.
    pub short_percent: u32,
    /// It moves so many bytes; 0: all.
    pub short_bytes: u32,
    /// A multishot ends with so many results; 0: as it would.
    pub shots: u32,
    /// [`OVERFLOW`](Self::OVERFLOW) and the others.
    pub flags: u32,
}

impl FaultActions {
    /// Nothing.
    pub const NONE: Self = Self { result: None, delay_ns: 0, short_percent: 0, short_bytes: 0, shots: 0, flags: 0 };
    /// Its CQE goes to the overflow list.
    pub const OVERFLOW: u32 = 1;
    /// Its socket is shut down before it is executed: the peer is lost.
    pub const HANGUP: u32 = 2;
    /// A worker executes it.
    pub const WORKER: u32 = 4;
    /// A poll is told that its file is ready.
    pub const READY: u32 = 8;
    /// It was shortened, and a transfer that is not whole breaks its links.
    pub const BREAKS_LINK: u32 = 16;
    /// Its delay ends when those of others do: at a multiple of it.
    pub const BURST: u32 = 32;
    /// A call that waits for completions does not.
    pub const NO_WAIT: u32 = 64;

    /// Whether it moves fewer bytes.
    #[must_use]
    pub const fn is_short(&self) -> bool {
        self.short_percent | self.short_bytes != 0
    }

    /// Whether these flags are set.
    #[must_use]
    pub const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Does what another rule says, too, which comes first where both say something.
    pub fn add(&mut self, other: &Self) {
        fn pick(own: &mut u32, other: u32) {
            *own = if other == 0 { *own } else { other };
        }
        self.result = other.result.or(self.result);
        self.delay_ns = self.delay_ns.max(other.delay_ns);
        pick(&mut self.short_percent, other.short_percent);
        pick(&mut self.short_bytes, other.short_bytes);
        pick(&mut self.shots, other.shots);
        self.flags |= other.flags;
    }

    /// As words of a record.
    #[must_use]
    pub fn to_words(self) -> [u64; 4] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let result = self.result.unwrap_or(0).cast_unsigned();
        [
            self.delay_ns,
            pair(self.short_percent, self.short_bytes),
            pair(self.shots, self.flags),
            pair(result, u32::from(self.result.is_some())),
        ]
    }

    /// What such words mean.
    #[must_use]
    pub fn from_words(words: [u64; 4]) -> Self {
        Self {
            result: (high(words[3]) != 0).then_some(low(words[3]).cast_signed()),
            delay_ns: words[0],
            short_percent: low(words[1]),
            short_bytes: high(words[1]),
            shots: low(words[2]),
            flags: high(words[2]),
        }
    }
}

/// The halves of a word.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

fn low(word: u64) -> u32 {
    halves(word)[0]
}

fn high(word: u64) -> u32 {
    halves(word)[1]
}

/// What is done to which requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// Which opcodes, or which call.
    pub target: FaultTarget,
    /// Only with one of these numbers in the SQE; none: any.
    pub files: Vec<i32>,
    /// Only with a path like this; empty: any.
    pub path: Vec<u8>,
    /// How many of them.
    pub when: FaultWhen,
    /// What is done.
    pub actions: FaultActions,
    /// What chance is drawn from, beside the plan's.
    pub seed: u64,
}

/// The number of a decision: its ring, and its place among those of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId {
    /// The ring's index in its process, or [`CALLS`].
    pub ring: u32,
    /// From 0.
    pub number: u32,
}

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ring == CALLS { write!(f, "call.{}", self.number) } else { write!(f, "{}.{}", self.ring, self.number) }
    }
}

/// Decisions of one ring, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionRange {
    /// The first one.
    pub first: DecisionId,
    /// The number of the last one.
    pub last: u32,
}

/// Everything that is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// What chance is drawn from.
    pub seed: u64,
    /// Whether requests are treated as the ABI allows a kernel to treat them.
    pub is_legal: bool,
    /// In the order of the command line.
    pub rules: Vec<FaultRule>,
    /// Only these decisions are carried out; none: all.
    pub only: Option<Vec<DecisionRange>>,
}

/// A number that looks random, of these (splitmix64).
#[must_use]
pub fn draw(parts: [u64; 4]) -> u64 {
    parts.into_iter().fold(0x9e37_79b9_7f4a_7c15, |state: u64, part| {
        let mut z = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// How far a ring is in its plan, or the calls of a process.
#[derive(Debug)]
pub struct FaultCounts {
    /// For each rule, the requests that it was about.
    rules: Vec<AtomicU32>,
    requests: AtomicU32,
    decisions: AtomicU32,
}

/// A decision, and what is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its number.
    pub id: DecisionId,
    /// What is done.
    pub actions: FaultActions,
}

impl FaultPlan {
    /// Nothing was counted yet.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        let rules = self.rules.iter().map(|_| AtomicU32::new(0)).collect();
        FaultCounts { rules, requests: AtomicU32::new(0), decisions: AtomicU32::new(0) }
    }

    /// Decides about the next request of a ring. `meets`: whether a rule is about it; `legal`: what
    /// is done without a rule, by a number that looks random.
    pub fn decide(
        &self,
        counts: &FaultCounts,
        ring: u32,
        mut meets: impl FnMut(&FaultRule) -> bool,
        legal: impl FnOnce(u64) -> FaultActions,
    ) -> Option<Fault> {
        let next = |count: &AtomicU32| count.fetch_add(1, Relaxed);
        let nth = next(&counts.requests);
        let mut actions = FaultActions::NONE;
        for (index, (rule, count)) in self.rules.iter().zip(&counts.rules).enumerate() {
            if meets(rule) && self.hits(ring, index, next(count).wrapping_add(1)) {
                actions.add(&rule.actions);
            }
        }
        if actions == FaultActions::NONE && self.is_legal {
            actions = legal(draw([self.seed, u64::from(ring), 0, u64::from(nth)]));
        }
        if actions == FaultActions::NONE {
            return None;
        }
        let id = DecisionId { ring, number: next(&counts.decisions) };
        self.allows(id).then_some(Fault { id, actions })
    }

    /// Whether rule number `rule` hits the `nth` request, from 1, of those of this ring that it is
    /// about.
    #[must_use]
    pub fn hits(&self, ring: u32, rule: usize, nth: u32) -> bool {
        let Some(FaultRule { when, seed, .. }) = self.rules.get(rule) else { return false };
        let drawn = || draw([self.seed ^ seed, u64::from(ring), rule as u64 + 1, u64::from(nth)]);
        when.has(nth) && (when.per_million >= ALWAYS || drawn() % u64::from(ALWAYS) < u64::from(when.per_million))
    }

    /// Whether a decision is carried out.
    #[must_use]
    pub fn allows(&self, id: DecisionId) -> bool {
        let is_in = |range: &DecisionRange| range.first.ring == id.ring && (range.first.number..=range.last).contains(&id.number);
        self.only.as_ref().is_none_or(|only| only.iter().any(is_in))
    }

    /// The text that the engine reads.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let _ = write!(text, "seed={}", self.seed);
        if self.is_legal {
            text.push_str(" legal");
        }
        if let Some(only) = &self.only {
            let _ = write!(text, " only={}", ranges_to_text(only));
        }
        for rule in &self.rules {
            let _ = write!(text, " rule={}", RuleText(rule));
        }
        text
    }

    /// What [`to_text`](Self::to_text) has written. `None`: it is damaged.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let mut plan = Self::default();
        for word in text.split(' ') {
            match word.split_once('=').unwrap_or((word, "")) {
                ("seed", value) => plan.seed = value.parse().ok()?,
                ("legal", "") => plan.is_legal = true,
                ("only", value) => plan.only = Some(ranges_from_text(value)?),
                ("rule", value) => plan.rules.push(rule_from_text(value)?),
                _ => return None,
            }
        }
        Some(plan)
    }
}

/// `0.3-7,call.2`
#[must_use]
pub fn ranges_to_text(ranges: &[DecisionRange]) -> String {
    let mut text = String::new();
    for (n, range) in ranges.iter().enumerate() {
        let comma = if n == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{}", range.first);
        if range.last != range.first.number {
            let _ = write!(text, "-{}", range.last);
        }
    }
    text
}

/// What [`ranges_to_text`] has written. `None`: it is something else.
#[must_use]
pub fn ranges_from_text(text: &str) -> Option<Vec<DecisionRange>> {
    let range = |word: &str| {
        let (ring, numbers) = word.split_once('.')?;
        let ring = if ring == "call" { CALLS } else { ring.parse().ok().filter(|&ring| ring != CALLS)? };
        let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
        let (number, last) = (first.parse().ok()?, last.parse().ok()?);
        (number <= last).then_some(DecisionRange { first: DecisionId { ring, number }, last })
    };
    text.split(',').filter(|word| !word.is_empty()).map(range).collect()
}

/// A rule as text: fields with `:` between them.
struct RuleText<'r>(&'r FaultRule);

impl fmt::Display for RuleText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultRule { target, files, path, when, actions, seed } = self.0;
        match target {
            FaultTarget::Requests(opcodes) => write!(f, "{opcodes:x}:")?,
            FaultTarget::Setup => f.write_str("setup:")?,
            FaultTarget::Enter => f.write_str("enter:")?,
            FaultTarget::Register => f.write_str("register:")?,
        }
        for (n, file) in files.iter().enumerate() {
            write!(f, "{}{file}", if n == 0 { "" } else { "," })?;
        }
        f.write_char(':')?;
        path.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ":{}:{}:{}:{}:", when.first, when.last, when.step, when.per_million)?;
        if let Some(result) = actions.result {
            write!(f, "{result}")?;
        }
        let FaultActions { delay_ns, short_percent, short_bytes, shots, flags, .. } = actions;
        write!(f, ":{delay_ns}:{short_percent}:{short_bytes}:{shots}:{flags}:{seed}")
    }
}

fn rule_from_text(text: &str) -> Option<FaultRule> {
    let mut fields = text.split(':');
    let mut next = || fields.next();
    let target = match next()? {
        "setup" => FaultTarget::Setup,
        "enter" => FaultTarget::Enter,
        "register" => FaultTarget::Register,
        opcodes => FaultTarget::Requests(u128::from_str_radix(opcodes, 16).ok()?),
    };
    let files = next()?.split(',').filter(|word| !word.is_empty()).map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let path = next()?;
    let path = (0..path.len()).step_by(2).map(|at| u8::from_str_radix(path.get(at..at + 2)?, 16).ok()).collect::<Option<_>>()?;
    let mut number = || next()?.parse::<u32>().ok();
    let when = FaultWhen { first: number()?, last: number()?, step: number().filter(|&step| step > 0)?, per_million: number()? };
    let result = match next()? {
        "" => None,
        result => Some(result.parse().ok()?),
    };
    let delay_ns = next()?.parse().ok()?;
    let mut number = || next()?.parse::<u32>().ok();
    let actions = FaultActions { result, delay_ns, short_percent: number()?, short_bytes: number()?, shots: number()?, flags: number()? };
    let seed = fields.next()?.parse().ok()?;
    fields.next().is_none().then_some(FaultRule { target, files, path, when, actions, seed })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec;

    fn plan() -> FaultPlan {
        let actions = FaultActions { result: Some(-5), delay_ns: 7, short_percent: 50, short_bytes: 3, shots: 2, flags: 15 };
        let rule = FaultRule {
            target: FaultTarget::Requests(1 << 100 | 5),
            files: vec![3, -1],
            path: b"/data/*".to_vec(),
            when: FaultWhen { first: 3, last: 9, step: 2, per_million: 500_000 },
            actions,
            seed: 11,
        };
        let plain = FaultRule {
            target: FaultTarget::Enter,
            files: vec![],
            path: vec![],
            when: FaultWhen::EACH,
            actions: FaultActions::NONE,
            seed: 0,
        };
        let only = ranges_from_text("0.3-7,call.2").unwrap();
        FaultPlan { seed: u64::MAX, is_legal: true, rules: vec![rule, plain], only: Some(only) }
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        assert_eq!(FaultPlan::from_text(&plan().to_text()), Some(plan()));
        assert_eq!(FaultPlan::from_text(&FaultPlan::default().to_text()), Some(FaultPlan::default()));
        let actions = plan().rules[0].actions;
        assert_eq!(FaultActions::from_words(actions.to_words()), actions);
    }

    #[test]
    fn damaged_text_is_no_plan() {
        let text = plan().to_text();
        for end in 1..text.len() {
            let cut = &text[..end];
            assert!(FaultPlan::from_text(cut).is_none_or(|read| read != plan()), "{cut}");
        }
        for wrong in ["", "seed=x", "seed=1 rule=", "seed=1 rule=5::::::::::::", "only=3", "only=0.7-3", "legal=1", "x"] {
            assert_eq!(FaultPlan::from_text(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn occurrences_are_counted_from_one() {
        let hit = |when: FaultWhen| (1..=12).filter(|&nth| when.has(nth)).collect::<Vec<u32>>();
        assert_eq!(hit(FaultWhen { first: 3, last: 3, ..FaultWhen::EACH }), [3]);
        assert_eq!(hit(FaultWhen { first: 10, ..FaultWhen::EACH }), [10, 11, 12]);
        assert_eq!(hit(FaultWhen { first: 3, step: 4, ..FaultWhen::EACH }), [3, 7, 11]);
        assert_eq!(hit(FaultWhen { first: 2, last: 7, step: 2, ..FaultWhen::EACH }), [2, 4, 6]);
    }

    #[test]
    fn chance_depends_on_seed_ring_rule_and_place_only() {
        let mut plan = plan();
        plan.rules[0].when = FaultWhen { per_million: 250_000, ..FaultWhen::EACH };
        let hits = |plan: &FaultPlan, ring| (1..=4000).filter(|&nth| plan.hits(ring, 0, nth)).collect::<Vec<u32>>();
        let (first, other_ring) = (hits(&plan, 0), hits(&plan, 1));
        assert_eq!(first, hits(&plan, 0));
        assert_ne!(first, other_ring);
        assert!((800..1200).contains(&first.len()), "{}", first.len());
        plan.seed = 1;
        assert_ne!(first, hits(&plan, 0));
    }

    #[test]
    fn only_named_decisions_are_carried_out() {
        let plan = plan();
        let allowed = |ring, number| plan.allows(DecisionId { ring, number });
        assert_eq!([allowed(0, 2), allowed(0, 3), allowed(0, 7), allowed(0, 8), allowed(1, 3)], [false, true, true, false, false]);
        assert_eq!([allowed(CALLS, 1), allowed(CALLS, 2)], [false, true]);
        assert!(FaultPlan::default().allows(DecisionId { ring: 9, number: 9 }));
    }
}
