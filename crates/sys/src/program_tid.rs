//! The id of a thread of the program, without a system call for each time it is asked.
//!
//! glibc keeps a thread's id at a fixed distance from its thread pointer, and tells the kernel the
//! address, to be cleared at the thread's end: so the distance is found, not known. The first time
//! that a thread pointer is seen, the word is compared with what the kernel says; later it is read.
//! A thread that gets the memory of one that has ended has its own id there.
//!
//! Where the address is not the id's (musl, Go), each time takes a gettid(2).

use crate::exec_file::tid_address;
use crate::process::{thread_key, tid};
use crate::user::{self, UserPtr};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU64, AtomicUsize};

/// Thread pointers whose word was compared, by a few bits of theirs.
static COMPARED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
/// From a thread pointer to the id; [`UNKNOWN`] before the first, [`NOWHERE`] if it is not there.
static DISTANCE: AtomicUsize = AtomicUsize::new(UNKNOWN);

const UNKNOWN: usize = 0;
const NOWHERE: usize = usize::MAX;
/// No thread control block is larger.
const BLOCK: usize = 1 << 14;

/// The id of the calling thread, which is the program's.
#[inline]
#[must_use]
pub fn program_tid() -> u32 {
    let key = thread_key();
    let distance = DISTANCE.load(Relaxed);
    if distance != UNKNOWN && distance != NOWHERE && COMPARED[place(key)].load(Relaxed) == key {
        // The thread's own control block is mapped while it runs.
        return user::read_mapped(UserPtr::at(key).add(distance));
    }
    compare(key, distance)
}

fn place(key: u64) -> usize {
    (key >> 6 ^ key >> 12 ^ key >> 18) as usize % COMPARED.len()
}

#[cold]
fn compare(key: u64, mut distance: usize) -> u32 {
    let tid = tid();
    if distance == UNKNOWN {
        distance = tid_address().map_or(NOWHERE, |address| address.wrapping_sub(key as usize));
        if distance == UNKNOWN || distance >= BLOCK {
            distance = NOWHERE;
        }
        DISTANCE.store(distance, Relaxed);
    }
    if distance != NOWHERE && user::read::<u32>(UserPtr::at(key).add(distance)) == Ok(tid) {
        COMPARED[place(key)].store(key, Relaxed);
    }
    tid
}

/// In a forked child: whether libc has stored the child's id is to be seen.
pub fn forget() {
    COMPARED.iter().for_each(|key| key.store(0, Relaxed));
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn each_thread_has_its_own_id() {
        assert_eq!([program_tid(), program_tid()], [tid(); 2]);
        for _ in 0..20 {
            // Threads one after the other have the same memory.
            std::thread::spawn(|| assert_eq!([program_tid(), program_tid()], [tid(); 2])).join().unwrap();
        }
        forget();
        assert_eq!(program_tid(), tid());
    }
}
