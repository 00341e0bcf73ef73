//! Where this object lies.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Address and length of this object's path, with a NUL behind: stored once, at the start.
static PATH: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// The path that LD_PRELOAD shall contain. A relative one means something else in a child: then
/// children are not attached.
pub(crate) fn set_library_path(path: &[u8]) {
    if !path.starts_with(b"/") {
        return;
    }
    // Kept for the life of the process.
    let path: &[u8] = [path, b"\0"].concat().leak();
    PATH[1].store(path.len(), Ordering::Relaxed);
    PATH[0].store(path.as_ptr() as usize, Ordering::Release);
}

/// The path with its NUL.
pub(super) fn library_path() -> Option<&'static [u8]> {
    let at = PATH[0].load(Ordering::Acquire);
    // SAFETY: the pair was stored once, from a slice that lives as long as the process.
    (at != 0).then(|| unsafe { core::slice::from_raw_parts(at as *const u8, PATH[1].load(Ordering::Relaxed)) })
}
