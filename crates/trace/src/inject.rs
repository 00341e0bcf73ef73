//! `--inject`: what is done to which requests, in strace's syntax where that has one.
//!
//! ```text
//!   WRITE,%net : error=EIO : when=3+10 : path=/data/*
//!   what it is about   what is done, and to which of them
//! ```

use nix::errno::Errno;
use uringlet_abi::Opcode;
use uringlet_sys::fault_plan::{ALWAYS, FaultActions, FaultRule, FaultTarget, FaultWhen};

use crate::expression::{FilterError, distance, opcodes, unknown_opcode};

/// What may stand behind the opcodes.
const REQUEST_KEYS: &str = "error=ERRNO retval=N delay=TIME short=N% short=BYTES shots=N overflow hangup worker ready when=N+STEP when=P% \
                            seed=N fd=N,... path=PATTERN";
/// What may stand behind a call.
const CALL_KEYS: &str = "error=ERRNO retval=N delay=TIME when=N+STEP when=P% seed=N";
const CALLS: [(&str, FaultTarget); 3] = [("setup", FaultTarget::Setup), ("enter", FaultTarget::Enter), ("register", FaultTarget::Register)];

/// The longest delay, ns: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// The largest number of an errno (`MAX_ERRNO`).
const LAST_ERRNO: i32 = 4095;

/// A word of an expression, and where it is, bytes.
#[derive(Clone, Copy, Debug)]
struct Word<'e> {
    at: usize,
    text: &'e str,
}

impl<'e> Word<'e> {
    /// The words between separators.
    fn split(self, separator: char) -> impl Iterator<Item = Self> {
        let mut at = self.at;
        self.text.split(separator).map(move |text| {
            let word = Word { at, text };
            at += text.len() + separator.len_utf8();
            word
        })
    }

    /// What is before and behind the first separator.
    fn split_once(self, separator: char) -> Option<(Self, Self)> {
        let (before, behind) = self.text.split_once(separator)?;
        let at = self.at + before.len() + separator.len_utf8();
        Some((Word { at: self.at, text: before }, Word { at, text: behind }))
    }

    fn number<T: std::str::FromStr>(self) -> Option<T> {
        self.text.parse().ok()
    }
}

/// A mistake: where, and what could be there.
type WrongWord<'e> = (Word<'e>, String);

/// The rule that an expression means.
///
/// # Errors
/// It means none.
pub fn parse(expression: &str) -> Result<FaultRule, FilterError> {
    rule(expression).map_err(|(word, help)| FilterError {
        option: "--inject",
        expression: expression.to_owned(),
        at: word.at,
        len: word.text.chars().count(),
        help,
    })
}

fn rule(expression: &str) -> Result<FaultRule, WrongWord<'_>> {
    let whole = Word { at: 0, text: expression };
    let (subject, parts) = whole.split_once(':').ok_or_else(|| (whole, format!("says nothing to do: `:` and one of {REQUEST_KEYS}")))?;
    let target = target(subject)?;
    let mut rule = FaultRule { target, files: Vec::new(), path: Vec::new(), when: FaultWhen::EACH, actions: FaultActions::NONE, seed: 0 };
    for part in parts.split(':') {
        add(&mut rule, part)?;
    }
    if rule.actions == FaultActions::NONE {
        return Err((parts, "says nothing to do: error=, retval=, delay=, short=, shots=, overflow, hangup, worker or ready".to_owned()));
    }
    Ok(rule)
}

