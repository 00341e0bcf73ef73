//! Lengths of files and functions, and unsafe blocks.

use super::findings::TidyFindings;
use super::ratchet::{FILE, FUNCTION, UNSAFE};
use super::source::RustSource;

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

/// Records unsafe blocks of each crate that has some, and the lengths that exceed their bounds.
pub(super) fn measure(sources: &[RustSource], found: &mut TidyFindings) {
    for source in sources {
        if source.unsafe_blocks > 0 {
            found.increase(UNSAFE, source.package(), source.unsafe_blocks);
        }
        if source.lines > FILE_LINES_MAX {
            found.increase(FILE, &source.path, source.lines);
        }
        for function in source.functions.iter().filter(|function| function.lines > FUNCTION_LINES_MAX) {
            found.increase(FUNCTION, &format!("{}::{}", source.path, function.name), function.lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(text: &str) -> usize {
        let mut found = TidyFindings::default();
        measure(&[RustSource::parse("crates/sys/src/a.rs", text).unwrap()], &mut found);
        found.numbers.len()
    }

    #[test]
    fn long_functions_and_files_are_offences() {
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "g();\n".repeat(lines - 2));
        assert_eq!(offences(&function(FUNCTION_LINES_MAX + 1)), 1);
        assert_eq!(offences(&function(FUNCTION_LINES_MAX)), 0);
        assert_eq!(offences(&"\n".repeat(FILE_LINES_MAX + 1)), 1);
    }
}
