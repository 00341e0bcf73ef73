//! The code a rewritten site jumps to.
//!
//! ```text
//!         moved instructions before the call
//!         mov rcx, [table]; movzx r11d, ax; movzx ecx, byte ptr [rcx + r11]; jrcxz plain
//!                                        (not for numbers that are always intercepted)
//!         lea r11, [plain]
//!         jmp [entry]
//! plain:  syscall                        or, where it stayed in place: jmp back
//!         moved instructions behind the call
//!         jmp (where the program continues)
//! back:   jmp (the syscall in place)
//! ```
//! `site_entry` returns to `plain` if the call is the kernel's, two bytes further if it has been
//! handled. No instruction before the jump to it changes a flag.

use alloc::vec::Vec;

use super::encoding::{JUMP_BYTES, PATCH_BYTES, SYSCALL_INSN, jump_target};
use super::frame_table::Row;
use crate::rewrite::{HEADER_ENTRY, HEADER_TABLE, PatchPlan, Relocation};

/// Where one trampoline ends and the next starts.
const ALIGN: usize = 16;

/// The most that a plan's trampoline takes: every moved jump may grow from two bytes to six, and 80
/// is the fixed part.
pub(crate) fn max_bytes(plan: &PatchPlan) -> u64 {
    (80 + 3 * plan.bytes.len()).next_multiple_of(ALIGN) as u64
}