fn target(subject: Word<'_>) -> Result<FaultTarget, WrongWord<'_>> {
    if let Some((_, call)) = CALLS.iter().find(|(name, _)| *name == subject.text.to_ascii_lowercase()) {
        return Ok(*call);
    }
    let mut bits = 0;
    for word in subject.split(',') {
        let listed = if matches!(word.text, "*" | "all") { Opcode::ALL.to_vec() } else { opcodes(word.text) };
        if listed.is_empty() {
            let calls = CALLS.map(|(name, _)| name);
            return Err((word, format!("{}\nAll: *\nCalls: {}", unknown_opcode(word.text), calls.join(" "))));
        }
        listed.into_iter().for_each(|opcode| bits |= 1_u128 << opcode as u8);
    }
    Ok(FaultTarget::Requests(bits))
}

fn add<'e>(rule: &mut FaultRule, part: Word<'e>) -> Result<(), WrongWord<'e>> {
    let (key, value) = part.split_once('=').unwrap_or((part, Word { at: part.at + part.text.len(), text: "" }));
    let is_request = matches!(rule.target, FaultTarget::Requests(_));
    let actions = &mut rule.actions;
    match key.text {
        "error" => actions.result = Some(-errno(value)?),
        "retval" => actions.result = Some(number_from(value, 0, "is no result: a number from 0")?),
        "delay" | "delay_enter" => actions.delay_ns = nanoseconds(value)?,
        "when" => rule.when = when(value)?,
        "seed" => rule.seed = number_from(value, 0, "is no seed: a number from 0")?,
        "short" if is_request => short(actions, value)?,
        "shots" if is_request => actions.shots = number_from(value, 1, "is no number of results: from 1")?,
        "fd" if is_request => {
            for word in value.split(',') {
                rule.files.push(word.number().ok_or_else(|| (word, "is no descriptor number".to_owned()))?);
            }
        }
        "path" if is_request && !value.text.is_empty() => rule.path = value.text.as_bytes().to_vec(),
        word => match flag(word).filter(|_| is_request && part.text == word) {
            Some(flag) => actions.flags |= flag,
            None => return Err((key, unknown_key(word, is_request))),
        },
    }
    Ok(())
}

fn flag(word: &str) -> Option<u32> {
    Some(match word {
        "overflow" => FaultActions::OVERFLOW,
        "hangup" => FaultActions::HANGUP,
        "worker" => FaultActions::WORKER,
        "ready" => FaultActions::READY,
        _ => return None,
    })
}

fn unknown_key(word: &str, is_request: bool) -> String {
    let keys = if is_request { REQUEST_KEYS } else { CALL_KEYS };
    let name = |key: &'static str| key.split('=').next().unwrap_or(key);
    let near = keys.split_whitespace().map(name).min_by_key(|key| distance(key, word)).filter(|key| distance(key, word) <= 2);
    let near = near.filter(|key| *key != word).map_or_else(String::new, |key| format!("; did you mean {key}?"));
    format!("is not possible here{near}\nPossible: {keys}")
}

fn number_from<'e, T: std::str::FromStr + PartialOrd>(word: Word<'e>, least: T, help: &str) -> Result<T, WrongWord<'e>> {
    word.number().filter(|number| *number >= least).ok_or_else(|| (word, help.to_owned()))
}

fn errno(word: Word<'_>) -> Result<i32, WrongWord<'_>> {
    let named = || {
        (1..LAST_ERRNO).find(|&number| {
            let errno = Errno::from_raw(number);
            errno != Errno::UnknownErrno && format!("{errno:?}") == word.text.to_ascii_uppercase()
        })
    };
    let alias = || matches!(word.text, "EWOULDBLOCK").then_some(Errno::EAGAIN as i32);
    let number = || word.number().filter(|number| (1..=LAST_ERRNO).contains(number));
    named().or_else(alias).or_else(number).ok_or_else(|| (word, "is no error: a name as EIO, or a number from 1 to 4095".to_owned()))
}

/// A decimal number of units, as `0.5`.
fn scaled(text: &str, unit: u64) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_decimal = |text: &str| !text.is_empty() && text.len() < 10 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_decimal(whole) || !is_decimal(part) {
        return None;
    }
    let [whole, part] = [whole, part].map(str::parse::<u64>);
    let digits = u32::try_from(text.split_once('.').map_or(1, |(_, part)| part.len())).ok()?;
    whole.ok()?.checked_mul(unit)?.checked_add(part.ok()?.checked_mul(unit)? / 10_u64.pow(digits))
}

