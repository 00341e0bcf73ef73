//! Findings as bytes on disk and back. Pure.
//!
//! Little-endian: magic, format, the object's key, the size of its code, the plans, the sites left
//! alone, and a checksum of all that. Decoding trusts nothing: a record that differs in
//! any way from what encoding produces is rejected.

use alloc::vec::Vec;

use super::plan::{ANY_NUMBER, Findings, LeftAlone, MovedInsn, PatchKind, PatchPlan, Reason, Relocation};
use crate::arch::{PATCH_BYTES, SYSCALL_INSN, is_relocatable};
use crate::convert::count;
use crate::intercepted::is_intercepted;

const MAGIC: &[u8; 8] = b"uringlet";
/// Incremented with every change of what a scan finds or of how it is encoded.
const FORMAT: u32 = 6;
/// A larger record is not kept.
pub(super) const MAX_BYTES: usize = 256 << 10;

/// Identifies the object of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The build-id, or else the version of the file.
    pub(super) identity: Vec<u8>,
    pub(super) code_bytes: u64,
}

pub(super) fn encode(key: &Key, findings: &Findings) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&count(key.identity.len()).to_le_bytes());
    out.extend_from_slice(&key.identity);
    out.extend_from_slice(&key.code_bytes.to_le_bytes());
    out.extend_from_slice(&count(findings.plans.len()).to_le_bytes());
    for plan in &findings.plans {
        out.extend_from_slice(&plan.start.to_le_bytes());
        out.extend_from_slice(&plan.nr.to_le_bytes());
        out.extend_from_slice(&[plan.kind as u8, plan.syscall, plan.bytes.len() as u8, plan.moved.len() as u8]);
        for insn in &plan.moved {
            out.extend_from_slice(&[insn.len, encode_relocation(insn.relocation)]);
        }
        out.extend_from_slice(&plan.bytes);
    }
    out.extend_from_slice(&count(findings.left.len()).to_le_bytes());
    for site in &findings.left {
        out.extend_from_slice(&site.at.to_le_bytes());
        out.push(site.reason as u8);
    }
    let sum = checksum(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// The findings for the object with this key; `None` if the bytes are about another one or damaged.
pub(super) fn decode(bytes: &[u8], key: &Key) -> Option<Findings> {
    let (content, sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
    if checksum(content).to_le_bytes() != sum {
        return None;
    }
    let mut from = RecordReader(content);
    let is_about = from.take(8)? == MAGIC
        && from.u32()? == FORMAT
        && from.u32()? as usize == key.identity.len()
        && from.take(key.identity.len())? == key.identity
        && from.u64()? == key.code_bytes;
    if !is_about {
        return None;
    }
    let plan_count = from.u32()?;
    let mut plans: Vec<PatchPlan> = Vec::new();
    for _ in 0..plan_count {
        let plan = decode_plan(&mut from)?;
        let is_behind = plans.last().is_none_or(|last| last.end() <= plan.start);
        plans.push(Some(plan).filter(|p| is_behind && is_consistent(p))?);
    }
    let left = (0..from.u32()?).map(|_| decode_left(&mut from)).collect::<Option<_>>()?;
    from.0.is_empty().then_some(Findings { plans, left })
}

fn decode_left(from: &mut RecordReader<'_>) -> Option<LeftAlone> {
    let at = from.u64()?;
    let &[reason] = from.take(1)? else { return None };
    Some(LeftAlone { at, reason: Reason::ALL.into_iter().find(|r| *r as u8 == reason)? })
}

fn decode_plan(from: &mut RecordReader<'_>) -> Option<PatchPlan> {
    let (start, nr) = (from.u64()?, from.u32()?);
    let &[kind, syscall, len, moved] = from.take(4)? else { return None };
    let kind = PatchKind::ALL.into_iter().find(|k| *k as u8 == kind)?;
    let moved = from
        .take(2 * usize::from(moved))?
        .chunks_exact(2)
        .map(|p| Some(MovedInsn { len: p[0], relocation: decode_relocation(p[1])? }))
        .collect::<Option<_>>()?;
    Some(PatchPlan { kind, nr, start, syscall, bytes: from.take(usize::from(len))?.to_vec(), moved })
}

/// The moved instructions and the system call cover the bytes exactly, and each instruction can be
/// relocated as it says.
fn is_consistent(plan: &PatchPlan) -> bool {
    let syscall = usize::from(plan.syscall);
    let mut at = 0;
    let mut has_syscall = false;
    for insn in plan.moved.iter().map(Some).chain([None]) {
        if at == syscall {
            has_syscall = plan.bytes.get(at..at + SYSCALL_INSN.len()) == Some(&SYSCALL_INSN);
            at += SYSCALL_INSN.len();
        }
        let Some(insn) = insn else { break };
        let end = at + usize::from(insn.len);
        let Some(bytes) = plan.bytes.get(at..end) else { return false };
        if !is_relocatable(bytes, insn.relocation) {
            return false;
        }
        at = end;
    }
    let is_number = plan.nr == ANY_NUMBER || is_intercepted(plan.nr);
    has_syscall && at == plan.bytes.len() && at >= PATCH_BYTES && is_number && plan.start.checked_add(at as u64).is_some()
}

const NONE: u8 = 0xff;
const JUMP: u8 = 0xfe;
const NEVER: u8 = 0xfd;

fn encode_relocation(relocation: Relocation) -> u8 {
    match relocation {
        Relocation::None => NONE,
        Relocation::Jump => JUMP,
        Relocation::Never => NEVER,
        Relocation::Displacement(offset) => offset,
    }
}

fn decode_relocation(byte: u8) -> Option<Relocation> {
    match byte {
        NONE => Some(Relocation::None),
        JUMP => Some(Relocation::Jump),
        offset @ 0..16 => Some(Relocation::Displacement(offset)),
        _ => None,
    }
}

/// FNV-1a: detects damage, not malice (the directory is the user's own).
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key { identity: vec![7; 20], code_bytes: 4096 }
    }

    fn findings() -> Findings {
        let constant = PatchPlan {
            kind: PatchKind::NumberLoad,
            nr: 426,
            start: 0x1000,
            syscall: 5,
            bytes: vec![0xb8, 0xaa, 1, 0, 0, 0x0f, 0x05],
            moved: vec![MovedInsn { len: 5, relocation: Relocation::None }],
        };
        let generic = PatchPlan {
            kind: PatchKind::AfterSyscall,
            nr: ANY_NUMBER,
            start: 0x2000,
            syscall: 0,
            bytes: vec![0x0f, 0x05, 0x48, 0x8b, 0x05, 1, 2, 3, 4, 0x74, 0x05],
            moved: vec![MovedInsn { len: 7, relocation: Relocation::Displacement(3) }, MovedInsn { len: 2, relocation: Relocation::Jump }],
        };
        Findings { plans: vec![constant, generic], left: vec![LeftAlone { at: 0x3000, reason: Reason::JumpTarget }] }
    }

    #[test]
    fn decoding_reverses_encoding() {
        assert_eq!(decode(&encode(&key(), &findings()), &key()), Some(findings()));
        assert_eq!(decode(&encode(&key(), &Findings::default()), &key()), Some(Findings::default()));
    }

    #[test]
    fn record_of_another_object_is_rejected() {
        let bytes = encode(&key(), &findings());
        assert_eq!(decode(&bytes, &Key { code_bytes: 4097, ..key() }), None);
        assert_eq!(decode(&bytes, &Key { identity: vec![8; 20], ..key() }), None);
    }

    #[test]
    fn damaged_record_is_rejected() {
        let bytes = encode(&key(), &findings());
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len], &key()), None, "cut to {len}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert_eq!(decode(&damaged, &key()), None, "byte {at}");
        }
    }

    #[test]
    fn inconsistent_plan_is_rejected_despite_a_good_checksum() {
        let broken: [fn(&mut PatchPlan); 7] = [
            |p| p.syscall = 4,
            |p| p.bytes[6] = 0x06,
            |p| p.moved[0].len = 4,
            |p| p.moved.clear(),
            |p| p.moved[0].relocation = Relocation::Displacement(2),
            |p| p.moved[0].relocation = Relocation::Jump,
            |p| p.nr = 1,
        ];
        for (i, damage) in broken.iter().enumerate() {
            let mut findings = findings();
            damage(&mut findings.plans[0]);
            assert_eq!(decode(&encode(&key(), &findings), &key()), None, "damage {i}");
        }
        let mut overlapping = findings();
        overlapping.plans[1].start = 0x1001;
        assert_eq!(decode(&encode(&key(), &overlapping), &key()), None);
    }
}
