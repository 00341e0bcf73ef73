//! Sockets.

use uringlet_sys::trace::argument;

use super::{Decoder, address};
use crate::flags;
use crate::value::{ArgValue, RequestArg};

impl Decoder<'_> {
    pub(super) fn send(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let is_vector = self.data(argument::IOVECS).is_some();
        let buffer = if is_vector { RequestArg::new("iov", self.iovecs(true, entry.addr)) } else { self.buffer(entry.addr) };
        let mut args = vec![self.file(), buffer, Self::number("len", entry.len.into()), self.bits("flags", entry.op_flags, flags::MSG)];
        if let Some(data) = self.data(argument::ADDRESS) {
            args.push(RequestArg::new("addr", ArgValue::Word(address::text(&data.bytes))));
        }
        self.net_options(&mut args, flags::SEND);
        args
    }

    pub(super) fn recv(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let mut args = vec![
            self.file(),
            self.result(entry.addr),
            Self::number("len", entry.len.into()),
            self.bits("flags", entry.op_flags, flags::MSG),
        ];
        self.net_options(&mut args, flags::RECV);
        args
    }

    fn net_options(&self, args: &mut Vec<RequestArg>, table: &'static [(u64, &'static str)]) {
        Self::named_bits(args, "ioprio", self.sqe().ioprio, table);
        self.buffer_group(args);
        if self.sqe().ioprio & uringlet_abi::op_flags::RECVSEND_FIXED_BUF != 0 {
            args.push(RequestArg::named("buf_index", ArgValue::number(self.sqe().buf_index)));
        }
    }

    pub(super) fn message(&self, table: &'static [(u64, &'static str)]) -> Vec<RequestArg> {
        let entry = self.sqe();
        let is_send = self.submission.opcode() != Some(uringlet_abi::Opcode::Recvmsg);
        let to = self.data(argument::ADDRESS).map(|data| ArgValue::Word(address::text(&data.bytes)));
        let header = match (self.word(0), self.half(8), self.word(16), self.word(24), self.word(40)) {
            (Some(name), Some(name_len), Some(iov), Some(iov_len), Some(control_len)) => ArgValue::Struct(vec![
                RequestArg::new("msg_name", to.unwrap_or(ArgValue::Address(name))),
                RequestArg::new("msg_namelen", ArgValue::number(name_len)),
                RequestArg::new("msg_iov", self.iovecs(is_send, iov)),
                RequestArg::new("msg_iovlen", ArgValue::unsigned(iov_len)),
                RequestArg::new("msg_controllen", ArgValue::unsigned(control_len)),
            ]),
            _ => ArgValue::Address(entry.addr),
        };
        let mut args = vec![self.file(), RequestArg::new("msg", header), self.bits("flags", entry.op_flags, flags::MSG)];
        self.net_options(&mut args, table);
        args
    }

    pub(super) fn recv_zc(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let instance = RequestArg::named("zcrx_ifq_idx", ArgValue::number(entry.file_index()));
        let mut args = vec![self.file(), Self::number("len", entry.len.into()), instance];
        Self::named_bits(&mut args, "ioprio", entry.ioprio, flags::RECV);
        args
    }

    pub(super) fn accept(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let mut args = vec![
            self.file(),
            RequestArg::new("addr", ArgValue::Address(entry.addr)),
            RequestArg::new("addrlen", ArgValue::Address(entry.addr2())),
            self.bits("flags", entry.op_flags, flags::SOCK),
        ];
        Self::named_bits(&mut args, "ioprio", entry.ioprio, flags::ACCEPT);
        self.slot(&mut args);
        args
    }

    /// CONNECT and BIND.
    pub(super) fn addressed(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let data = self.data(argument::ADDRESS);
        let name = data.map_or(ArgValue::Address(entry.addr), |data| ArgValue::Word(address::text(&data.bytes)));
        vec![self.file(), RequestArg::new("addr", name), Self::number("addrlen", entry.off)]
    }

    pub(super) fn socket(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let options = entry.off & 0x8_0800;
        let mut kind = flags::one(entry.off & !options, flags::SOCKET_TYPE);
        if options != 0 {
            kind = format!("{kind}|{}", flags::names(options, flags::SOCK));
        }
        let domain = flags::one(entry.fd.cast_unsigned().into(), flags::DOMAIN);
        let mut args = vec![
            RequestArg::new("domain", ArgValue::Word(domain)),
            RequestArg::new("type", ArgValue::Flags(kind)),
            Self::number("protocol", entry.len.into()),
        ];
        self.slot(&mut args);
        args
    }
}