/// Code under construction at its final address.
struct Code {
    at: u64,
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

impl Code {
    fn here(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// What follows stands for an address of the program.
    fn stands_for(&mut self, address: u64) -> Option<()> {
        self.rows.push(Row { offset: u8::try_from(self.bytes.len()).ok()?, stands_for: address });
        Some(())
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Opcode bytes followed by a displacement to `target`. `None`: too far.
    fn put_relative(&mut self, opcode: &[u8], target: u64) -> Option<()> {
        self.put(opcode);
        let displacement = i32::try_from(target.wrapping_sub(self.here() + 4).cast_signed()).ok()?;
        self.put(&displacement.to_le_bytes());
        Some(())
    }

    /// An instruction that was at `ip`.
    fn put_moved(&mut self, bytes: &[u8], ip: u64, relocation: Relocation) -> Option<()> {
        self.stands_for(ip)?;
        match relocation {
            Relocation::None => self.put(bytes),
            Relocation::Displacement(offset) => {
                let offset = usize::from(offset);
                let old = i32::from_le_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?);
                let target = ip.wrapping_add(bytes.len() as u64).wrapping_add_signed(i64::from(old));
                let displacement = i32::try_from(target.wrapping_sub(self.here() + bytes.len() as u64).cast_signed()).ok()?;
                self.put(&bytes[..offset]);
                self.put(&displacement.to_le_bytes());
                self.put(&bytes[offset + 4..]);
            }
            Relocation::Jump => {
                let target = jump_target(bytes, ip)?;
                match *bytes.first()? {
                    0xeb | 0xe9 => self.put_relative(&[0xe9], target)?,
                    short @ 0x70..=0x7f => self.put_relative(&[0x0f, short + 0x10], target)?,
                    _ => self.put_relative(&bytes[..2], target)?,
                }
            }
            Relocation::Never => return None,
        }
        Some(())
    }
}

/// The trampoline of `plan` for an object loaded at `base`, to be placed at `at`, and what its
/// instructions stand for; `header` is its region's start. `None`: something is out of reach.
pub(crate) fn emit(plan: &PatchPlan, base: u64, header: u64, at: u64) -> Option<(Vec<u8>, Vec<Row>)> {
    let mut code = Code { at, bytes: Vec::with_capacity(96), rows: Vec::new() };
    let start = base + plan.start;
    let syscall = usize::from(plan.syscall);
    let mut offset = 0;
    let mut moved = plan.moved.iter();
    while offset < syscall {
        let insn = moved.next()?;
        let end = offset + usize::from(insn.len);
        code.put_moved(plan.bytes.get(offset..end)?, start + offset as u64, insn.relocation)?;
        offset = end;
    }
    let call = start + u64::from(plan.syscall);
    code.stands_for(call)?;
    if plan.is_looked_up() {
        code.put_relative(&[0x48, 0x8b, 0x0d], header + HEADER_TABLE)?;
        code.put(&[0x44, 0x0f, 0xb7, 0xd8, 0x42, 0x0f, 0xb6, 0x0c, 0x19]);
        // Over the `lea` (7) and the `jmp` (6).
        code.put(&[0xe3, 13]);
    }
    let plain = code.here() + 13;
    // From the jump on: inside the call, behind the instruction.
    code.put_relative(&[0x4c, 0x8d, 0x1d], plain)?;
    code.stands_for(call + SYSCALL_INSN.len() as u64)?;
    code.put_relative(&[0xff, 0x25], header + HEADER_ENTRY)?;
    if plan.kind.keeps_syscall() {
        code.put(&[0xeb, PATCH_BYTES as u8]);
    } else {
        code.put(&SYSCALL_INSN);
    }
    offset = syscall + SYSCALL_INSN.len();
    for insn in moved {
        let end = offset + usize::from(insn.len);
        code.put_moved(plan.bytes.get(offset..end)?, start + offset as u64, insn.relocation)?;
        offset = end;
    }
    code.stands_for(base + plan.end())?;
    code.put_relative(&[0xe9], base + plan.end())?;
    if plan.kind.keeps_syscall() {
        code.stands_for(call)?;
        code.put_relative(&[0xe9], call)?;
    }
    Some((code.bytes, code.rows))
}

/// The jump from the entry of an empty function, for a region that starts at `header`: placed at
/// `at`, it leads to the region's entry.
pub(crate) fn emit_entry_jump(header: u64, at: u64) -> Option<Vec<u8>> {
    let mut code = Code { at, bytes: Vec::new(), rows: Vec::new() };
    code.put_relative(&[0xff, 0x25], header + HEADER_ENTRY)?;
    Some(code.bytes)
}

/// Code that calls the region's entry and goes on to `function`: it takes the place of `function`
/// where that is called.
pub(crate) fn emit_call_before(header: u64, at: u64, function: u64) -> Option<Vec<u8>> {
    let mut code = Code { at, bytes: Vec::new(), rows: Vec::new() };
    code.put_relative(&[0xff, 0x15], header + HEADER_ENTRY)?;
    code.put_relative(&[0xe9], function)?;
    Some(code.bytes)
}

/// The bytes that lead from `from` to `to`.
pub(crate) fn jump(from: u64, to: u64) -> Option<[u8; PATCH_BYTES]> {
    let displacement = i32::try_from(to.wrapping_sub(from + JUMP_BYTES).cast_signed()).ok()?;
    let [a, b, c, d] = displacement.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::super::classify::classify;
    use super::super::disasm::DecodedFunction;
    use super::*;
    use crate::rewrite::{HEADER_BYTES, SiteClass};

    const BASE: u64 = 0x7000_0000;
    const START: u64 = 0x1000;
    const HEADER: u64 = 0x6000_0000;
    const AT: u64 = HEADER + HEADER_BYTES;

    fn emit_at(code: &[u8], syscall: u64) -> Vec<u8> {
        match classify(&DecodedFunction::decode(code, START), code, START, START + syscall) {
            Some(SiteClass::Rewrite(plan)) => {
                let (bytes, _) = emit(&plan, BASE, HEADER, AT).expect("in reach");
                assert!(bytes.len() as u64 <= max_bytes(&plan));
                bytes
            }
            other => panic!("{other:?}"),
        }
    }

    fn relative(opcode: &[u8], at: u64, target: u64) -> Vec<u8> {
        let end = at + opcode.len() as u64 + 4;
        [opcode, &((target as i64 - end as i64) as i32).to_le_bytes()].concat()
    }

    #[test]
    fn constant_number_jumps_straight_to_the_entry() {
        let mov = [0xb8, 0xaa, 1, 0, 0];
        let code = [&mov[..], &[0x0f, 5, 0xc3]].concat();
        let plain = AT + 5 + 7 + 6;
        let expected = [
            mov.to_vec(),
            relative(&[0x4c, 0x8d, 0x1d], AT + 5, plain),
            relative(&[0xff, 0x25], AT + 12, HEADER + 8),
            vec![0xeb, 5],
            relative(&[0xe9], plain + 2, BASE + START + 7),
            relative(&[0xe9], plain + 7, BASE + START + 5),
        ];
        assert_eq!(emit_at(&code, 5), expected.concat());
    }

    #[test]
    fn moved_instructions_keep_their_targets() {
        // syscall; mov 0x10(%rip), %rdi; je +2; nop; nop; ret
        let code = [0x0f, 5, 0x48, 0x8b, 0x3d, 0x10, 0, 0, 0, 0x74, 2, 0x90, 0x90, 0xc3];
        let bytes = emit_at(&code, 0);
        let moved = bytes.len() - 5 - 7;
        let at = AT + moved as u64;
        assert_eq!(bytes[moved..moved + 7], relative(&[0x48, 0x8b, 0x3d], at, BASE + START + 9 + 0x10));
        // syscall; test %eax, %eax; je +2; ...: five bytes need the jump, too.
        let code = [0x0f, 5, 0x85, 0xc0, 0x74, 2, 0x90, 0x90, 0xc3];
        let bytes = emit_at(&code, 0);
        let moved = bytes.len() - 5 - 6;
        assert_eq!(bytes[moved..moved + 6], relative(&[0x0f, 0x84], AT + moved as u64, BASE + START + 8));
    }

    #[test]
    fn targets_out_of_reach_are_refused() {
        let code = [0xb8, 0xaa, 1, 0, 0, 0x0f, 5, 0xc3];
        let Some(SiteClass::Rewrite(plan)) = classify(&DecodedFunction::decode(&code, START), &code, START, START + 5) else { panic!() };
        assert_eq!(emit(&plan, BASE + (1 << 40), HEADER, AT), None);
        assert_eq!(jump(BASE, BASE + (1 << 31) + 5), None);
        assert_eq!(jump(BASE, BASE + 5), Some([0xe9, 0, 0, 0, 0]));
    }
}
