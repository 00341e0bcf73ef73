//! Prints the final state of a scenario: files, names, data in pipes and sockets, memory.

use super::setup_fixture::{read_arena, write_arena};
use crate::fixture;
use crate::scenario::{ResultKind, ScenarioOp, ScenarioStep};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

fn answer(returned: isize) -> isize {
    if returned < 0 { -(io::Error::last_os_error().raw_os_error().unwrap_or(0) as isize) } else { returned }
}

fn is_ready(fd: i32, events: i16) -> bool {
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 }
}

/// Executes a step that is a system call. Returns its line of the transcript.
pub(super) fn direct_call(step: &ScenarioStep) -> String {
    let mut buffer = [0x5a_u8; 16384];
    // SAFETY: descriptors of the scenario, a buffer that is long enough.
    unsafe {
        match step {
            // Must not block on either side.
            ScenarioStep::Write(fd, _) if !is_ready(*fd, libc::POLLOUT) => "write: not now".to_owned(),
            ScenarioStep::Read(fd, _) if !is_ready(*fd, libc::POLLIN) => "read: not now".to_owned(),
            ScenarioStep::Write(fd, len) => format!("write: {}", answer(libc::write(*fd, buffer.as_ptr().cast(), *len))),
            ScenarioStep::Read(fd, len) => {
                let n = answer(libc::read(*fd, buffer.as_mut_ptr().cast(), *len));
                format!("read: {n} {:x}", hash(&buffer[..n.max(0) as usize]))
            }
            ScenarioStep::Shutdown(fd) => format!("shutdown: {}", answer(libc::shutdown(*fd, libc::SHUT_RDWR) as isize)),
            ScenarioStep::Close(fd) => format!("close: {}", answer(libc::close(*fd) as isize)),
            other => unreachable!("{other:?} goes through the ring"),
        }
    }
}

/// Moves a descriptor that a request created to its number.
pub(super) fn adopt(fd: i32, number: i32) {
    // SAFETY: a descriptor that was just made for this program.
    unsafe {
        libc::dup2(fd, number);
        libc::close(fd);
    }
}

/// Moves two descriptors, stored at an address.
pub(super) fn adopt_pipe(address: u64, number: i32) {
    let bytes = read_arena(address, 8);
    let end = |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    adopt(end(0), number);
    adopt(end(4), number + 1);
    write_arena(address, &[0; 8]);
}

/// The reproducible fields of a `struct statx`. Clears the structure.
pub(super) fn statx(address: u64) -> String {
    let bytes = read_arena(address, 256);
    let number = |at: usize, len: usize| bytes[at..at + len].iter().rev().fold(0_u64, |n, b| n << 8 | u64::from(*b));
    write_arena(address, &[0; 256]);
    let (nlink, mode, size) = (number(16, 4), number(28, 2), number(40, 8));
    if mode & 0o170_000 == 0o040_000 { format!("directory {mode:o}") } else { format!("nlink {nlink} mode {mode:o} size {size}") }
}

/// Prints all observable state.
pub(super) fn print(ops: &BTreeMap<u64, ScenarioOp>) {
    println!("state:");
    print_folder(Path::new("."));
    print_positions();
    print_streams();
    // Clears times, inode numbers and descriptors that were not cleared because the completion was
    // skipped.
    for op in ops.values() {
        match op.result {
            ResultKind::Statx(address) => write_arena(address, &[0; 256]),
            ResultKind::Pipe(address, _) => write_arena(address, &[0; 8]),
            ResultKind::Number | ResultKind::Descriptor(_) => {}
        }
    }
    for user_data in ops.keys() {
        println!(
            "  memory of #{user_data}: {:x}",
            hash(&read_arena(fixture::ARENA + (user_data - 1) * fixture::CHUNK, fixture::CHUNK as usize))
        );
    }
    println!("  provided buffers: {:x}", hash(&read_arena(fixture::PROVIDED, 1 << 20)));
    println!(
        "  registered buffers: {:x}",
        hash(&read_arena(fixture::FIXED_BUFFERS, (fixture::N_FIXED_BUFFERS * fixture::FIXED_BUFFER_LEN) as usize))
    );
}

fn print_folder(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if metadata.is_dir() {
            println!("  {} mode {:o}", path.display(), metadata.mode());
            print_folder(&path);
        } else {
            let content = if metadata.is_file() { std::fs::read(&path).unwrap_or_default() } else { Vec::new() };
            println!(
                "  {} mode {:o} nlink {} size {} {:x}",
                path.display(),
                metadata.mode(),
                metadata.nlink(),
                metadata.len(),
                hash(&content)
            );
        }
    }
}

fn print_positions() {
    // SAFETY: a query.
    let positions = fixture::FILES.map(|fd| answer(unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } as isize));
    println!("  positions: {positions:?}");
    // SAFETY: a query.
    let open: Vec<i32> = (100..160).chain(200..240).filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0).collect();
    println!("  open: {open:?}");
}

fn print_streams() {
    let pipes = fixture::PIPES.iter().copied();
    let sockets = fixture::SOCKETS.iter().chain(&[fixture::TCP, fixture::UDP]).flat_map(|fd| [*fd, *fd + 1]);
    for fd in pipes.chain(sockets).chain(fixture::EVENTS) {
        println!("  left in {fd}: {}", left_in(fd));
    }
}

fn left_in(fd: i32) -> String {
    let mut buffer = vec![0_u8; 1 << 18];
    // SAFETY: the length is the buffer's; the flag belongs to this process.
    let n = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        answer(libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()))
    };
    format!("{n} {:x}", hash(&buffer[..n.max(0) as usize]))
}
