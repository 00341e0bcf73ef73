//! What execve(2) puts on a program's stack: argc, the arguments, the environment, the auxiliary
//! vector.

use core::ffi::{CStr, c_char};

use uringlet_sys::linux::auxvec::AT_NULL;

/// The words from argc to the end of the auxiliary vector.
pub(super) struct InitialStack<'a> {
    words: &'a mut [usize],
    /// Where the environment starts.
    variables: usize,
    /// Where the auxiliary vector starts.
    auxiliary: usize,
}

/// The length of what the kernel has put there.
///
/// # Safety
/// `stack` is the stack pointer that the kernel has started this process with.
unsafe fn word_count(stack: *const usize) -> usize {
    // SAFETY: two arrays of pointers that end in null, and pairs of words that end in AT_NULL.
    unsafe {
        let mut at = 2 + stack.read();
        while stack.add(at).read() != 0 {
            at += 1;
        }
        at += 1;
        while stack.add(at).read() != AT_NULL as usize {
            at += 2;
        }
        at + 2
    }
}

impl InitialStack<'static> {
    /// # Safety
    /// `stack` is the stack pointer that the kernel has started this process with, and nothing else
    /// uses what lies there.
    pub(super) unsafe fn at(stack: *mut usize) -> Self {
        // SAFETY: see above.
        Self::of(unsafe { core::slice::from_raw_parts_mut(stack, word_count(stack)) })
    }
}

impl<'a> InitialStack<'a> {
    fn of(words: &'a mut [usize]) -> Self {
        let variables = words[0] + 2;
        let auxiliary = variables + words[variables..].iter().position(|&word| word == 0).unwrap_or(0) + 1;
        Self { words, variables, auxiliary }
    }

    /// Addresses of the arguments.
    pub(super) fn arguments(&self) -> &[usize] {
        &self.words[1..self.variables - 1]
    }

    /// Addresses of the variables.
    pub(super) fn variables(&self) -> &[usize] {
        &self.words[self.variables..self.auxiliary - 1]
    }

    /// Where the two lists are, which end in null.
    pub(super) fn arrays(&self) -> [usize; 2] {
        [&self.words[1..], &self.words[self.variables..]].map(|list| list.as_ptr().expose_provenance())
    }

    /// Takes the first variable out of the environment. The stack pointer stays: it is aligned.
    pub(super) fn remove_first_variable(&mut self) {
        let end = self.words.len();
        self.words.copy_within(self.variables + 1..end, self.variables);
        self.words[end - 1] = 0;
        self.words = core::mem::take(&mut self.words).split_at_mut(end - 1).0;
        self.auxiliary -= 1;
    }

    /// A value of the auxiliary vector.
    pub(super) fn auxiliary(&self, kind: u32) -> Option<usize> {
        self.pairs().find(|pair| pair[0] == kind as usize).map(|pair| pair[1])
    }

    /// Changes a value of the auxiliary vector, if the kernel has given one of this kind.
    pub(super) fn set_auxiliary(&mut self, kind: u32, value: usize) {
        let pairs = self.words[self.auxiliary..].chunks_exact_mut(2);
        for pair in pairs.filter(|pair| pair[0] == kind as usize) {
            pair[1] = value;
        }
    }

    fn pairs(&self) -> impl Iterator<Item = &[usize]> {
        self.words[self.auxiliary..].chunks_exact(2)
    }

    /// The auxiliary vector up to and with `AT_NULL`.
    pub(super) fn auxiliary_vector(&self) -> alloc::vec::Vec<u64> {
        self.words[self.auxiliary..].iter().map(|&word| word as u64).collect()
    }
}

/// The string at an address that the kernel has given.
///
/// # Safety
/// It is one of the initial stack.
pub(super) unsafe fn text(at: usize) -> &'static CStr {
    // SAFETY: ends in NUL, and stays as long as the program lets it: it is read before that runs.
    unsafe { CStr::from_ptr(at as *const c_char) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_variable_leaves_and_the_rest_moves_down() {
        // argc, two arguments, null, three variables, null, two pairs, AT_NULL.
        let mut words = [2, 11, 12, 0, 21, 22, 23, 0, 3, 31, 9, 32, 0, 0];
        let mut stack = InitialStack::of(&mut words);
        assert_eq!((stack.arguments(), stack.variables()), (&[11, 12][..], &[21, 22, 23][..]));
        stack.remove_first_variable();
        assert_eq!((stack.arguments(), stack.variables()), (&[11, 12][..], &[22, 23][..]));
        assert_eq!((stack.auxiliary(3), stack.auxiliary(9), stack.auxiliary(4)), (Some(31), Some(32), None));
        stack.set_auxiliary(9, 5);
        assert_eq!(stack.auxiliary_vector(), [3, 31, 9, 5, 0, 0]);
        assert_eq!(words, [2, 11, 12, 0, 22, 23, 0, 3, 31, 9, 5, 0, 0, 0]);
    }

    #[test]
    fn empty_lists_are_empty() {
        let mut words = [0, 0, 21, 0, 0, 0];
        let mut stack = InitialStack::of(&mut words);
        assert!(stack.arguments().is_empty());
        stack.remove_first_variable();
        assert!(stack.variables().is_empty());
    }
}
