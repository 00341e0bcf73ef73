//! Reading the program's memory through the kernel, so that a bad address is not a fault.

use uringlet_sys::UserPtr;
use uringlet_sys::user;

use crate::arch::PAGE;

/// Calls `each` with index and value of `count` words at `addr`, up to the first that cannot be
/// read.
pub(crate) fn for_each_word(addr: usize, count: usize, mut each: impl FnMut(usize, u64)) {
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
    (user::read_prefix(&mut bytes, UserPtr::new(addr)) == 8).then(|| usize::from_ne_bytes(bytes))
}

/// Reads a string without its NUL into `into`, as far as it fits and can be read. Returns its
/// length.
pub(crate) fn string(addr: usize, into: &mut [u8]) -> usize {
    let mut done = 0;
    while done < into.len() {
        let from = addr + done;
        // Not beyond the page that the string may end in.
        let end = into.len().min(done + PAGE - from % PAGE);
        let got = user::read_prefix(&mut into[done..end], UserPtr::new(from));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_is_read_up_to_its_end() {
        let mut buffer = [9; 16];
        assert_eq!(string(c"uringlet".as_ptr() as usize, &mut buffer), 8);
        assert_eq!(&buffer[..9], b"uringlet\0");
        assert_eq!(string(c"uringlet".as_ptr() as usize, &mut buffer[..4]), 4);
    }

    #[test]
    fn bad_address_reads_nothing() {
        assert_eq!(string(8, &mut [0; 16]), 0);
        assert_eq!(word(8), None);
        let readable = 7_usize;
        assert_eq!(word((&raw const readable).addr()), Some(7));
    }
}
