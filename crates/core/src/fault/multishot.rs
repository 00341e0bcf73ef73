//! Which SQEs ask for several results.

use uringlet_abi::{Opcode, Sqe, op_flags};

/// Whether an SQE asks for several results.
pub(super) fn is_multishot(opcode: Opcode, entry: &Sqe) -> bool {
    match opcode {
        Opcode::ReadMultishot => true,
        Opcode::Accept => entry.ioprio & op_flags::ACCEPT_MULTISHOT != 0,
        Opcode::Recv | Opcode::Recvmsg => entry.ioprio & op_flags::RECV_MULTISHOT != 0,
        Opcode::PollAdd => entry.len & op_flags::POLL_ADD_MULTI != 0,
        Opcode::Timeout => entry.op_flags & op_flags::TIMEOUT_MULTISHOT != 0,
        _ => false,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_opcode_without_the_flag_is_no_multishot() {
        let entry = Sqe { ioprio: op_flags::RECV_MULTISHOT, len: op_flags::POLL_ADD_MULTI, ..Sqe::default() };
        assert!(is_multishot(Opcode::Recv, &entry) && is_multishot(Opcode::PollAdd, &entry));
        assert!(!is_multishot(Opcode::Send, &entry) && !is_multishot(Opcode::Recv, &Sqe::default()));
    }
}
