//! What valgrind has to be told about the engine. A request costs about 2 ns where the program does
//! not run under valgrind.

use crate::arch::client_request;
use core::marker::PhantomData;
use core::ops::Range;

const RUNNING_ON_VALGRIND: usize = 0x1001;
const DISCARD_TRANSLATIONS: usize = 0x1002;
const STACK_REGISTER: usize = 0x1501;
const CHANGE_ERR_DISABLEMENT: usize = 0x1801;

/// Whether valgrind runs the program.
#[must_use]
pub fn is_running() -> bool {
    client_request(&[RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0]) != 0
}

/// The range is a stack: a stack pointer that enters or leaves it has not grown or shrunk by the
/// distance.
pub fn register_stack(stack: Range<usize>) {
    client_request(&[STACK_REGISTER, stack.start, stack.end - 1, 0, 0, 0]);
}

/// The code in the range has changed. Without this valgrind goes on with what it translated before,
/// where the code is that of a file.
pub fn discard_translations(code: Range<usize>) {
    client_request(&[DISCARD_TRANSLATIONS, code.start, code.len(), 0, 0, 0]);
}

/// While this lives, valgrind reports no errors of this thread: the engine passes bad addresses on
/// purpose.
#[derive(Debug)]
pub struct ErrorsOff {
    /// The request is about the thread that makes it.
    _thread: PhantomData<*mut ()>,
}

impl ErrorsOff {
    /// Reports off; they nest.
    #[must_use]
    pub fn new() -> Self {
        client_request(&[CHANGE_ERR_DISABLEMENT, 1, 0, 0, 0, 0]);
        Self { _thread: PhantomData }
    }
}

impl Default for ErrorsOff {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ErrorsOff {
    fn drop(&mut self) {
        client_request(&[CHANGE_ERR_DISABLEMENT, 1_usize.wrapping_neg(), 0, 0, 0, 0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_does_nothing_without_valgrind() {
        if is_running() {
            return;
        }
        let words = [1_u8, 2];
        let at = words.as_ptr() as usize;
        register_stack(at..at + 2);
        discard_translations(at..at + 2);
        drop(ErrorsOff::new());
        assert_eq!(words, [1, 2]);
    }
}
