//! Reading the program's memory so that a bad address is not a fault.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use uringlet_sys::UserPtr;
use uringlet_sys::static_ref::StaticRef;
use uringlet_sys::user;

use crate::arch::{PAGE, weak_address};
use crate::environ;

/// Calls `each` with index and value of `count` words at `addr`, up to the first that cannot be
/// read.
pub(crate) fn for_each_word(addr: usize, count: usize, mut each: impl FnMut(usize, u64)) {
    let mut reader = ProgramReader::with_stack(0);
    for index in 0..count {
        let word = index.checked_mul(8).and_then(|offset| addr.checked_add(offset)).and_then(|at| reader.word(at));
        let Some(word) = word else { return };
        each(index, word as u64);
    }
}

/// Reads what a program passes to execve(2), or a path, with the program's own loads. The program
/// may be confined to its own system calls. So only pages that are not known to be readable are
/// checked, by a call that every libc makes; pages that alternate are checked once.
#[derive(Debug)]
pub(crate) struct ProgramReader {
    /// All that is read is libc's own environment, which libc reads in the same way.
    is_libc_environ: bool,
    /// Pages that were checked, each at the index of its number's low bits; 0: none.
    pages: [usize; 64],
    /// An address in the caller's stack frame.
    stack: usize,
}

impl ProgramReader {
    /// For the environment at `given`; 0: for anything else. `stack` is where the program's frames
    /// begin; 0: not known.
    pub(crate) fn new(given: usize, stack: usize) -> Self {
        let is_libc_environ = given != 0 && environ::libc_environ() == given;
        Self { is_libc_environ, pages: [0; 64], stack }
    }

    /// For a string of a thread whose stack pointer is at `stack`.
    pub(crate) fn with_stack(stack: usize) -> Self {
        Self::new(0, stack)
    }

    /// Whether the byte at `addr` can be read.
    fn can_read(&mut self, addr: usize) -> bool {
        let page = addr & !(PAGE - 1);
        let slot = addr / PAGE % self.pages.len();
        if self.is_libc_environ || (page != 0 && self.pages[slot] == page) {
            return true;
        }
        let is_readable = self.is_known(addr) || (page != 0 && user::is_word_readable(UserPtr::new(page)) != Some(false));
        if is_readable {
            self.pages[slot] = page;
        }
        is_readable
    }

    /// Whether the address lies in the program, its heap, or the stack above this frame.
    fn is_known(&self, addr: usize) -> bool {
        const FRAMES: usize = 64 << 10;
        let heap_end = environ::variable_at(weak_address!("__curbrk"));
        let program = PROGRAM_START.load(Ordering::Relaxed);
        let is_in_segment = || SEGMENTS.get().is_some_and(|segments| segments.iter().any(|segment| segment.contains(&(addr as u64))));
        let is_in_frames = self.stack != 0 && addr.wrapping_sub(self.stack) < FRAMES;
        (program != 0 && (program..heap_end).contains(&addr)) || is_in_segment() || is_in_frames
    }

    /// One word; `None` if it cannot be read.
    pub(crate) fn word(&mut self, addr: usize) -> Option<usize> {
        let is_readable = self.can_read(addr) && self.can_read(addr.checked_add(7)?);
        // SAFETY: the pages are readable: see `can_read`.
        is_readable.then(|| unsafe { (addr as *const usize).read_unaligned() })
    }

    /// One byte; `None` if it cannot be read.
    pub(crate) fn byte(&mut self, addr: usize) -> Option<u8> {
        // SAFETY: the page is readable: see `can_read`.
        self.can_read(addr).then(|| unsafe { (addr as *const u8).read() })
    }

    /// Whether the string at `addr` begins so.
    pub(crate) fn begins_with(&mut self, addr: usize, prefix: &[u8]) -> bool {
        prefix.iter().enumerate().all(|(at, &wanted)| self.byte(addr.wrapping_add(at)) == Some(wanted))
    }

    /// Reads a string without its NUL into `into`, as far as it fits and can be read. Returns its
    /// length.
    pub(crate) fn string(&mut self, addr: usize, into: &mut [u8]) -> usize {
        for (done, slot) in into.iter_mut().enumerate() {
            match self.byte(addr.wrapping_add(done)) {
                None | Some(0) => return done,
                Some(byte) => *slot = byte,
            }
        }
        into.len()
    }
}

/// Where the program begins; its data and its heap follow.
static PROGRAM_START: AtomicUsize = AtomicUsize::new(0);

/// The segments of a static program that can be read.
static SEGMENTS: StaticRef<Vec<Range<u64>>> = StaticRef::new();

/// Stores where the program begins.
pub(crate) fn set_program_start(start: usize) {
    PROGRAM_START.store(start, Ordering::Relaxed);
}

/// Stores the readable segments of a static program.
pub(crate) fn set_segments(segments: Vec<Range<u64>>) {
    SEGMENTS.set(Box::leak(Box::new(segments)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader() -> ProgramReader {
        ProgramReader::new(0, 0)
    }

    #[test]
    fn string_is_read_up_to_its_end() {
        let mut buffer = [9; 16];
        assert_eq!(reader().string(c"uringlet".as_ptr() as usize, &mut buffer), 8);
        assert_eq!(&buffer[..9], b"uringlet\x09");
        assert_eq!(reader().string(c"uringlet".as_ptr() as usize, &mut buffer[..4]), 4);
    }

    #[test]
    fn bad_address_reads_nothing() {
        assert_eq!(reader().string(8, &mut [0; 16]), 0);
        assert!(!reader().begins_with(8, b"x"));
        assert_eq!(reader().word(8), None);
        assert_eq!(reader().word(usize::MAX - 3), None);
        let readable = 7_usize;
        assert_eq!(reader().word((&raw const readable).addr()), Some(7));
    }

    #[test]
    fn string_that_leads_into_an_unreadable_page_ends_there() {
        use uringlet_sys::{mm, raw};
        let at = mm::map_anonymous(2 * PAGE, 0).unwrap();
        // SAFETY: a page of the new mapping.
        unsafe {
            raw::syscall3(uringlet_sys::Sysno::mprotect as usize, at + PAGE, PAGE, 0);
            ((at + PAGE - 3) as *mut [u8; 3]).write(*b"abc");
        }
        let mut buffer = [9; 16];
        assert_eq!(reader().string(at + PAGE - 3, &mut buffer), 3);
        assert_eq!(reader().word(at + PAGE - 4), None);
    }
}
