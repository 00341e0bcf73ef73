//! `-e`: which events are shown.

use uringlet_abi::Opcode;

use crate::decode;
use crate::opcodes::Group;
use crate::request::{Event, SubmittedRequest};
use crate::value::ArgValue;

/// What is wrong with an expression: where, and what could be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// The option that takes it.
    pub(crate) option: &'static str,
    pub(crate) expression: String,
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) help: String,
}

impl std::fmt::Display for FilterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let before = self.expression[..self.at].chars().count();
        let Self { option, expression, .. } = self;
        writeln!(f, "an expression is wrong:\n  {option} {expression}")?;
        write!(f, "   {}{} {}", " ".repeat(option.len() + before), "^".repeat(self.len.max(1)), self.help)
    }
}

impl std::error::Error for FilterError {}

/// One expression. An event has to meet all that are given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Opcodes { listed: Vec<Opcode>, is_negated: bool },
    Files { listed: Vec<i32>, is_negated: bool },
    Paths { patterns: Vec<String>, is_negated: bool },
    Failed,
}

/// All expressions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFilter {
    conditions: Vec<Condition>,
}

const KEYS: &str = "op=, fd=, path=, failed";

impl TraceFilter {
    /// Adds an expression.
    ///
    /// # Errors
    /// The expression says nothing that is known.
    pub fn add(&mut self, expression: &str) -> Result<(), FilterError> {
        self.conditions.push(parse(expression)?);
        Ok(())
    }

    /// Whether an event is shown. Processes and calls are, unless requests are chosen.
    #[must_use]
    pub fn shows(&self, event: &Event) -> bool {
        match event {
            Event::Completion(submission, shown) => self.conditions.iter().all(|condition| match condition {
                Condition::Failed => shown.res < 0,
                other => other.meets(submission),
            }),
            Event::Unfinished(submission, _) => {
                self.conditions.iter().all(|condition| *condition != Condition::Failed && condition.meets(submission))
            }
            Event::Posted(posted) => self.conditions.iter().all(|condition| *condition == Condition::Failed && posted.res < 0),
            Event::Lost(_) => true,
            Event::Process(_) | Event::Call(_) => self.conditions.is_empty(),
        }
    }
}

impl Condition {
    fn meets(&self, submission: &SubmittedRequest) -> bool {
        match self {
            Self::Opcodes { listed, is_negated } => submission.opcode().is_some_and(|opcode| listed.contains(&opcode)) != *is_negated,
            Self::Files { listed, is_negated } => listed.contains(&submission.sqe.fd) != *is_negated,
            Self::Paths { patterns, is_negated } => {
                paths(submission).any(|path| patterns.iter().any(|pattern| matches(pattern, &path))) != *is_negated
            }
            Self::Failed => true,
        }
    }
}

/// The path of the request's file, and those that it names.
fn paths(submission: &SubmittedRequest) -> impl Iterator<Item = String> {
    let named = decode::arguments(submission, None).into_iter().filter_map(|arg| match arg.value {
        ArgValue::Text(bytes) if arg.name.ends_with("path") => Some(String::from_utf8_lossy(&bytes).into_owned()),
        ArgValue::File { path, .. } | ArgValue::Directory { path, .. } => path,
        _ => None,
    });
    submission.path().map(str::to_owned).into_iter().chain(named)
}

/// Whether a text is as a pattern of a shell says: `*` any text, `?` any character.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut from) = (0, 0);
    // Where the last star was, and how much it has taken.
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(&c) if c == '?' || c == text[from] => (at, from) = (at + 1, from + 1),
            _ => {
                let Some((star_at, taken)) = star else { return false };
                star = Some((star_at, taken + 1));
                (at, from) = (star_at + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|&c| c == '*')
}

