//! The word that tells whether a process records, and where to: `trace -p` writes both into
//! another process.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, AtomicU32};

pub(super) const OFF: u32 = 0;
pub(super) const REQUESTED: u32 = 1;
pub(super) const OPENING: u32 = 2;
pub(super) const ON: u32 = 3;
/// As `OFF`, in a process that looks at its requests for another reason: it injects faults.
pub(super) const LOOKING: u32 = 4;

/// Bytes of the path, with its NUL.
pub(super) const PATH: usize = 64;

/// See the module.
#[derive(Debug)]
#[repr(C)]
pub struct TraceControl {
    pub(super) state: AtomicU32,
    pub(super) path: [AtomicU8; PATH],
    /// The state without a tracer: `OFF` or `LOOKING`.
    pub(super) idle: AtomicU32,
}

impl TraceControl {
    /// Of a process without a tracer.
    pub(crate) const fn new() -> Self {
        Self { state: AtomicU32::new(OFF), path: [const { AtomicU8::new(0) }; PATH], idle: AtomicU32::new(OFF) }
    }

    /// The bytes of a request, to be written over a control: all but the state, then the state.
    /// `None`: the path is too long.
    #[must_use]
    pub fn request_bytes(path: &[u8]) -> Option<([u8; PATH], [u8; 4])> {
        let mut bytes = [0; PATH];
        bytes.get_mut(..path.len())?.copy_from_slice(path);
        (path.len() < PATH).then_some((bytes, REQUESTED.to_ne_bytes()))
    }

    /// Where the path is, bytes from the beginning.
    pub const PATH_AT: usize = core::mem::offset_of!(Self, path);

    /// The bytes of the state that a process with these bytes has when it does not record.
    #[must_use]
    pub fn idle_bytes(control: &[u8; Self::LEN]) -> [u8; 4] {
        const AT: usize = core::mem::offset_of!(TraceControl, idle);
        core::array::from_fn(|n| control[AT + n])
    }

    /// Bytes of a control.
    pub const LEN: usize = size_of::<Self>();

    /// Whether a process with these bytes has been asked, and has not begun.
    #[must_use]
    pub fn is_requested(control: &[u8; Self::LEN]) -> bool {
        control[..4] == REQUESTED.to_ne_bytes()
    }

    /// The path that a process with these bytes records to, or is about to.
    #[must_use]
    pub fn path_of(control: &[u8; Self::LEN]) -> Option<&CStr> {
        let is_off = [OFF, LOOKING].iter().any(|state| control[..4] == state.to_ne_bytes());
        if is_off { None } else { CStr::from_bytes_until_nul(&control[Self::PATH_AT..]).ok() }
    }
}
