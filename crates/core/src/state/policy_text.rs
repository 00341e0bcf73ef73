//! A task's policy as text: the value of the variable by which execve(2) hands it on.
//!
//! Items with a space between, numbers in hexadecimal:
//! `r:REGISTER_OPS:OPCODES:ALLOWED:REQUIRED` restrictions; `d:OPCODES` denied for want of a filter;
//! `f:OPCODE:INSTRUCTION:...` a filter, each instruction as the 64 bits of `struct sock_filter`.

use super::{Filters, Restrictions};
use crate::cbpf::{BpfProgram, Instruction};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// Restrictions and filters of a task.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskPolicy {
    pub(crate) restrictions: Option<Restrictions>,
    pub(crate) filters: Filters,
}

/// Writes what [`read`] reads.
pub(super) fn write(policy: &TaskPolicy, text: &mut String) {
    // Writing to a string cannot fail.
    let mut put = |item: core::fmt::Arguments<'_>| _ = text.write_fmt(item);
    if let Some(restrictions) = &policy.restrictions {
        let (register_ops, opcodes, allowed, required) = restrictions.parts();
        put(format_args!("r:{register_ops:x}:{opcodes:x}:{allowed:x}:{required:x} "));
    }
    let (filters, denied) = policy.filters.parts();
    for (opcode, filter) in filters {
        put(format_args!("f:{opcode:x}"));
        filter.code().iter().for_each(|instruction| put(format_args!(":{:x}", instruction.to_bits())));
        put(format_args!(" "));
    }
    put(format_args!("d:{denied:x}"));
}

/// `None`: it is damaged.
pub(super) fn read(text: &[u8]) -> Option<TaskPolicy> {
    let mut policy = TaskPolicy::default();
    for item in core::str::from_utf8(text).ok()?.split(' ') {
        let (kind, values) = item.split_once(':')?;
        let values: Option<Vec<u128>> = values.split(':').map(|value| u128::from_str_radix(value, 16).ok()).collect();
        let values = values?;
        match (kind, values.as_slice()) {
            ("r", &[register_ops, opcodes, allowed, required]) => {
                let parts = (register_ops.try_into().ok()?, opcodes, allowed.try_into().ok()?, required.try_into().ok()?);
                policy.restrictions = Some(Restrictions::of_parts(parts));
            }
            ("f", [opcode, code @ ..]) => add_filter(&mut policy.filters, *opcode, code)?,
            ("d", &[denied]) => policy.filters.deny(denied),
            _ => return None,
        }
    }
    Some(policy)
}

fn add_filter(filters: &mut Filters, opcode: u128, code: &[u128]) -> Option<()> {
    let code: Option<Vec<Instruction>> = code.iter().map(|&bits| Some(Instruction::from_bits(bits.try_into().ok()?))).collect();
    filters.add(opcode.try_into().ok()?, BpfProgram::new(code?).ok()?, false);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::FilterContext;

    fn text_of(policy: &TaskPolicy) -> String {
        let mut text = String::new();
        write(policy, &mut text);
        text
    }

    #[test]
    fn a_policy_is_read_as_it_was_written() {
        let mut policy = TaskPolicy::default();
        assert_eq!(text_of(&policy), "d:0");
        let returns = |value| BpfProgram::new(alloc::vec![Instruction { code: 6, k: value, ..Instruction::default() }]).unwrap();
        policy.filters.add(0, returns(1), true);
        policy.filters.add(3, returns(0), false);
        policy.restrictions = Some(Restrictions::of_parts((u64::MAX, 9, 1, 16)));
        let text = text_of(&policy);
        let back = read(text.as_bytes()).unwrap();
        assert_eq!(text_of(&back), text);
        assert!(back.filters.allow(0, FilterContext::default));
        assert!(!back.filters.allow(3, FilterContext::default) && !back.filters.allow(2, FilterContext::default));
        let restrictions = back.restrictions.unwrap();
        assert!(restrictions.allow_sqe(3, 17) && !restrictions.allow_sqe(2, 17) && !restrictions.allow_sqe(3, 1));
    }

    #[test]
    fn damaged_text_is_refused() {
        for text in ["", "d", "d:", "d:g", "x:0", "r:0:0:0", "r:0:0:100:0", "f:0", "f:0:1", "f:100:600000000", "d:0 ", "\u{e9}"] {
            assert!(read(text.as_bytes()).is_none(), "{text}");
        }
    }
}
