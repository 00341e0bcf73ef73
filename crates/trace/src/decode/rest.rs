//! Polls, timers, futexes, commands, and the ring's own requests.

use uringlet_abi::{op_flags, uring_cmd};
use uringlet_sys::trace::argument;

use super::Decoder;
use crate::flags;
use crate::value::{ArgValue, RequestArg};

/// `IORING_MSG_DATA`, `IORING_MSG_SEND_FD`
const MESSAGES: &[(u64, &str)] = &[(0, "IORING_MSG_DATA"), (1, "IORING_MSG_SEND_FD")];
const SOCKET_COMMANDS: &[(u64, &str)] = &[
    (uring_cmd::SIOCINQ as u64, "SOCKET_URING_OP_SIOCINQ"),
    (uring_cmd::SIOCOUTQ as u64, "SOCKET_URING_OP_SIOCOUTQ"),
    (uring_cmd::GETSOCKOPT as u64, "SOCKET_URING_OP_GETSOCKOPT"),
    (uring_cmd::SETSOCKOPT as u64, "SOCKET_URING_OP_SETSOCKOPT"),
    (uring_cmd::TX_TIMESTAMP as u64, "SOCKET_URING_OP_TX_TIMESTAMP"),
    (uring_cmd::GETSOCKNAME as u64, "SOCKET_URING_OP_GETSOCKNAME"),
    (uring_cmd::BLOCK_DISCARD as u64, "BLOCK_URING_CMD_DISCARD"),
];

