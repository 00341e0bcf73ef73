//! What a ring may be used for (`IORING_REGISTER_RESTRICTIONS`): opcodes, SQE flags, register
//! operations. All else is refused once the ring is enabled.

use uringlet_abi::Opcode;
use uringlet_abi::register::{self as reg, Restriction};
use uringlet_sys::Errno;

/// See the module. The default allows nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restrictions {
    register_ops: u64,
    opcodes: u128,
    /// `IOSQE_*` that an SQE may have.
    allowed: u8,
    /// `IOSQE_*` that it must have.
    required: u8,
    /// It says something of opcodes or flags; of register operations.
    names_sqes: bool,
    names_register_ops: bool,
}

// A bit for each.
const _: () = assert!(reg::LAST < u64::BITS && (Opcode::LAST as u32) <= u128::BITS);

impl Restrictions {
    /// Adds one entry of the program's list.
    ///
    /// # Errors
    /// `EINVAL`: of no kind that is known, or an opcode or operation that is none.
    pub(crate) fn add(&mut self, entry: &Restriction) -> Result<(), Errno> {
        match entry.opcode {
            reg::RESTRICTION_REGISTER_OP if u32::from(entry.value) <= reg::LAST => self.register_ops |= 1 << entry.value,
            reg::RESTRICTION_SQE_OP if entry.value < Opcode::LAST => self.opcodes |= 1 << entry.value,
            reg::RESTRICTION_SQE_FLAGS_ALLOWED => self.allowed = entry.value,
            reg::RESTRICTION_SQE_FLAGS_REQUIRED => self.required = entry.value,
            _ => return Err(Errno::EINVAL),
        }
        let is_of_register = entry.opcode == reg::RESTRICTION_REGISTER_OP;
        self.names_register_ops |= is_of_register;
        self.names_sqes |= !is_of_register;
        Ok(())
    }

    /// Of requests and register operations, what the list says nothing of is unrestricted. An empty
    /// list forbids both.
    pub(crate) fn only_what_is_named(mut self) -> Self {
        if self.names_sqes && !self.names_register_ops {
            self.register_ops = u64::MAX;
        } else if self.names_register_ops && !self.names_sqes {
            (self.opcodes, self.allowed) = (u128::MAX, u8::MAX);
        }
        self
    }

    /// What it allows: register operations and opcodes, a bit each; `IOSQE_*` allowed and required.
    pub(crate) fn parts(&self) -> (u64, u128, u8, u8) {
        (self.register_ops, self.opcodes, self.allowed, self.required)
    }

    /// Of these [`parts`](Self::parts).
    pub(crate) fn of_parts((register_ops, opcodes, allowed, required): (u64, u128, u8, u8)) -> Self {
        Self { register_ops, opcodes, allowed, required, names_sqes: true, names_register_ops: true }
    }

    /// Whether an SQE with this opcode and these `IOSQE_*` may be submitted.
    pub(crate) fn allow_sqe(&self, opcode: u8, flags: u8) -> bool {
        let is_listed = opcode < Opcode::LAST && self.opcodes >> opcode & 1 != 0;
        is_listed && flags & self.required == self.required && flags & !(self.allowed | self.required) == 0
    }

    /// Whether this `IORING_REGISTER_*` may be called.
    pub(crate) fn allow_register(&self, opcode: u32) -> bool {
        opcode <= reg::LAST && self.register_ops >> opcode & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringlet_abi::sqe;

    fn of(entries: &[(u16, u8)]) -> Restrictions {
        let mut restrictions = Restrictions::default();
        for &(opcode, value) in entries {
            restrictions.add(&Restriction { opcode, value, ..Restriction::default() }).unwrap();
        }
        restrictions
    }

    #[test]
    fn an_empty_list_allows_nothing() {
        let none = Restrictions::default();
        assert!(!none.allow_sqe(Opcode::Nop as u8, 0) && !none.allow_register(reg::PROBE));
    }

    #[test]
    fn required_flags_are_allowed_and_the_last_list_of_flags_counts() {
        let nop = Opcode::Nop as u8;
        let both = of(&[
            (reg::RESTRICTION_SQE_OP, nop),
            (reg::RESTRICTION_SQE_FLAGS_ALLOWED, sqe::IO_LINK),
            (reg::RESTRICTION_SQE_FLAGS_ALLOWED, sqe::ASYNC),
            (reg::RESTRICTION_SQE_FLAGS_REQUIRED, sqe::FIXED_FILE),
        ]);
        assert!(both.allow_sqe(nop, sqe::FIXED_FILE) && both.allow_sqe(nop, sqe::FIXED_FILE | sqe::ASYNC));
        assert!(!both.allow_sqe(nop, 0) && !both.allow_sqe(nop, sqe::FIXED_FILE | sqe::IO_LINK));
        assert!(!both.allow_sqe(Opcode::Readv as u8, sqe::FIXED_FILE));
    }

    #[test]
    fn an_unknown_entry_is_refused() {
        for (opcode, value) in [(4, 0), (reg::RESTRICTION_SQE_OP, Opcode::LAST), (reg::RESTRICTION_REGISTER_OP, 200)] {
            let entry = Restriction { opcode, value, ..Restriction::default() };
            assert_eq!(Restrictions::default().add(&entry), Err(Errno::EINVAL));
        }
    }
}
