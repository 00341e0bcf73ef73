//! Short transfers: the SQE asks for less than the program did.

use super::FaultActions;
use crate::file::FileKind;
use crate::ring_resources::RingResources;
use crate::trace;
use uringlet_abi::register::Iovec;
use uringlet_abi::{Opcode, Sqe, op_flags, sqe};
use uringlet_sys::{UserPtr, io, user};

/// Bytes that a transfer without the page cache is cut to a multiple of: no disk has larger blocks,
/// as a rule.
const BLOCK: u32 = 4096;

/// What an SQE asks to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Bytes(u32),
    /// So many iovecs.
    Vectors(u32),
    /// Nothing that can be cut: datagrams and their headers, whole buffers, several results.
    Whole,
}

fn amount(opcode: Opcode, entry: &Sqe) -> Amount {
    let bundles = op_flags::RECVSEND_BUNDLE | op_flags::SEND_VECTORIZED | op_flags::RECV_MULTISHOT;
    match opcode {
        Opcode::Read | Opcode::Write | Opcode::ReadFixed | Opcode::WriteFixed | Opcode::Splice | Opcode::Tee => Amount::Bytes(entry.len),
        Opcode::Send | Opcode::SendZc | Opcode::Recv if entry.ioprio & bundles == 0 => Amount::Bytes(entry.len),
        Opcode::Readv | Opcode::Writev | Opcode::ReadvFixed | Opcode::WritevFixed if entry.flags & sqe::BUFFER_SELECT == 0 => {
            Amount::Vectors(entry.len)
        }
        _ => Amount::Whole,
    }
}

/// The opcode that does the same with one buffer.
const fn of_one_buffer(opcode: Opcode) -> Opcode {
    match opcode {
        Opcode::Readv => Opcode::Read,
        Opcode::Writev => Opcode::Write,
        Opcode::ReadvFixed => Opcode::ReadFixed,
        _ => Opcode::WriteFixed,
    }
}

/// The one iovec of an SQE, as far as an SQE's length goes.
fn only_iovec(entry: &Sqe) -> Option<(u64, u32)> {
    let mut iovec = Iovec { base: 0, len: 0 };
    let got = user::copy_in_user(io::ptr_of_mut(&mut iovec), UserPtr::at(entry.addr), size_of::<Iovec>());
    let len = u32::try_from(iovec.len).ok()?;
    (got == size_of::<Iovec>()).then_some((iovec.base, len))
}

/// Fewer than `len`, at least one `unit`. `None`: there is no such number.
fn fewer(len: u32, actions: FaultActions, unit: u32) -> Option<u32> {
    let percent = u64::from(len) * u64::from(actions.short_percent) / 100;
    let wanted = if actions.short_bytes > 0 { actions.short_bytes } else { u32::try_from(percent).unwrap_or(len) };
    let whole = (wanted / unit * unit).max(unit);
    Some(if whole < len { whole } else { (len.checked_sub(1)?) / unit * unit }).filter(|&fewer| fewer > 0)
}

/// How the SQE is changed: opcode, address, length.
fn cut(res: &RingResources, opcode: Opcode, entry: &Sqe, actions: FaultActions) -> Option<(Opcode, u64, u32)> {
    let is_direct = || FileKind::of(trace::file_number(res, entry)).is_direct();
    let bytes = |len: u32| fewer(len, actions, if is_direct() { BLOCK } else { 1 });
    match amount(opcode, entry) {
        Amount::Bytes(len) => Some((opcode, entry.addr, bytes(len)?)),
        Amount::Vectors(1) => {
            let (base, len) = only_iovec(entry)?;
            Some((of_one_buffer(opcode), base, bytes(len)?))
        }
        // Of several, some are left out.
        Amount::Vectors(count) => {
            Some((opcode, entry.addr, fewer(count, FaultActions { short_bytes: 0, short_percent: percent(actions), ..actions }, 1)?))
        }
        Amount::Whole => None,
    }
}

/// Of iovecs a number of bytes says nothing: half of them.
const fn percent(actions: FaultActions) -> u32 {
    if actions.short_percent == 0 { 50 } else { actions.short_percent }
}

/// Whether a request can move less than it asks for.
pub(super) fn can_be_short(res: &RingResources, opcode: Opcode, entry: &Sqe, actions: FaultActions) -> bool {
    cut(res, opcode, entry, actions).is_some()
}

/// Lets an SQE ask for less. Returns whether that breaks its links, as of a read or a write.
pub(super) fn shorten(res: &RingResources, opcode: Opcode, entry: &mut Sqe, actions: FaultActions) -> bool {
    let Some((opcode, addr, len)) = cut(res, opcode, entry, actions) else { return false };
    (entry.opcode, entry.addr, entry.len) = (opcode as u8, addr, len);
    !matches!(opcode, Opcode::Send | Opcode::SendZc | Opcode::Recv)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_short_transfer_moves_something_and_not_everything() {
        let percent = |short_percent| FaultActions { short_percent, ..FaultActions::NONE };
        let bytes = |short_bytes| FaultActions { short_bytes, ..FaultActions::NONE };
        assert_eq!([fewer(100, percent(50), 1), fewer(100, percent(1), 1), fewer(100, percent(99), 1)], [Some(50), Some(1), Some(99)]);
        assert_eq!([fewer(100, bytes(7), 1), fewer(100, bytes(100), 1), fewer(100, bytes(500), 1)], [Some(7), Some(99), Some(99)]);
        assert_eq!([fewer(1, percent(50), 1), fewer(0, percent(50), 1), fewer(2, percent(1), 1)], [None, None, Some(1)]);
        let blocks =
            [fewer(4096, percent(50), 4096), fewer(8192, percent(10), 4096), fewer(65536, percent(50), 4096), fewer(65536, bytes(1), 4096)];
        assert_eq!(blocks, [None, Some(4096), Some(32768), Some(4096)]);
        assert_eq!(fewer(u32::MAX, percent(99), 1), Some(4_252_017_622));
    }

    #[test]
    fn datagrams_headers_and_bundles_are_whole() {
        let entry = Sqe { len: 10, ioprio: op_flags::RECVSEND_BUNDLE, ..Sqe::default() };
        assert_eq!(amount(Opcode::Send, &entry), Amount::Whole);
        assert_eq!(amount(Opcode::Sendmsg, &Sqe { ioprio: 0, ..entry }), Amount::Whole);
        assert_eq!(amount(Opcode::Send, &Sqe { ioprio: 0, ..entry }), Amount::Bytes(10));
        assert_eq!(amount(Opcode::Readv, &entry), Amount::Vectors(10));
    }
}
