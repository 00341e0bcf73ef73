//! Memory for the arguments and the environment of one execve(2). The heap is not used: the caller
//! may be a vfork child, which never gives back what a successful call keeps.

/// What is left of the memory.
pub(super) struct Room<'a> {
    rest: &'a mut [usize],
}

impl<'a> Room<'a> {
    pub(super) fn new(words: &'a mut [usize]) -> Self {
        Self { rest: words }
    }

    /// Takes `count` words, with any content.
    pub(super) fn words(&mut self, count: usize) -> Option<&'a mut [usize]> {
        if count > self.rest.len() {
            return None;
        }
        let (taken, rest) = core::mem::take(&mut self.rest).split_at_mut(count);
        self.rest = rest;
        Some(taken)
    }

    /// The address of a string of these parts, with a NUL behind.
    pub(super) fn text(&mut self, parts: &[&[u8]]) -> Option<usize> {
        let len = parts.iter().map(|part| part.len()).sum::<usize>() + 1;
        let words = self.words(len.div_ceil(size_of::<usize>()))?;
        let mut bytes = parts.iter().flat_map(|part| part.iter().copied());
        for word in &mut *words {
            *word = usize::from_ne_bytes(core::array::from_fn(|_| bytes.next().unwrap_or(0)));
        }
        Some(words.as_ptr().expose_provenance())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_end_in_nul_and_do_not_overlap() {
        let mut words = [usize::MAX; 4];
        let mut room = Room::new(&mut words);
        let first = room.text(&[b"abcd", b"", b"efgh"]).unwrap();
        let second = room.text(&[b"xyz"]).unwrap();
        // SAFETY: both are in `words`.
        let [first, second] = [first, second].map(|at| unsafe { core::ffi::CStr::from_ptr(at as *const core::ffi::c_char) });
        assert_eq!((first, second), (c"abcdefgh", c"xyz"));
        assert_eq!(room.text(&[b"12345678"]), None);
        assert!(room.words(2).is_none() && room.words(1).is_some() && room.words(1).is_none());
    }
}
