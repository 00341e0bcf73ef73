//! `IORING_REGISTER_QUERY`: what this implementation supports. It needs no ring.
//! Source: behaviour of Linux 6.18, and of 6.19 for the layout of the rings.

use super::setup;
use crate::driver::enter;
use crate::submit::SQE_FLAGS;
use alloc::vec::Vec;
use uringlet_abi::register::{self as reg, QueryHdr, query};
use uringlet_abi::{Opcode, layout};
use uringlet_sys::{Errno, UserPtr, user};

/// The longest answer, bytes.
const MAX_SIZE: usize = 48;
/// Entries of one call.
const MAX_ENTRIES: u32 = 1000;

/// Answers a list of queries.
///
/// # Errors
/// `EINVAL` a number of arguments; `EFAULT`; `ERANGE` a list of 1,000 entries, or one without an
/// end.
pub(crate) fn query(arg: UserPtr, n: u32) -> Result<usize, Errno> {
    if n != 0 {
        return Err(Errno::EINVAL);
    }
    let mut entry = arg;
    for _ in 0..MAX_ENTRIES {
        if entry.is_null() {
            return Ok(0);
        }
        entry = answer(entry)?;
    }
    Err(Errno::ERANGE)
}

/// Answers one entry. Returns the address of the next one.
fn answer(entry: UserPtr) -> Result<UserPtr, Errno> {
    let mut hdr: QueryHdr = user::read(entry)?;
    let (data, room) = (UserPtr::at(hdr.query_data), hdr.size as usize);
    let result = answer_to(&hdr, data, room)?;
    let bytes = result.as_ref().map_or(&[][..], |bytes| &bytes[..bytes.len().min(room)]);
    user::write_slice(data, bytes)?;
    clear(data.add(bytes.len()), room - bytes.len())?;
    hdr.size = u32::try_from(bytes.len()).unwrap_or(hdr.size);
    hdr.result = result.as_ref().err().map_or(0, |errno| -errno.into_raw());
    user::write(entry, &hdr)?;
    Ok(UserPtr::at(hdr.next_entry))
}

/// The outer error ends the call, the inner one is the entry's result.
fn answer_to(hdr: &QueryHdr, data: UserPtr, room: usize) -> Result<Result<Vec<u8>, Errno>, Errno> {
    if hdr.query_op >= query::NR {
        return Ok(Err(Errno::EOPNOTSUPP));
    }
    if hdr.resv != [0; 3] || hdr.result != 0 || room == 0 {
        return Ok(Err(Errno::EINVAL));
    }
    // As the kernel, which reads what it will write.
    user::read_slice(&mut [0_u8; MAX_SIZE][..room.min(MAX_SIZE)], data)?;
    Ok(match hdr.query_op {
        query::OPCODES => Ok(opcodes()),
        query::ZCRX => Ok(zcrx()),
        query::SCQ => Ok([u64::from(layout::CQES), 64].iter().flat_map(|word| word.to_le_bytes()).collect()),
        _ => Err(Errno::EOPNOTSUPP),
    })
}

/// `struct io_uring_query_opcode`.
fn opcodes() -> Vec<u8> {
    let counts = [u32::from(Opcode::LAST), reg::LAST + 1].map(u32::to_le_bytes);
    let flags = [u64::from(setup::FEATURES), u64::from(setup::PUBLIC), u64::from(enter::KNOWN), u64::from(SQE_FLAGS)].map(u64::to_le_bytes);
    let queries = [query::NR, 0].map(u32::to_le_bytes);
    [counts.as_flattened(), flags.as_flattened(), queries.as_flattened()].concat()
}

/// `struct io_uring_query_zcrx`: flags of registration and of areas, the number of
/// `ZCRX_CTRL_*`, features, size and alignment of a refill ring's header.
fn zcrx() -> Vec<u8> {
    let flags = [u64::from(reg::ZCRX_REG_NODEV | reg::ZCRX_REG_IMPORT), 0].map(u64::to_le_bytes);
    let numbers = [reg::ZCRX_CTRL_EXPORT + 1, 0, layout::ZCRX_TAIL + 4, layout::ZCRX_RQES, 0, 0].map(u32::to_le_bytes);
    [flags.as_flattened(), numbers.as_flattened()].concat()
}

/// Zeroes behind an answer that is shorter than its room.
fn clear(mut at: UserPtr, mut len: usize) -> Result<(), Errno> {
    const ZEROES: [u8; 512] = [0; 512];
    while len > 0 {
        let part = len.min(ZEROES.len());
        user::write_slice(at, &ZEROES[..part])?;
        at = at.add(part);
        len -= part;
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ops::OPCODES;
    use uringlet_abi::support;

    #[test]
    fn the_table_of_what_is_supported_is_right() {
        assert_eq!(support::OPCODES.entries.len(), OPCODES.len());
        for ((number, entry), def) in (0_u8..).zip(support::OPCODES.entries).zip(OPCODES.iter()) {
            assert_eq!((entry.number, entry.is_supported()), (u32::from(number), def.supported), "{}", entry.name);
            assert_eq!(Opcode::from_u8(number).map(Opcode::name), Some(entry.name));
        }
        assert!(support::REGISTER.entries.iter().map(|entry| entry.number).eq(0..=reg::LAST));
        assert_eq!(support::SETUP.supported_bits(), setup::PUBLIC);
        assert_eq!(support::FEATURES.supported_bits(), setup::FEATURES);
        assert_eq!(support::ENTER.supported_bits(), enter::KNOWN);
        assert_eq!(support::SQE.supported_bits(), u32::from(SQE_FLAGS));
    }
}
