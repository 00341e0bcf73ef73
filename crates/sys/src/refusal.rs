//! Why no ring can be made, where the errno alone does not tell.

use crate::passthrough::write_stderr;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

const LINE: usize = 192;

/// Whether [`tell`] has told, or shall not.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// [`tell`] shall say nothing.
pub fn be_quiet() {
    IS_TOLD.store(true, Relaxed);
}

/// Says on standard error why no ring can be made, once a process. `reason` is one text in parts.
pub fn tell(reason: &[&str]) {
    if IS_TOLD.swap(true, Relaxed) {
        return;
    }
    let mut line = [0_u8; LINE];
    let mut len = 0;
    for part in ["uringlet: no ring can be made: "].iter().chain(reason).chain(&["\n"]) {
        // What does not fit is cut off.
        let part = &part.as_bytes()[..part.len().min(LINE - len)];
        line[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    write_stderr(&line[..len]);
}
