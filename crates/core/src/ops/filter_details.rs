//! What a filter of requests (`IORING_REGISTER_BPF_FILTER`) sees of an op beside what all have.
//! Source: `struct io_uring_bpf_ctx` of `<linux/io_uring/bpf_filter.h>`.

use super::fs::FsOp;
use super::net::NetOp;
use super::op::Op;
use uringlet_abi::Opcode;

/// 32-bit words.
pub(crate) type FilterDetails = [u32; 6];

/// Their size for an opcode, bytes.
pub(crate) fn filter_details_size(opcode: u8) -> u8 {
    match Opcode::from_u8(opcode) {
        Some(Opcode::Socket) => 12,
        Some(Opcode::Openat | Opcode::Openat2) => 24,
        _ => 0,
    }
}

/// SOCKET: family, type, protocol. OPENAT, OPENAT2: flags, mode, resolve, each of 64 bits.
pub(crate) fn filter_details(op: &Op) -> FilterDetails {
    let mut details = [0; 6];
    match op {
        Op::Net(net) => {
            if let NetOp::Socket(socket) = &**net {
                details[..3].copy_from_slice(&socket.filter_details());
            }
        }
        Op::Fs(fs) => {
            if let FsOp::Open(open) = &**fs {
                for (pair, value) in details.as_chunks_mut().0.iter_mut().zip(open.filter_details()) {
                    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
                    *pair = [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])];
                }
            }
        }
        _ => {}
    }
    details
}
