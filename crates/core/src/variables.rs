//! The `URINGLET_*` variables of a program's environment: their names and values.
//! `docs/environment.md` describes them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use uringlet_sys::ring_backend::RingBackend;

/// What is wrong with a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// There is none of this name.
    Unknown,
    /// Its value is not one of these.
    Value(&'static [&'static str]),
}

/// The values that a variable may have. No list: any.
type Values = Option<&'static [&'static str]>;

const SWITCH: Values = Some(&["1", "0"]);

/// All variables.
const VARIABLES: [(&str, Values); 19] = [
    (RingBackend::VARIABLE, Some(&RingBackend::NAMES)),
    ("URINGLET_MODE", Some(&["adaptive", "uringlet", "workers"])),
    ("URINGLET_IOSQE_ASYNC", Some(&["weighed", "worker", "block"])),
    ("URINGLET_UBLK", Some(&["broker", "in-process"])),
    ("URINGLET_UBLK_DIR", None),
    ("URINGLET_EXPLAIN", SWITCH),
    ("URINGLET_TRAP", SWITCH),
    ("URINGLET_CACHE", None),
    ("URINGLET_NOTICE", Some(&["print", "require", "quiet", "child"])),
    ("URINGLET_LIB", None),
    ("URINGLET_OBJECT", None),
    ("URINGLET_LOG", None),
    ("URINGLET_TRACE", None),
    (uringlet_sys::fault_plan::VARIABLE, None),
    // What `uringlet` itself tells the library.
    ("URINGLET_PROGRAM", None),
    ("URINGLET_DOCTOR", SWITCH),
    ("URINGLET_EXEC", None),
    // What `uringlet::init` tells the program that it executes again.
    ("URINGLET_INIT", None),
    ("URINGLET_TASK_POLICY", None),
];

/// What is wrong with `NAME=value`. `None`: nothing, or it is no variable of ours. An empty value
/// counts as none.
fn mistake(name: &[u8], value: &[u8]) -> Option<Mistake> {
    if !name.starts_with(b"URINGLET_") && name != RingBackend::VARIABLE.as_bytes() {
        return None;
    }
    let Some((_, values)) = VARIABLES.iter().find(|(known, _)| known.as_bytes() == name) else { return Some(Mistake::Unknown) };
    // What `uringlet trace --kernel` sets is no choice of the user's, and no mistake.
    let is_set_for = name == RingBackend::VARIABLE.as_bytes() && RingBackend::named(value).is_some();
    let is_right = |values: &&[&str]| value.is_empty() || is_set_for || values.iter().any(|known| known.as_bytes() == value);
    values.filter(|values| !is_right(values)).map(Mistake::Value)
}

/// The line that says what is wrong with these variables, names and values. `None`: nothing.
pub fn complaint<'v>(variables: impl Iterator<Item = (&'v [u8], &'v [u8])>) -> Option<String> {
    let describe = |(name, value): (&[u8], &[u8])| {
        let what = mistake(name, value)?;
        let [name, value] = [name, value].map(String::from_utf8_lossy);
        Some(match what {
            Mistake::Unknown => format!("{name} (no such variable)"),
            Mistake::Value(values) => format!("{name}={value} (not {})", values.join(", ")),
        })
    };
    let list: Vec<String> = variables.filter_map(describe).collect();
    (!list.is_empty()).then(|| format!("uringlet: ignored: {}; see docs/environment.md\n", list.join("; ")))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::{AsyncHint, WriteMode};

    #[test]
    fn unknown_names_and_wrong_values_are_mistakes() {
        assert_eq!(mistake(b"HOME", b"x"), None);
        assert_eq!(mistake(b"URINGLETS", b"x"), None);
        assert_eq!(mistake(b"URINGLET_MOD", b"x"), Some(Mistake::Unknown));
        assert_eq!(mistake(b"URINGLET", b"when-blocked"), None);
        assert_eq!(mistake(b"URINGLET", RingBackend::NAME_KERNEL_TRACED.as_bytes()), None);
        assert_eq!(mistake(b"URINGLET_MODE", b""), None);
        assert_eq!(mistake(b"URINGLET_EXPLAIN", b"yes"), Some(Mistake::Value(&["1", "0"])));
        assert_eq!(mistake(b"URINGLET_CACHE", b"/any"), None);
    }

    #[test]
    fn complaint_names_what_is_wrong() {
        let of = |variables: &[(&'static str, &'static str)]| complaint(variables.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())));
        assert_eq!(of(&[("URINGLET", "engine"), ("HOME", "")]), None);
        let line = "uringlet: ignored: URINGLET_X (no such variable); URINGLET_TRAP=y (not 1, 0); see docs/environment.md\n";
        assert_eq!(of(&[("URINGLET_X", "1"), ("URINGLET_TRAP", "y")]).as_deref(), Some(line));
    }

    #[test]
    fn every_listed_value_has_a_meaning() {
        let values = |name: &str| VARIABLES.iter().find(|(known, _)| *known == name).and_then(|(_, values)| *values).unwrap();
        assert!(values("URINGLET_MODE").iter().all(|value| WriteMode::named(value.as_bytes()).is_some()));
        assert!(values("URINGLET_IOSQE_ASYNC").iter().all(|value| AsyncHint::named(value.as_bytes()).is_some()));
    }

    #[test]
    fn every_variable_and_value_is_documented() {
        let text = include_str!("../../../docs/environment.md");
        for (name, values) in VARIABLES {
            let row = text.lines().find(|line| line.starts_with(&std::format!("| `{name}`"))).unwrap_or_else(|| panic!("{name}"));
            for value in values.unwrap_or_default() {
                assert!(row.contains(&std::format!("`{value}`")), "{name}: {value}");
            }
        }
    }
}