/// A time as strace has it: microseconds without a unit.
fn nanoseconds(word: Word<'_>) -> Result<u64, WrongWord<'_>> {
    let units = [("ns", 1), ("us", 1000), ("µs", 1000), ("ms", 1_000_000), ("s", 1_000_000_000), ("", 1000)];
    let in_unit = |(unit, ns): (&str, u64)| scaled(word.text.strip_suffix(unit)?, ns).filter(|ns| (1..=LONGEST_NS).contains(ns));
    units.into_iter().find_map(in_unit).ok_or_else(|| (word, "is no time: a number with ns, us, ms or s, up to 3600s".to_owned()))
}

fn short<'e>(actions: &mut FaultActions, word: Word<'e>) -> Result<(), WrongWord<'e>> {
    let help = || (word, "is no amount: a percentage from 1% to 99%, or a number of bytes".to_owned());
    match word.text.strip_suffix('%') {
        Some(percent) => {
            actions.short_percent = percent.parse().ok().filter(|percent| (1..100).contains(percent)).ok_or_else(help)?;
        }
        None => actions.short_bytes = word.number().filter(|&bytes| bytes > 0).ok_or_else(help)?,
    }
    Ok(())
}

/// `3`, `3+`, `3+10`, `3..9`, `3..9+2`, `1%`.
fn when(word: Word<'_>) -> Result<FaultWhen, WrongWord<'_>> {
    let help = || (word, "is none of: N (the N-th), N+ (from it on), N+STEP, N..LAST, N..LAST+STEP, P% (by chance)".to_owned());
    if let Some(percent) = word.text.strip_suffix('%') {
        let per_million = scaled(percent, u64::from(ALWAYS) / 100).and_then(|number| u32::try_from(number).ok());
        let per_million = per_million.filter(|number| (1..=ALWAYS).contains(number)).ok_or_else(help)?;
        return Ok(FaultWhen { per_million, ..FaultWhen::EACH });
    }
    let (range, step) = word.text.split_once('+').map_or((word.text, None), |(range, step)| (range, Some(step)));
    let (first, last) = range.split_once("..").map_or((range, None), |(first, last)| (first, Some(last)));
    let number = |text: &str| text.parse::<u32>().ok().filter(|&number| number > 0).ok_or_else(help);
    let first = number(first)?;
    let last = match (last, step) {
        (Some(last), _) => number(last)?,
        (None, Some(_)) => u32::MAX,
        (None, None) => first,
    };
    let step = step.filter(|step| !step.is_empty()).map_or(Ok(1), number)?;
    if last < first { Err(help()) } else { Ok(FaultWhen { first, last, step, per_million: ALWAYS }) }
}

/// What is done to a request, in words.
#[must_use]
pub fn describe(actions: &FaultActions) -> String {
    let FaultActions { result, delay_ns, short_percent, short_bytes, shots, .. } = *actions;
    let mut words = Vec::new();
    if let Some(result) = result {
        let name = crate::errno::of_result(result).map_or_else(|| result.to_string(), |(name, _)| format!("-{name}"));
        words.push(format!("not executed: {name}"));
    }
    if delay_ns > 0 {
        let ms = delay_ns as f64 / 1e6;
        words.push(if actions.has(FaultActions::BURST) {
            format!("late, with others, at a multiple of {ms} ms")
        } else {
            format!("{ms} ms late")
        });
    }
    if short_bytes > 0 {
        words.push(format!("short: {short_bytes} bytes"));
    } else if short_percent > 0 {
        words.push(format!("short: {short_percent} %"));
    }
    if shots > 0 {
        words.push(format!("the multishot ends with result {shots}"));
    }
    for (flag, text) in [
        (FaultActions::OVERFLOW, "its CQE overflows"),
        (FaultActions::HANGUP, "its socket is shut down"),
        (FaultActions::WORKER, "executed by a worker"),
        (FaultActions::READY, "told ready"),
        (FaultActions::NO_WAIT, "does not wait"),
    ] {
        if actions.has(flag) {
            words.push(text.to_owned());
        }
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(expression: &str) -> FaultActions {
        parse(expression).unwrap_or_else(|error| panic!("{error}")).actions
    }

    fn mistake(expression: &str) -> String {
        let text = parse(expression).unwrap_err().to_string();
        text.split_once('\n').unwrap().1.to_owned()
    }

    #[test]
    fn actions_have_straces_words() {
        assert_eq!(actions("WRITE:error=EIO").result, Some(-5));
        assert_eq!(actions("WRITE:error=28").result, Some(-28));
        assert_eq!(actions("recv:retval=0").result, Some(0));
        let delays =
            ["delay=5ms", "delay=7", "delay=0.5s", "delay_enter=20us", "delay=3ns"].map(|delay| actions(&format!("*:{delay}")).delay_ns);
        assert_eq!(delays, [5_000_000, 7000, 500_000_000, 20_000, 3]);
        assert_eq!((actions("READ:short=50%").short_percent, actions("READ:short=7").short_bytes), (50, 7));
        let both = actions("%net:hangup:overflow:worker:ready:shots=2:delay=1");
        assert_eq!((both.flags, both.shots, both.delay_ns), (15, 2, 1000));
    }

    #[test]
    fn occurrences_are_straces() {
        let when = |text: &str| {
            let when = parse(&format!("*:error=EIO:when={text}")).unwrap().when;
            (when.first, when.last, when.step, when.per_million)
        };
        assert_eq!(when("3"), (3, 3, 1, ALWAYS));
        assert_eq!([when("3+"), when("3+10")], [(3, u32::MAX, 1, ALWAYS), (3, u32::MAX, 10, ALWAYS)]);
        assert_eq!([when("3..9"), when("3..9+2")], [(3, 9, 1, ALWAYS), (3, 9, 2, ALWAYS)]);
        assert_eq!([when("1%"), when("0.5%"), when("100%")], [10_000, 5_000, ALWAYS].map(|ppm| (1, u32::MAX, 1, ppm)));
    }

    #[test]
    fn requests_are_chosen_by_opcode_file_and_path() {
        let rule = parse("READ,%futex:error=EIO:fd=3,4:path=/data/*:seed=7").unwrap();
        let bits = [Opcode::Read, Opcode::FutexWait, Opcode::FutexWake, Opcode::FutexWaitv, Opcode::Waitid];
        assert_eq!(rule.target, FaultTarget::Requests(bits.iter().map(|&opcode| 1 << opcode as u8).sum()));
        assert_eq!((rule.files, rule.path, rule.seed), (vec![3, 4], b"/data/*".to_vec(), 7));
        assert_eq!(parse("setup:error=EPERM").unwrap().target, FaultTarget::Setup);
    }

    #[test]
    fn a_mistake_is_pointed_at() {
        let known = "; did you mean WRITE?";
        assert!(mistake("WRIT:error=EIO").starts_with(&format!("  --inject WRIT:error=EIO\n           ^^^^ is no opcode{known}\n")));
        assert!(mistake("WRIT:error=EIO").contains("Calls: setup enter register"));
        assert!(mistake("READ:error=EOI").contains("\n                      ^^^ is no error"), "{}", mistake("READ:error=EOI"));
        assert!(mistake("READ:eror=EIO").contains("^^^^ is not possible here; did you mean error?\nPossible: error=ERRNO"));
        assert!(mistake("enter:short=5").contains("^^^^^ is not possible here\nPossible: error=ERRNO retval=N delay=TIME when="));
        for wrong in [
            "READ",
            "READ:",
            "READ:when=3",
            "READ:error=EIO:when=0",
            "READ:error=EIO:when=5..3",
            "READ:error=EIO:when=0%",
            "READ:delay=5h",
            "READ:delay=0",
            "READ:short=100%",
            "READ:short=0",
            "READ:shots=0",
            "READ:error=EIO:fd=x",
            "READ:error=EIO:path=",
            "READ:ready=1",
            "READ:retval=-1",
            "READ:error=0",
            "READ:error=EIO:when=3+0",
            ",READ:error=EIO",
            "setup:worker",
            "READ:error=EIO:when=1000000%",
        ] {
            let text = parse(wrong).map_or_else(|error| error.to_string(), |rule| panic!("{wrong} means {rule:?}"));
            assert!(text.contains('^'), "{text}");
        }
    }
}