impl Decoder<'_> {
    pub(super) fn nop(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let mut args = Vec::new();
        Self::named_bits(&mut args, "flags", entry.op_flags, flags::NOP);
        if entry.op_flags & op_flags::NOP_INJECT_RESULT != 0 {
            args.push(RequestArg::named("result", ArgValue::number(entry.len.cast_signed())));
        }
        if entry.op_flags & op_flags::NOP_FILE != 0 {
            args.push(self.file());
        }
        args
    }

    pub(super) fn poll_add(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let mut args = vec![self.file(), self.bits("events", entry.op_flags, flags::EVENTS)];
        Self::named_bits(&mut args, "flags", entry.len, flags::POLL);
        args
    }

    pub(super) fn poll_remove(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let mut args = vec![RequestArg::named("user_data", ArgValue::Address(entry.addr))];
        if entry.len & op_flags::POLL_UPDATE_EVENTS != 0 {
            args.push(self.bits("events", entry.op_flags, flags::EVENTS));
        }
        if entry.len & op_flags::POLL_UPDATE_USER_DATA != 0 {
            args.push(RequestArg::named("new_user_data", ArgValue::Address(entry.off)));
        }
        Self::named_bits(&mut args, "flags", entry.len, flags::POLL);
        args
    }

    pub(super) fn epoll_ctl(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let operation = ArgValue::Word(flags::one(entry.len.into(), flags::EPOLL_CTL));
        let mut args =
            vec![self.file(), RequestArg::new("op", operation), self.other_file("target", (entry.off as u32).cast_signed(), false)];
        let event = self.half(0).zip(self.half(4).zip(self.half(8)));
        let event = event.map_or(ArgValue::Address(entry.addr), |(events, (low, high))| {
            let data = u64::from(low) | u64::from(high) << 32;
            ArgValue::Struct(vec![
                RequestArg::new("events", ArgValue::Flags(flags::names(events, flags::EVENTS))),
                RequestArg::new("data", ArgValue::Address(data)),
            ])
        });
        args.push(RequestArg::new("event", event));
        args
    }

    pub(super) fn epoll_wait(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        vec![self.file(), RequestArg::new("events", ArgValue::Address(entry.addr)), Self::number("maxevents", entry.len.into())]
    }

    /// The time of a timer: in its SQE, or in a structure.
    fn time(&self, immediate: u64, at: u64) -> RequestArg {
        let is_immediate = self.sqe().op_flags & op_flags::TIMEOUT_IMMEDIATE_ARG != 0;
        let time = match (is_immediate, self.word(0), self.word(8)) {
            (true, ..) => ArgValue::Word(format!("{}.{:09} s", immediate / 1_000_000_000, immediate % 1_000_000_000)),
            (false, Some(seconds), Some(nanoseconds)) => ArgValue::Word(format!("{}.{nanoseconds:09} s", seconds.cast_signed())),
            _ => ArgValue::Address(at),
        };
        RequestArg::new("ts", time)
    }

    pub(super) fn timeout(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let mut args = vec![self.time(entry.addr, entry.addr), RequestArg::named("count", ArgValue::unsigned(entry.off))];
        Self::named_bits(&mut args, "flags", entry.op_flags, flags::TIMEOUT);
        args
    }

    pub(super) fn timeout_remove(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let mut args = vec![RequestArg::named("user_data", ArgValue::Address(entry.addr))];
        if entry.op_flags & op_flags::TIMEOUT_UPDATE_MASK != 0 {
            args.push(self.time(entry.addr2(), entry.addr2()));
        }
        Self::named_bits(&mut args, "flags", entry.op_flags, flags::TIMEOUT);
        args
    }

    pub(super) fn link_timeout(&self) -> Vec<RequestArg> {
        let mut args = vec![self.time(self.sqe().addr, self.sqe().addr)];
        Self::named_bits(&mut args, "flags", self.sqe().op_flags, flags::TIMEOUT);
        args
    }

    pub(super) fn async_cancel(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let has = |flag: u32| entry.op_flags & flag != 0;
        let mut args = Vec::new();
        if has(op_flags::CANCEL_FD) {
            args.push(self.other_file("fd", entry.fd, has(op_flags::CANCEL_FD_FIXED)));
        }
        if has(op_flags::CANCEL_OP) {
            let opcode = u8::try_from(entry.len).ok().and_then(uringlet_abi::Opcode::from_u8);
            args.push(RequestArg::named(
                "op",
                opcode.map_or(ArgValue::number(entry.len), |opcode| ArgValue::Word(opcode.name().to_owned())),
            ));
        }
        if has(op_flags::CANCEL_USERDATA) || !has(op_flags::CANCEL_FD | op_flags::CANCEL_OP | op_flags::CANCEL_ANY) {
            args.push(RequestArg::named("user_data", ArgValue::Address(entry.addr)));
        }
        Self::named_bits(&mut args, "flags", entry.op_flags, flags::CANCEL);
        args
    }

    pub(super) fn files_update(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let numbers = self.data(argument::STRUCT).map(|data| {
            let number = |bytes: &[u8]| ArgValue::number(i32::from_le_bytes(bytes.try_into().unwrap_or_default()));
            ArgValue::List(data.bytes.chunks_exact(4).map(number).collect())
        });
        vec![
            RequestArg::new("fds", numbers.unwrap_or(ArgValue::Address(entry.addr))),
            Self::number("nr", entry.len.into()),
            RequestArg::named("off", ArgValue::unsigned(entry.off)),
        ]
    }

    pub(super) fn provide_buffers(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        vec![
            RequestArg::new("addr", ArgValue::Address(entry.addr)),
            Self::number("len", entry.len.into()),
            RequestArg::named("nr", ArgValue::number(entry.fd)),
            RequestArg::named("bgid", ArgValue::number(entry.buf_index)),
            RequestArg::named("bid", ArgValue::unsigned(entry.off)),
        ]
    }

    pub(super) fn remove_buffers(&self) -> Vec<RequestArg> {
        vec![RequestArg::named("nr", ArgValue::number(self.sqe().fd)), RequestArg::named("bgid", ArgValue::number(self.sqe().buf_index))]
    }

    pub(super) fn msg_ring(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let mut args = vec![
            self.file(),
            RequestArg::new("cmd", ArgValue::Word(flags::one(entry.addr, MESSAGES))),
            RequestArg::named("data", ArgValue::Address(entry.off)),
        ];
        if entry.addr == 0 {
            args.push(RequestArg::named("res", ArgValue::number(entry.len.cast_signed())));
        } else {
            args.push(RequestArg::named("from", ArgValue::unsigned(entry.addr3)));
            self.slot(&mut args);
        }
        Self::named_bits(&mut args, "flags", entry.op_flags, flags::MSG_RING);
        args
    }

    pub(super) fn uring_cmd(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let operation = entry.off as u32;
        let is_socket = self.submission.path().is_some_and(|path| path.starts_with("socket:"));
        let known = if is_socket || u64::from(operation) == u64::from(uring_cmd::BLOCK_DISCARD) { SOCKET_COMMANDS } else { &[] };
        let command = known.iter().find(|(number, _)| *number == u64::from(operation));
        let command = command.map_or_else(|| format!("{operation:#x}"), |(_, name)| (*name).to_owned());
        let mut args = vec![self.file(), RequestArg::new("cmd_op", ArgValue::Word(command))];
        Self::named_bits(&mut args, "flags", entry.op_flags, flags::URING_CMD);
        if entry.addr != 0 {
            args.push(RequestArg::named("addr", ArgValue::Address(entry.addr)));
        }
        Self::named_number(&mut args, "len", entry.len.into());
        args
    }

    pub(super) fn waitid(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        vec![
            RequestArg::new("which", ArgValue::Word(flags::one(entry.len.into(), flags::ID_TYPE))),
            RequestArg::new("id", ArgValue::number(entry.fd)),
            RequestArg::new("infop", ArgValue::Address(entry.addr2())),
            self.bits("options", entry.file_index(), flags::WAIT),
        ]
    }

    /// FUTEX_WAIT and FUTEX_WAKE.
    pub(super) fn futex(&self, second: &'static str) -> Vec<RequestArg> {
        let entry = self.sqe();
        vec![
            RequestArg::new("uaddr", ArgValue::Address(entry.addr)),
            RequestArg::named(second, ArgValue::unsigned(entry.addr2())),
            RequestArg::named("mask", ArgValue::Address(entry.addr3)),
            self.bits("flags", entry.fd.cast_unsigned(), flags::FUTEX),
        ]
    }

    pub(super) fn futex_waitv(&self) -> Vec<RequestArg> {
        const WAITER: usize = 24;
        let entry = self.sqe();
        let count = self.data(argument::STRUCT).map_or(0, |data| data.bytes.len() / WAITER);
        let waiter = |n: usize| {
            let (at, none) = (n * WAITER, 0);
            ArgValue::Struct(vec![
                RequestArg::new("val", ArgValue::unsigned(self.word(at).unwrap_or(none))),
                RequestArg::new("uaddr", ArgValue::Address(self.word(at + 8).unwrap_or(none))),
                RequestArg::new("flags", ArgValue::Flags(flags::names(self.half(at + 16).unwrap_or(0), flags::FUTEX))),
            ])
        };
        let waiters = if count == 0 { ArgValue::Address(entry.addr) } else { ArgValue::List((0..count).map(waiter).collect()) };
        vec![RequestArg::new("waiters", waiters), Self::number("nr", entry.len.into())]
    }
}
