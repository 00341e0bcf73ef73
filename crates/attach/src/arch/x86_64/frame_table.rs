//! Unwind tables of trampolines, in the format of `.eh_frame` and `.eh_frame_hdr`.
//!
//! A trampoline is a frame without a stack: its caller is the program's function at the address
//! that the trampoline's instruction stands for, with the same registers. So the function's own
//! table says the rest, and need not be understood.
//!
//! The unwinder looks up the byte before a return address: addresses are one higher than what they
//! stand for. Only the frame of an interruption is looked up exactly, and these are none: an
//! unwinder tells two frames with one stack pointer apart by that alone.

use alloc::vec::Vec;

use super::encoding::PATCH_BYTES;
use crate::rewrite::PatchPlan;

/// Encodings of addresses (`DW_EH_PE_*`).
const PCREL_SDATA4: u8 = 0x1b;
const DATAREL_SDATA4: u8 = 0x3b;
const UDATA4: u8 = 0x03;
/// DWARF's numbers of registers.
const STACK_POINTER: u8 = 7;
const RETURN_ADDRESS: u8 = 16;

/// Bytes of the header and of one entry of its search table.
const HEADER_BYTES: usize = 12;
const ENTRY_BYTES: usize = 8;
/// What all trampolines share (a CIE): length, id, version, augmentation, alignment factors of code
/// and data (-8), return address; the stack pointer stays.
const SHARED: [u8; 24] =
    [20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, RETURN_ADDRESS, 1, PCREL_SDATA4, 0x0c, STACK_POINTER, 0, 0, 0, 0, 0];
/// Bytes of a trampoline's description (an FDE) before its rows; of a row; the end's padding.
const DESCRIPTION_BYTES: usize = 17;
const ROW_BYTES: usize = 14;
const ALIGN: usize = 8;

/// From one byte of a trampoline on: which address of the program it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) offset: u8,
    pub(crate) stands_for: u64,
}

/// A trampoline's place and its rows.
#[derive(Debug)]
pub(crate) struct TrampolineFrame {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) rows: Vec<Row>,
}

/// The most that the tables for these plans take.
pub(crate) fn max_bytes(plans: &[PatchPlan]) -> u64 {
    // Four rows for the fixed part of a trampoline.
    let rows: usize = plans.iter().map(|plan| plan.moved.len() + 4).sum();
    let fixed = ENTRY_BYTES + DESCRIPTION_BYTES + ALIGN;
    (ALIGN + HEADER_BYTES + SHARED.len() + plans.len() * fixed + rows * ROW_BYTES + PATCH_BYTES) as u64
}

/// The tables for trampolines that lie in ascending order, to be placed at `at`. `None`: too far.
pub(crate) fn build(frames: &[TrampolineFrame], at: u64) -> Option<Vec<u8>> {
    let shared = HEADER_BYTES + ENTRY_BYTES * frames.len();
    let mut descriptions = Vec::from(SHARED);
    let mut search = Vec::new();
    for frame in frames {
        let here = shared + descriptions.len();
        search.extend_from_slice(&relative(frame.start, at)?);
        search.extend_from_slice(&relative(at + here as u64, at)?);
        describe(frame, at + here as u64, descriptions.len(), &mut descriptions)?;
    }
    // The end.
    descriptions.extend_from_slice(&[0; 4]);
    let mut table = Vec::from([1, PCREL_SDATA4, UDATA4, DATAREL_SDATA4]);
    table.extend_from_slice(&relative(at + shared as u64, at + 4)?);
    table.extend_from_slice(&u32::try_from(frames.len()).ok()?.to_le_bytes());
    table.extend_from_slice(&search);
    table.extend_from_slice(&descriptions);
    Some(table)
}

fn relative(to: u64, from: u64) -> Option<[u8; 4]> {
    i32::try_from(to.wrapping_sub(from).cast_signed()).ok().map(i32::to_le_bytes)
}

/// One description, to be placed at `at`, `offset` bytes behind what it shares with the others.
fn describe(frame: &TrampolineFrame, at: u64, offset: usize, out: &mut Vec<u8>) -> Option<()> {
    let mut rows = Vec::new();
    let mut last = 0;
    for row in &frame.rows {
        if row.offset > last {
            // DW_CFA_advance_loc1
            rows.extend_from_slice(&[0x02, row.offset - last]);
            last = row.offset;
        }
        // DW_CFA_val_expression: the return address is DW_OP_addr.
        rows.extend_from_slice(&[0x16, RETURN_ADDRESS, 9, 0x03]);
        rows.extend_from_slice(&(row.stands_for + 1).to_le_bytes());
    }
    let len = (DESCRIPTION_BYTES + rows.len()).next_multiple_of(ALIGN);
    let end = out.len() + len;
    out.extend_from_slice(&u32::try_from(len - 4).ok()?.to_le_bytes());
    out.extend_from_slice(&u32::try_from(offset + 4).ok()?.to_le_bytes());
    out.extend_from_slice(&relative(frame.start, at + 8)?);
    out.extend_from_slice(&u32::try_from(frame.len).ok()?.to_le_bytes());
    out.push(0);
    out.extend_from_slice(&rows);
    // DW_CFA_nop
    out.resize(end, 0);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(table: &[u8], at: usize) -> i64 {
        i64::from(i32::from_le_bytes(table[at..at + 4].try_into().unwrap()))
    }

    #[test]
    fn search_table_leads_to_descriptions_of_the_trampolines() {
        const AT: u64 = 0x10_0000;
        let frames: Vec<_> = (0..3_u64)
            .map(|i| TrampolineFrame {
                start: AT - 0x1000 + 64 * i,
                len: 40,
                rows: vec![Row { offset: 0, stands_for: 7 }, Row { offset: 5, stands_for: 12 }],
            })
            .collect();
        let table = build(&frames, AT).expect("near");
        assert_eq!(int(&table, 8), 3);
        let shared = usize::try_from(4 + int(&table, 4)).unwrap();
        assert_eq!(&table[shared..shared + SHARED.len()], &SHARED);
        for (i, frame) in frames.iter().enumerate() {
            assert_eq!(int(&table, 12 + 8 * i), -0x1000 + 64 * i64::try_from(i).unwrap());
            let at = usize::try_from(int(&table, 16 + 8 * i)).unwrap();
            assert_eq!(at + 4 - usize::try_from(int(&table, at + 4)).unwrap(), shared);
            assert_eq!(int(&table, at + 8), frame.start.cast_signed() - (AT.cast_signed() + i64::try_from(at).unwrap() + 8));
            assert_eq!(int(&table, at + 12), 40);
            assert_eq!(table[at + 17..at + 29], [0x16, 16, 9, 3, 8, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(table[at + 29..at + 35], [2, 5, 0x16, 16, 9, 3]);
        }
        let len = table.len();
        assert_eq!(int(&table, len - 4), 0);
    }
}
