//! Every opcode is decoded, whatever its SQE holds.

use std::collections::BTreeMap;

use uringlet_abi::{Opcode, Sqe, sqe};
use uringlet_sys::trace::argument;

use super::arguments;
use crate::request::{Data, FileNames, SubmittedRequest};
use crate::value::RequestArg;

fn submission(entry: Sqe, data: &[(u16, &[u8], u64)]) -> SubmittedRequest {
    let data = data.iter().map(|(argument, bytes, total)| (*argument, Data { bytes: bytes.to_vec(), total: *total }));
    SubmittedRequest {
        pid: 1,
        tid: 1,
        ring: 0,
        ticks: 0,
        number: 1,
        sqe: entry,
        paths: FileNames::from([(3, "/tmp/x".into())]),
        file: if entry.flags & sqe::FIXED_FILE == 0 { entry.fd } else { 3 },
        chain: None,
        data: data.collect(),
    }
}

fn text(opcode: Opcode, entry: Sqe, data: &[(u16, &[u8], u64)]) -> String {
    let entry = Sqe { opcode: opcode as u8, ..entry };
    arguments(&submission(entry, data), None).iter().map(RequestArg::text).collect::<Vec<_>>().join(", ")
}

#[test]
fn arguments_have_names_and_any_sqe_is_decoded() {
    let full = [u64::MAX; 8];
    for &opcode in Opcode::ALL {
        for words in [[0; 8], full] {
            let entry = Sqe { opcode: opcode as u8, ..Sqe::from_words(words) };
            for bytes in [&[][..], &[0xff; 5], &[0xff; 200]] {
                let data = (1..=7).map(|argument| (argument, Data { bytes: bytes.to_vec(), total: u64::MAX })).collect();
                let args = arguments(&SubmittedRequest { data, ..submission(entry, &[]) }, None);
                assert!(args.iter().all(|arg| !arg.name.is_empty() && !arg.text().is_empty()), "{opcode:?}");
                let names: BTreeMap<&str, ()> = args.iter().map(|arg| (arg.name, ())).collect();
                assert_eq!(names.len(), args.len(), "{opcode:?}: {args:?}");
                assert!(!args.is_empty() || matches!(opcode, Opcode::Nop | Opcode::Nop128), "{opcode:?}");
            }
        }
    }
    let unknown = Sqe { opcode: 200, ..Sqe::default() };
    assert_eq!(arguments(&submission(unknown, &[]), None).len(), 5);
}

#[test]
fn arguments_are_shown_as_strace_shows_them() {
    let entry = Sqe { fd: 3, addr: 0x1000, len: 4096, off: 512, ..Sqe::default() };
    assert_eq!(text(Opcode::Write, entry, &[(argument::BUFFER, b"ab\n", 4096)]), r#"3</tmp/x>, "ab\n"..., 4096, 512"#);
    let registered = Sqe { fd: 7, flags: sqe::FIXED_FILE, ..entry };
    assert_eq!(text(Opcode::ReadFixed, registered, &[]), "#7</tmp/x>, 0x1000, 4096, 512, buf_index=0");
    let open = Sqe { fd: -100, op_flags: 0o101, len: 0o644, ..Sqe::default() };
    assert_eq!(text(Opcode::Openat, open, &[(argument::PATH, b"/etc/x", 6)]), r#"AT_FDCWD, "/etc/x", O_WRONLY|O_CREAT, 0644"#);
    let timespec = [2_u64.to_le_bytes(), 500_u64.to_le_bytes()].concat();
    let timeout = Sqe { addr: 8, off: 1, op_flags: 1, ..Sqe::default() };
    assert_eq!(text(Opcode::Timeout, timeout, &[(argument::STRUCT, &timespec, 16)]), "2.000000500 s, count=1, flags=IORING_TIMEOUT_ABS");
    let connect = Sqe { fd: 3, addr: 8, off: 16, ..Sqe::default() };
    let address = [2, 0, 0, 80, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(text(Opcode::Connect, connect, &[(argument::ADDRESS, &address, 16)]), "3</tmp/x>, {AF_INET, 127.0.0.1:80}, 16");
    let cancel = Sqe { addr: 0x42, op_flags: 1, ..Sqe::default() };
    assert_eq!(text(Opcode::AsyncCancel, cancel, &[]), "user_data=0x42, flags=IORING_ASYNC_CANCEL_ALL");
    let poll = Sqe { fd: 3, op_flags: 5, len: 1, ..Sqe::default() };
    assert_eq!(text(Opcode::PollAdd, poll, &[]), "3</tmp/x>, POLLIN|POLLOUT, flags=IORING_POLL_ADD_MULTI");
}
