//! The stacks that execve(2) is prepared on, each with room for arguments and environment.
//!
//! The caller may be a vfork child: it runs in its parent's memory, and never comes back when its
//! execve(2) succeeds. So what it takes must be given back by the kernel. A stack belongs to the
//! thread that has set its word; a vfork child has the kernel clear that word when the child leaves
//! this memory (set_tid_address(2)).
//!
//! ```text
//! vfork child                                   another thread
//! word 0 -> TAKEN
//! set_tid_address(word)
//! execve: reads the arguments, new memory
//!         word -> 0
//!                                               word 0 -> TAKEN
//! ```
//! Whether a thread has such an address already tells who it is: libc gives one to each of its
//! threads, and to a forked child; a vfork child has none.
//!
//! Unlike the engine's stacks these lie in the object: a forked child makes no system call for
//! them. No lock is held on them, so signal handlers that interrupt them run at once.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

use uringlet_sys::{exec_file, process};

/// The number of stacks: so many threads and vfork children prepare a call at once.
pub(crate) const EXEC_STACKS: usize = 16;
const ROOM_WORDS: usize = 12 << 10;
const STACK_WORDS: usize = 4 << 10;

/// The room, and the stack above it.
#[repr(C, align(64))]
struct ExecStack {
    room: [usize; ROOM_WORDS],
    frames: [usize; STACK_WORDS],
}

/// Bytes of one stack and its room.
pub(crate) const EXEC_STACK_BYTES: usize = size_of::<ExecStack>();

/// All stacks. `arch` computes their addresses.
#[repr(transparent)]
pub(crate) struct ExecStacks(UnsafeCell<[ExecStack; EXEC_STACKS]>);

// SAFETY: a stack is used by the thread that has set its word.
unsafe impl Sync for ExecStacks {}

pub(crate) static STACKS: ExecStacks =
    ExecStacks(UnsafeCell::new([const { ExecStack { room: [0; ROOM_WORDS], frames: [0; STACK_WORDS] } }; EXEC_STACKS]));

/// The words of the stacks, in their order: 0, or in use. `arch` takes the first that is free.
pub(crate) static WORDS: [AtomicU32; EXEC_STACKS] = [const { AtomicU32::new(0) }; EXEC_STACKS];

/// The stack that the calling thread runs on.
pub(crate) struct OwnStack {
    pub(super) room: &'static mut [usize],
    pub(super) lender: Lender,
}

impl OwnStack {
    /// # Safety
    /// `word` is one of [`WORDS`], the calling thread has set it, and calls this once.
    pub(crate) unsafe fn of(word: &'static AtomicU32) -> Self {
        let index = (word.as_ptr().addr() - WORDS.as_ptr().addr()) / size_of::<AtomicU32>();
        // SAFETY: in the array, because the word is; no other thread uses the room while the word
        // is set.
        let room = unsafe { &mut (*STACKS.0.get().cast::<ExecStack>().add(index)).room };
        Self { room, lender: Lender { word } }
    }
}

/// Arranges that a successful execve(2) gives the stack back.
pub(super) struct Lender {
    word: &'static AtomicU32,
}

impl Lender {
    /// `None`: the stack would be lost.
    pub(super) fn lend(&self) -> Option<LentStack> {
        let is_set = match exec_file::tid_address() {
            Ok(0) => true,
            Ok(_) if process::is_foreign() => return None,
            Ok(_) => false,
            Err(_) => process::is_foreign(),
        };
        if is_set {
            exec_file::set_tid_address(Some(self.word));
        }
        Some(LentStack { is_set })
    }
}

/// Ends when the call has failed.
pub(super) struct LentStack {
    is_set: bool,
}

impl Drop for LentStack {
    fn drop(&mut self) {
        if self.is_set {
            exec_file::set_tid_address(None);
        }
    }
}

/// In a forked child: the threads that used a stack are not there.
pub(crate) fn free_all() {
    for word in WORDS.iter().filter(|word| word.load(Ordering::Relaxed) != 0) {
        word.store(0, Ordering::Relaxed);
    }
}
