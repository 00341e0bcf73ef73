//! The arguments of each opcode. One that has no line in [`arguments`] does not compile.

mod address;
mod files;
mod net;
mod rest;

use uringlet_abi::{Opcode, Sqe, sqe};
use uringlet_sys::trace::argument;

use crate::flags;
use crate::request::{CqeShown, Data, SubmittedRequest};
use crate::value::{AT_FDCWD, ArgValue, RequestArg};

/// A request whose arguments are decoded, and its result as far as it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'s> {
    pub(crate) submission: &'s SubmittedRequest,
    pub(crate) shown: Option<&'s CqeShown>,
}

/// The arguments of a request.
pub(crate) fn arguments(submission: &SubmittedRequest, shown: Option<&CqeShown>) -> Vec<RequestArg> {
    let d = Decoder { submission, shown };
    let Some(opcode) = submission.opcode() else { return d.unknown() };
    match opcode {
        Opcode::Nop | Opcode::Nop128 => d.nop(),
        Opcode::Read | Opcode::ReadFixed | Opcode::Write | Opcode::WriteFixed => d.transfer(opcode),
        Opcode::Readv | Opcode::Writev | Opcode::ReadvFixed | Opcode::WritevFixed => d.vector(opcode),
        Opcode::ReadMultishot => d.read_multishot(),
        Opcode::Fsync => d.fsync(),
        Opcode::SyncFileRange => d.sync_file_range(),
        Opcode::Fallocate => d.fallocate(),
        Opcode::Fadvise => d.fadvise(),
        Opcode::Madvise => d.madvise(),
        Opcode::Ftruncate => vec![d.file(), RequestArg::new("length", ArgValue::unsigned(d.sqe().off))],
        Opcode::Splice => d.splice(),
        Opcode::Tee => d.tee(),
        Opcode::Openat => d.openat(),
        Opcode::Openat2 => d.openat2(),
        Opcode::Close => d.close(),
        Opcode::Statx => d.statx(),
        Opcode::Renameat => d.two_paths(flags::RENAME),
        Opcode::Linkat => d.two_paths(flags::AT),
        Opcode::Symlinkat => d.symlinkat(),
        Opcode::Unlinkat => d.unlinkat(),
        Opcode::Mkdirat => d.mkdirat(),
        Opcode::Setxattr => d.xattr(true, true),
        Opcode::Getxattr => d.xattr(true, false),
        Opcode::Fsetxattr => d.xattr(false, true),
        Opcode::Fgetxattr => d.xattr(false, false),
        Opcode::FixedFdInstall => vec![d.file(), d.bits("flags", d.sqe().op_flags, flags::FIXED_FD)],
        Opcode::Pipe => d.pipe(),
        Opcode::Send | Opcode::SendZc => d.send(),
        Opcode::Recv => d.recv(),
        Opcode::Sendmsg | Opcode::SendmsgZc => d.message(flags::SEND),
        Opcode::Recvmsg => d.message(flags::RECV),
        Opcode::RecvZc => d.recv_zc(),
        Opcode::Accept => d.accept(),
        Opcode::Connect | Opcode::Bind => d.addressed(),
        Opcode::Listen => vec![d.file(), RequestArg::new("backlog", ArgValue::number(d.sqe().len))],
        Opcode::Shutdown => vec![d.file(), RequestArg::new("how", ArgValue::Word(flags::one(d.sqe().len.into(), flags::SHUTDOWN)))],
        Opcode::Socket => d.socket(),
        Opcode::PollAdd => d.poll_add(),
        Opcode::PollRemove => d.poll_remove(),
        Opcode::EpollCtl => d.epoll_ctl(),
        Opcode::EpollWait => d.epoll_wait(),
        Opcode::Timeout => d.timeout(),
        Opcode::TimeoutRemove => d.timeout_remove(),
        Opcode::LinkTimeout => d.link_timeout(),
        Opcode::AsyncCancel => d.async_cancel(),
        Opcode::FilesUpdate => d.files_update(),
        Opcode::ProvideBuffers => d.provide_buffers(),
        Opcode::RemoveBuffers => d.remove_buffers(),
        Opcode::MsgRing => d.msg_ring(),
        Opcode::UringCmd | Opcode::UringCmd128 => d.uring_cmd(),
        Opcode::Waitid => d.waitid(),
        Opcode::FutexWait => d.futex("val"),
        Opcode::FutexWake => d.futex("nr"),
        Opcode::FutexWaitv => d.futex_waitv(),
    }
}