fn parse(expression: &str) -> Result<Condition, FilterError> {
    let error = |at: usize, len: usize, help: String| FilterError { option: "-e", expression: expression.to_owned(), at, len, help };
    if expression == "failed" {
        return Ok(Condition::Failed);
    }
    let Some((key, list)) = expression.split_once('=') else {
        return Err(error(0, expression.chars().count(), format!("is none of: {KEYS}")));
    };
    let is_negated = list.starts_with('!');
    let begin = key.len() + 1 + usize::from(is_negated);
    let mut words = Vec::new();
    let mut at = begin;
    for word in expression[begin..].split(',') {
        if word.is_empty() {
            return Err(error(at, 1, "is empty: a list has commas between its words".to_owned()));
        }
        words.push((at, word));
        at += word.len() + 1;
    }
    match key {
        "op" => {
            let mut listed = Vec::new();
            for (at, word) in words {
                let known = opcodes(word);
                if known.is_empty() {
                    return Err(error(at, word.chars().count(), unknown_opcode(word)));
                }
                listed.extend(known);
            }
            Ok(Condition::Opcodes { listed, is_negated })
        }
        "fd" => {
            let number =
                |(at, word): (usize, &str)| word.parse().map_err(|_| error(at, word.chars().count(), "is no descriptor number".to_owned()));
            Ok(Condition::Files { listed: words.into_iter().map(number).collect::<Result<_, _>>()?, is_negated })
        }
        "path" => Ok(Condition::Paths { patterns: words.into_iter().map(|(_, word)| word.to_owned()).collect(), is_negated }),
        _ => Err(error(0, key.chars().count(), format!("is none of: {KEYS}"))),
    }
}

/// The opcodes that a word means.
pub(crate) fn opcodes(word: &str) -> Vec<Opcode> {
    if let Some((_, group)) = Group::ALL.iter().find(|(name, _)| *name == word) {
        return Opcode::ALL.iter().copied().filter(|&opcode| Group::of(opcode) == *group).collect();
    }
    let upper = word.to_ascii_uppercase();
    let name = upper.strip_prefix("IORING_OP_").unwrap_or(&upper);
    Opcode::ALL.iter().copied().filter(|opcode| opcode.name() == name).collect()
}

pub(crate) fn unknown_opcode(word: &str) -> String {
    let upper = word.to_ascii_uppercase();
    let near = Opcode::ALL.iter().map(|opcode| opcode.name()).min_by_key(|name| distance(name, &upper));
    let groups: Vec<&str> = Group::ALL.iter().map(|(name, _)| *name).collect();
    let names: Vec<&str> = Opcode::ALL.iter().map(|opcode| opcode.name()).collect();
    let near = near.filter(|name| distance(name, &upper) <= 2).map_or_else(String::new, |name| format!("; did you mean {name}?"));
    format!("is no opcode{near}\nGroups: {}\nOpcodes: {}", groups.join(" "), names.join(" "))
}

/// How many characters differ (Levenshtein).
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_opcodes_and_groups() {
        let Ok(Condition::Opcodes { listed, is_negated: true }) = parse("op=!read,%timeout") else { panic!() };
        assert_eq!(listed, [Opcode::Read, Opcode::Timeout, Opcode::TimeoutRemove, Opcode::LinkTimeout]);
        assert_eq!(parse("fd=3,-1"), Ok(Condition::Files { listed: vec![3, -1], is_negated: false }));
        assert_eq!(parse("failed"), Ok(Condition::Failed));
        assert!(Group::ALL.iter().all(|(name, _)| !opcodes(name).is_empty()));
    }

    #[test]
    fn a_mistake_is_pointed_at() {
        let text = |expression: &str| parse(expression).unwrap_err().to_string();
        let shown = text("op=READ,REED");
        assert!(shown.contains("  -e op=READ,REED\n             ^^^^ is no opcode; did you mean READ?\nGroups: %file"), "{shown}");
        assert!(text("ops=READ").ends_with("  -e ops=READ\n     ^^^ is none of: op=, fd=, path=, failed"));
        assert!(text("fd=3,x").ends_with("  -e fd=3,x\n          ^ is no descriptor number"));
        assert!(text("op=").ends_with("  -e op=\n        ^ is empty: a list has commas between its words"));
        assert!(text("fast").ends_with("  -e fast\n     ^^^^ is none of: op=, fd=, path=, failed"));
    }

    #[test]
    fn patterns_are_those_of_a_shell() {
        for (pattern, text) in
            [("/data/*", "/data/a/b"), ("*.db", "/x/y.db"), ("/a?c", "/abc"), ("*", ""), ("a*b*c", "aXbYbZc"), ("/x", "/x")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("/data/*", "/dat/a"), ("*.db", "/x/y.dbx"), ("/a?c", "/ac"), ("", "x"), ("a*b", "aXbY")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
