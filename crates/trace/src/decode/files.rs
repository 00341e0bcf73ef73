//! Reads and writes, and what else concerns files.

use uringlet_abi::Opcode;
use uringlet_sys::trace::argument;

use super::Decoder;
use crate::flags;
use crate::value::{ArgValue, RequestArg};

impl Decoder<'_> {
    pub(super) fn transfer(&self, opcode: Opcode) -> Vec<RequestArg> {
        let entry = self.sqe();
        let is_write = matches!(opcode, Opcode::Write | Opcode::WriteFixed);
        let buffer = if is_write { self.buffer(entry.addr) } else { self.result(entry.addr) };
        let mut args = vec![self.file(), buffer, Self::number("len", entry.len.into()), Self::offset("off", entry.off)];
        self.transfer_options(opcode, &mut args);
        args
    }

    pub(super) fn vector(&self, opcode: Opcode) -> Vec<RequestArg> {
        let entry = self.sqe();
        let is_write = matches!(opcode, Opcode::Writev | Opcode::WritevFixed);
        let mut args = vec![
            self.file(),
            RequestArg::new("iov", self.iovecs(is_write, entry.addr)),
            Self::number("nr", entry.len.into()),
            Self::offset("off", entry.off),
        ];
        self.transfer_options(opcode, &mut args);
        args
    }

    fn transfer_options(&self, opcode: Opcode, args: &mut Vec<RequestArg>) {
        let entry = self.sqe();
        if matches!(opcode, Opcode::ReadFixed | Opcode::WriteFixed | Opcode::ReadvFixed | Opcode::WritevFixed) {
            args.push(RequestArg::named("buf_index", ArgValue::number(entry.buf_index)));
        }
        self.buffer_group(args);
        Self::named_bits(args, "rw_flags", entry.op_flags, flags::RWF);
        Self::named_number(args, "ioprio", entry.ioprio.into());
    }

    /// The array of iovecs at an address, with the bytes that were written, or read into them.
    pub(super) fn iovecs(&self, is_write: bool, address: u64) -> ArgValue {
        let Some(data) = self.data(argument::IOVECS) else { return ArgValue::Address(address) };
        let moved = if is_write { self.data(argument::BUFFER) } else { self.shown.and_then(|shown| shown.result.as_ref()) };
        let (mut bytes, mut total) = moved.map_or((&[][..], 0), |moved| (&moved.bytes[..], moved.total));
        let pair = |pair: &[u8]| {
            let word = |at: usize| pair.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes);
            let (base, len) = (word(0), word(8));
            let (beginning, behind) = bytes.split_at(bytes.len().min(usize::try_from(len).unwrap_or(usize::MAX)));
            let here = len.min(total);
            (bytes, total) = (behind, total - here);
            let base =
                if beginning.is_empty() { ArgValue::Address(base) } else { ArgValue::Bytes { beginning: beginning.to_vec(), total: here } };
            ArgValue::Struct(vec![RequestArg::new("iov_base", base), RequestArg::new("iov_len", ArgValue::unsigned(len))])
        };
        let mut list: Vec<ArgValue> = data.bytes.chunks_exact(16).map(pair).collect();
        if (list.len() as u64) < data.total {
            list.push(ArgValue::Word("...".to_owned()));
        }
        ArgValue::List(list)
    }

    pub(super) fn read_multishot(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let mut args = vec![self.file(), self.result(entry.addr), Self::number("len", entry.len.into()), Self::offset("off", entry.off)];
        self.buffer_group(&mut args);
        args
    }

    pub(super) fn fsync(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let mut args = vec![self.file()];
        Self::named_bits(&mut args, "flags", entry.op_flags, flags::FSYNC);
        Self::named_number(&mut args, "off", entry.off);
        Self::named_number(&mut args, "len", entry.len.into());
        args
    }

    pub(super) fn sync_file_range(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        vec![
            self.file(),
            Self::number("off", entry.off),
            Self::number("len", entry.len.into()),
            self.bits("flags", entry.op_flags, flags::SYNC_RANGE),
        ]
    }

    pub(super) fn fallocate(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        vec![self.file(), self.bits("mode", entry.len, flags::FALLOCATE), Self::number("off", entry.off), Self::number("len", entry.addr)]
    }

    pub(super) fn fadvise(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let len = if entry.addr == 0 { entry.len.into() } else { entry.addr };
        let advice = ArgValue::Word(flags::one(entry.op_flags.into(), flags::FADVISE));
        vec![self.file(), Self::number("off", entry.off), Self::number("len", len), RequestArg::new("advice", advice)]
    }

    pub(super) fn madvise(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let len = if entry.off == 0 { entry.len.into() } else { entry.off };
        let advice = ArgValue::Word(flags::one(entry.op_flags.into(), flags::MADVISE));
        vec![RequestArg::new("addr", ArgValue::Address(entry.addr)), Self::number("len", len), RequestArg::new("advice", advice)]
    }

    /// The input of SPLICE and TEE, and whether it is a registered file.
    fn pipe_input(&self) -> RequestArg {
        let is_registered = self.sqe().op_flags & uringlet_abi::op_flags::SPLICE_F_FD_IN_FIXED != 0;
        self.other_file("fd_in", self.sqe().splice_fd_in, is_registered)
    }

    fn splice_flags(&self, args: &mut Vec<RequestArg>) {
        Self::named_bits(args, "flags", self.sqe().op_flags & !uringlet_abi::op_flags::SPLICE_F_FD_IN_FIXED, flags::SPLICE);
    }

    pub(super) fn splice(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let mut output = self.file();
        output.name = "fd_out";
        let mut args = vec![
            self.pipe_input(),
            Self::offset("off_in", entry.addr),
            output,
            Self::offset("off_out", entry.off),
            Self::number("len", entry.len.into()),
        ];
        self.splice_flags(&mut args);
        args
    }

    pub(super) fn tee(&self) -> Vec<RequestArg> {
        let mut output = self.file();
        output.name = "fd_out";
        let mut args = vec![self.pipe_input(), output, Self::number("len", self.sqe().len.into())];
        self.splice_flags(&mut args);
        args
    }

    pub(super) fn openat(&self) -> Vec<RequestArg> {
        /// `O_CREAT`, and `O_TMPFILE` without `O_DIRECTORY`.
        const CREATES: u32 = 0o100 | 0o20_000_000;
        let entry = self.sqe();
        let mut args = vec![
            self.directory("dfd", entry.fd),
            self.text_at("path", argument::PATH, entry.addr),
            RequestArg::new("flags", ArgValue::Flags(flags::open(entry.op_flags.into()))),
        ];
        if entry.op_flags & CREATES != 0 {
            args.push(RequestArg::new("mode", ArgValue::Mode(entry.len)));
        }
        self.slot(&mut args);
        args
    }

    pub(super) fn openat2(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let how = match (self.word(0), self.word(8), self.word(16)) {
            (Some(open), Some(mode), Some(resolve)) => ArgValue::Struct(vec![
                RequestArg::new("flags", ArgValue::Flags(flags::open(open))),
                RequestArg::new("mode", ArgValue::Mode(mode as u32)),
                RequestArg::new("resolve", ArgValue::Flags(flags::names(resolve, flags::RESOLVE))),
            ]),
            _ => ArgValue::Address(entry.off),
        };
        let path = self.text_at("path", argument::PATH, entry.addr);
        let mut args = vec![self.directory("dfd", entry.fd), path, RequestArg::new("how", how), Self::number("size", entry.len.into())];
        self.slot(&mut args);
        args
    }

    pub(super) fn close(&self) -> Vec<RequestArg> {
        let mut args = Vec::new();
        self.slot(&mut args);
        if args.is_empty() {
            args.push(self.file());
        }
        args
    }

    pub(super) fn statx(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        vec![
            self.directory("dfd", entry.fd),
            self.text_at("path", argument::PATH, entry.addr),
            self.bits("flags", entry.op_flags, flags::AT),
            self.bits("mask", entry.len, flags::STATX),
            RequestArg::new("statxbuf", ArgValue::Address(entry.off)),
        ]
    }

    pub(super) fn two_paths(&self, table: &'static [(u64, &'static str)]) -> Vec<RequestArg> {
        let entry = self.sqe();
        vec![
            self.directory("olddfd", entry.fd),
            self.text_at("oldpath", argument::PATH, entry.addr),
            self.directory("newdfd", entry.len.cast_signed()),
            self.text_at("newpath", argument::SECOND, entry.addr2()),
            self.bits("flags", entry.op_flags, table),
        ]
    }

    pub(super) fn symlinkat(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        vec![
            self.text_at("target", argument::PATH, entry.addr),
            self.directory("newdfd", entry.fd),
            self.text_at("linkpath", argument::SECOND, entry.addr2()),
        ]
    }

    pub(super) fn unlinkat(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let path = self.text_at("path", argument::PATH, entry.addr);
        vec![self.directory("dfd", entry.fd), path, self.bits("flags", entry.op_flags, flags::UNLINK)]
    }

    pub(super) fn mkdirat(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let path = self.text_at("path", argument::PATH, entry.addr);
        vec![self.directory("dfd", entry.fd), path, RequestArg::new("mode", ArgValue::Mode(entry.len))]
    }

    pub(super) fn xattr(&self, has_path: bool, sets: bool) -> Vec<RequestArg> {
        let entry = self.sqe();
        let file = if has_path { self.text_at("path", argument::PATH, entry.addr3) } else { self.file() };
        let mut value = self.buffer(entry.off);
        value.name = "value";
        let mut args = vec![file, self.text_at("name", argument::SECOND, entry.addr), value, Self::number("len", entry.len.into())];
        if sets {
            args.push(self.bits("flags", entry.op_flags, flags::XATTR));
        }
        args
    }

    pub(super) fn pipe(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        let made = ArgValue::Flags(flags::names(entry.op_flags, flags::OPEN));
        let mut args = vec![RequestArg::new("fds", ArgValue::Address(entry.addr)), RequestArg::new("flags", made)];
        self.slot(&mut args);
        args
    }
}
