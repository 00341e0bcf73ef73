//! Parsing of options that several benchmarks have.

/// A time in seconds, from 0.01 to 3600.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("not between 0.01 and 3600".to_owned()) }
}

/// The list without repetitions.
pub(super) fn deduplicated<T: Copy + PartialEq>(list: &[T]) -> Vec<T> {
    let is_first = |&(at, item): &(usize, &T)| !list[..at].contains(item);
    list.iter().enumerate().filter(is_first).map(|(_, item)| *item).collect()
}
