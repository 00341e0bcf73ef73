//! The first line of a script, as the kernel reads it. Pure.

/// The kernel reads no more of a file to find out what it is.
pub(super) const HEAD_BYTES: usize = 256;

/// What the first line names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Interpreter<'a> {
    pub(super) path: &'a [u8],
    /// The rest of the line, as one argument.
    pub(super) argument: Option<&'a [u8]>,
}

/// Reads the beginning of a file, at most [`HEAD_BYTES`]. `None`: no script, or one whose line is
/// so odd (empty, too long, with a NUL) that the kernel shall decide.
pub(super) fn interpreter(head: &[u8]) -> Option<Interpreter<'_>> {
    let text = head.strip_prefix(b"#!")?;
    let line = &text[..text.iter().position(|&byte| byte == b'\n')?];
    let line = trim(line);
    if line.is_empty() || line.contains(&0) {
        return None;
    }
    let end = line.iter().position(|&byte| is_blank(byte)).unwrap_or(line.len());
    let argument = trim(&line[end..]);
    Some(Interpreter { path: &line[..end], argument: (!argument.is_empty()).then_some(argument) })
}

/// What separates the words of the line.
fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn trim(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|&byte| !is_blank(byte)).unwrap_or(line.len());
    let end = line.iter().rposition(|&byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &line[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(head: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
        interpreter(head).map(|interpreter| (interpreter.path, interpreter.argument))
    }

    #[test]
    fn interpreter_and_one_argument_are_read() {
        assert_eq!(read(b"#!/bin/sh\nexit"), Some((&b"/bin/sh"[..], None)));
        assert_eq!(read(b"#! \t/bin/a  -x  y \t\nexit"), Some((&b"/bin/a"[..], Some(&b"-x  y"[..]))));
        assert_eq!(read(b"#!a b\n"), Some((&b"a"[..], Some(&b"b"[..]))));
        assert_eq!(read(b"#!/bin/sh\r\n"), Some((&b"/bin/sh\r"[..], None)));
    }

    #[test]
    fn odd_lines_are_left_to_the_kernel() {
        for odd in [&b""[..], b"#", b"#!", b"#!\n", b"#! \t \n", b"#!/bin/sh", b"#!/bin\0/sh\n", b"# !/bin/sh\n", b"\x7fELF"] {
            assert_eq!(read(odd), None, "{odd:?}");
        }
    }
}
