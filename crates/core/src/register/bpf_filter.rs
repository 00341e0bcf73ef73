//! `IORING_REGISTER_BPF_FILTER`: of a ring, or of all rings that are made later.
//! Source: `io_uring_register_bpf_filter(3)`; behaviour of Linux 7.0 (not its code).

use crate::cbpf::{BpfProgram, Instruction, MAX_INSTRUCTIONS};
use crate::ops::filter_details_size;
use crate::state::{Filter, Filters};
use alloc::vec;
use uringlet_abi::Opcode;
use uringlet_abi::register::{self as reg, BpfFilterReg};
use uringlet_sys::{Errno, UserPtr, user};

/// A filter that a program registers.
pub(super) struct NewFilter {
    opcode: u8,
    filter: Filter,
    denies_rest: bool,
}

impl NewFilter {
    /// Reads it, and writes back how many bytes of details this engine has for its opcode.
    ///
    /// # Errors
    /// `EINVAL` malformed; `EFAULT`; `EMSGSIZE` it expects more details, or with `SZ_STRICT` not as
    /// many.
    pub(super) fn read(arg: UserPtr, n: u32) -> Result<Self, Errno> {
        if n != 1 {
            return Err(Errno::EINVAL);
        }
        let mut spec: BpfFilterReg = user::read(arg)?;
        check(&spec)?;
        let opcode = u8::try_from(spec.opcode).map_err(|_| Errno::EINVAL)?;
        let size = filter_details_size(opcode);
        let expected = core::mem::replace(&mut spec.pdu_size, size);
        user::write(arg, &spec)?;
        let is_strict = spec.flags & reg::BPF_FILTER_SZ_STRICT != 0;
        if expected > size || (is_strict && expected != size) {
            return Err(Errno::EMSGSIZE);
        }
        let mut code = vec![Instruction::default(); spec.filter_len as usize];
        for (at, instruction) in code.iter_mut().enumerate() {
            let bits: u64 = user::read(UserPtr::at(spec.filter_ptr).add(at * size_of::<u64>()))?;
            *instruction = Instruction::from_bits(bits);
        }
        let denies_rest = spec.flags & reg::BPF_FILTER_DENY_REST != 0;
        Ok(Self { opcode, filter: BpfProgram::new(code)?, denies_rest })
    }

    pub(super) fn add_to(self, filters: &mut Filters) {
        filters.add(self.opcode, self.filter, self.denies_rest);
    }
}

fn check(spec: &BpfFilterReg) -> Result<(), Errno> {
    let is_valid = spec.cmd_type == reg::BPF_CMD_FILTER
        && spec.cmd_flags == 0
        && spec.resv == 0
        && spec.opcode < u32::from(Opcode::LAST)
        && spec.flags & !(reg::BPF_FILTER_DENY_REST | reg::BPF_FILTER_SZ_STRICT) == 0
        && spec.filter_resv == [0; 3]
        && spec.resv2 == [0; 5]
        && (1..=MAX_INSTRUCTIONS).contains(&(spec.filter_len as usize))
        && spec.filter_ptr != 0;
    if is_valid { Ok(()) } else { Err(Errno::EINVAL) }
}
