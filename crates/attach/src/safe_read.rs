//! Looking into the program's memory: through the kernel, so that a bad address is the kernel's to refuse.

use core::sync::atomic::{AtomicBool, Ordering};

use syscalls::{Sysno, raw};
use uringlet_sys::UserPtr;
use uringlet_sys::user;

/// Whether the program ever asked for a ring: until then nobody has to know what it polls.
static RING_MADE: AtomicBool = AtomicBool::new(false);

/// The program asks for a ring.
pub(crate) fn note_ring_setup() {
    RING_MADE.store(true, Ordering::Relaxed);
}

/// Whether it ever did.
pub(crate) fn any_ring() -> bool {
    RING_MADE.load(Ordering::Relaxed)
}

/// Calls `each` for `count` words at `addr`, up to the first that cannot be read.
pub(crate) fn words(addr: usize, count: usize, mut each: impl FnMut(usize, u64)) {
    const CHUNK: usize = 64;
    let mut done = 0;
    while done < count {
        let mut chunk = [0_u64; CHUNK];
        let n = CHUNK.min(count - done);
        let Some(from) = done.checked_mul(8).and_then(|offset| addr.checked_add(offset)) else { return };
        if user::read_slice(&mut chunk[..n], UserPtr::new(from)).is_err() {
            return;
        }
        for (i, &word) in chunk[..n].iter().enumerate() {
            each(done + i, word);
        }
        done += n;
    }
}

/// One word; `None` if it cannot be read.
pub(crate) fn word(addr: usize) -> Option<usize> {
    let mut bytes = [0; 8];
    (bytes_at(addr, &mut bytes) == 8).then(|| usize::from_ne_bytes(bytes))
}

/// Reads a string without its NUL; what does not fit or cannot be read is left off. The length.
pub(crate) fn text(addr: usize, into: &mut [u8]) -> usize {
    const PAGE: usize = 4096;
    let mut done = 0;
    while done < into.len() {
        let from = addr + done;
        // Not beyond the page that the string may end in.
        let end = into.len().min(done + PAGE - from % PAGE);
        let got = bytes_at(from, &mut into[done..end]);
        if let Some(nul) = into[done..done + got].iter().position(|&b| b == 0) {
            into[done + nul..].fill(0);
            return done + nul;
        }
        done += got;
        if done < end {
            break;
        }
    }
    done
}

/// For a child that shares or has just copied its parent's memory: the engine's idea of the process id may be the parent's there.
fn bytes_at(addr: usize, into: &mut [u8]) -> usize {
    let local = [into.as_mut_ptr() as usize, into.len()];
    let remote = [addr, into.len()];
    // SAFETY: the local side is a live buffer; the kernel checks the other.
    let got = unsafe {
        let pid = raw::syscall0(Sysno::getpid as usize);
        raw::syscall6(Sysno::process_vm_readv as usize, pid, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0)
    };
    if got > into.len() { 0 } else { got }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_up_to_their_end_and_bad_addresses_are_nothing() {
        let mut room = [9; 16];
        assert_eq!(text(c"uringlet".as_ptr() as usize, &mut room), 8);
        assert_eq!(&room[..9], b"uringlet\0");
        assert_eq!(text(c"uringlet".as_ptr() as usize, &mut room[..4]), 4);
        assert_eq!(text(8, &mut room), 0);
        assert_eq!(word(8), None);
        assert!(word((&raw const RING_MADE).addr() & !7).is_some());
    }
}