impl Decoder<'_> {
    fn sqe(&self) -> &Sqe {
        &self.submission.sqe
    }

    fn data(&self, argument: u16) -> Option<&Data> {
        self.submission.data.get(&argument)
    }

    /// The value that the numbers of a structure of the program's have: `None`, it was not read.
    fn word(&self, at: usize) -> Option<u64> {
        let bytes = self.data(argument::STRUCT)?.bytes.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn half(&self, at: usize) -> Option<u32> {
        let bytes = self.data(argument::STRUCT)?.bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// The request's file.
    fn file(&self) -> RequestArg {
        let is_registered = self.sqe().flags & sqe::FIXED_FILE != 0;
        let path = self.submission.path().map(str::to_owned);
        RequestArg::new("fd", ArgValue::File { number: self.sqe().fd, is_registered, path })
    }

    /// A descriptor that is not the request's file.
    fn other_file(&self, name: &'static str, number: i32, is_registered: bool) -> RequestArg {
        let path = if is_registered { None } else { self.path_of(number) };
        RequestArg::new(name, ArgValue::File { number, is_registered, path })
    }

    fn path_of(&self, number: i32) -> Option<String> {
        self.submission.paths.get(&number).map(|path| (**path).to_owned())
    }

    fn directory(&self, name: &'static str, number: i32) -> RequestArg {
        let path = if number == AT_FDCWD { None } else { self.path_of(number) };
        RequestArg::new(name, ArgValue::Directory { number, path })
    }

    /// A text of the program's; its address if it could not be read.
    fn text_at(&self, name: &'static str, argument: u16, address: u64) -> RequestArg {
        let text = self.data(argument).map(|data| ArgValue::Text(data.bytes.clone()));
        RequestArg::new(name, text.unwrap_or(ArgValue::Address(address)))
    }

    /// What is written.
    fn buffer(&self, address: u64) -> RequestArg {
        Self::bytes("buf", self.data(argument::BUFFER), address)
    }

    /// What was read, once it was.
    fn result(&self, address: u64) -> RequestArg {
        Self::bytes("buf", self.shown.and_then(|shown| shown.result.as_ref()), address)
    }

    fn bytes(name: &'static str, data: Option<&Data>, address: u64) -> RequestArg {
        let value = data
            .filter(|data| !data.bytes.is_empty())
            .map_or(ArgValue::Address(address), |data| ArgValue::Bytes { beginning: data.bytes.clone(), total: data.total });
        RequestArg::new(name, value)
    }

    fn bits(&self, name: &'static str, value: impl Into<u64>, table: &'static [(u64, &'static str)]) -> RequestArg {
        RequestArg::new(name, ArgValue::Flags(flags::names(value, table)))
    }

    /// Flags that are shown by name where there are any.
    fn named_bits(args: &mut Vec<RequestArg>, name: &'static str, value: impl Into<u64>, table: &'static [(u64, &'static str)]) {
        let value = value.into();
        if value != 0 {
            args.push(RequestArg::named(name, ArgValue::Flags(flags::names(value, table))));
        }
    }

    /// A number that is shown by name where it is not 0.
    fn named_number(args: &mut Vec<RequestArg>, name: &'static str, value: u64) {
        if value != 0 {
            args.push(RequestArg::named(name, ArgValue::unsigned(value)));
        }
    }

    fn number(name: &'static str, value: u64) -> RequestArg {
        RequestArg::new(name, ArgValue::unsigned(value))
    }

    /// A position in a file: -1 for the file's own.
    fn offset(name: &'static str, value: u64) -> RequestArg {
        RequestArg::new(name, ArgValue::Number(value.cast_signed()))
    }

    /// The group that a buffer comes from.
    fn buffer_group(&self, args: &mut Vec<RequestArg>) {
        if self.sqe().flags & sqe::BUFFER_SELECT != 0 {
            args.push(RequestArg::named("buf_group", ArgValue::number(self.sqe().buf_index)));
        }
    }

    /// The slot of the table of registered files that a new file goes to.
    fn slot(&self, args: &mut Vec<RequestArg>) {
        match self.sqe().file_index() {
            0 => {}
            uringlet_abi::FILE_INDEX_ALLOC => {
                args.push(RequestArg::named("file_index", ArgValue::Word("IORING_FILE_INDEX_ALLOC".to_owned())))
            }
            index => args.push(RequestArg::named("file_index", ArgValue::number(index - 1))),
        }
    }

    /// An opcode that does not exist.
    fn unknown(&self) -> Vec<RequestArg> {
        let entry = self.sqe();
        vec![
            RequestArg::named("opcode", ArgValue::number(entry.opcode)),
            RequestArg::named("fd", ArgValue::number(entry.fd)),
            RequestArg::named("off", ArgValue::Address(entry.off)),
            RequestArg::named("addr", ArgValue::Address(entry.addr)),
            RequestArg::named("len", ArgValue::number(entry.len)),
        ]
    }
}

#[cfg(test)]
mod tests;
