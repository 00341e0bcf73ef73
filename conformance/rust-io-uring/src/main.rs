//! Files, sockets, timeouts and links through the `io-uring` crate; prints `all well` if every
//! result is right.

use io_uring::{IoUring, opcode, squeue, types};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

type Results = Vec<(u64, i32)>;

const ECANCELED: i32 = 125;
const ETIME: i32 = 62;

/// Submits all entries in one call, waits for as many completions; sorted by user data.
fn run(ring: &mut IoUring, entries: &[squeue::Entry]) -> Results {
    // SAFETY: the callers' buffers outlive this call, which returns when all requests are complete.
    unsafe { ring.submission().push_multiple(entries) }.expect("the queue is large enough");
    ring.submit_and_wait(entries.len()).expect("enter");
    let mut results: Results = ring.completion().map(|cqe| (cqe.user_data(), cqe.result())).collect();
    results.sort_unstable();
    results
}

fn files(ring: &mut IoUring) {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open("rust-data").expect("open");
    let fd = types::Fd(file.as_raw_fd());
    let blocks: Vec<Vec<u8>> = (0..16u8).map(|i| vec![i + 1; 4096]).collect();
    let writes: Vec<_> = (0..16u64)
        .map(|i| {
            let block = &blocks[i as usize];
            opcode::Write::new(fd, block.as_ptr(), 4096).offset(i * 4096).build().user_data(i)
        })
        .collect();
    assert_eq!(run(ring, &writes), (0..16).map(|i| (i, 4096)).collect::<Results>());
    let synced = run(ring, &[opcode::Fsync::new(fd).build().user_data(1)]);
    assert_eq!(synced, [(1, 0)]);
    assert_eq!(std::fs::read("rust-data").expect("read"), blocks.concat());
    let mut back = vec![vec![0u8; 4096]; 16];
    let reads: Vec<_> = back
        .iter_mut()
        .zip(0u64..)
        .map(|(block, i)| opcode::Read::new(fd, block.as_mut_ptr(), 4096).offset(i * 4096).build().user_data(i))
        .collect();
    assert_eq!(run(ring, &reads), (0..16).map(|i| (i, 4096)).collect::<Results>());
    assert_eq!(back, blocks);
    std::fs::remove_file("rust-data").expect("remove");
}

fn sockets(ring: &mut IoUring) {
    let (left, right) = UnixStream::pair().expect("socketpair");
    let mut received = [0u8; 5];
    let entries = [
        opcode::Recv::new(types::Fd(right.as_raw_fd()), received.as_mut_ptr(), 5).build().user_data(1),
        opcode::Send::new(types::Fd(left.as_raw_fd()), b"hello".as_ptr(), 5).build().user_data(2),
    ];
    assert_eq!(run(ring, &entries), [(1, 5), (2, 5)]);
    assert_eq!(&received, b"hello");
}

fn timeouts(ring: &mut IoUring) {
    let short = types::Timespec::new().nsec(20_000_000);
    let started = Instant::now();
    let results = run(ring, &[opcode::Timeout::new(&short).build().user_data(7)]);
    assert_eq!(results, [(7, -ETIME)]);
    assert!(started.elapsed() >= Duration::from_millis(20));
}

fn links(ring: &mut IoUring) {
    let bad = types::Fd(-1);
    let entries = [
        opcode::Nop::new().build().flags(squeue::Flags::IO_LINK).user_data(1),
        opcode::Fsync::new(bad).build().flags(squeue::Flags::IO_LINK).user_data(2),
        opcode::Nop::new().build().user_data(3),
    ];
    assert_eq!(run(ring, &entries), [(1, 0), (2, -9), (3, -ECANCELED)]);
}

fn main() {
    let mut ring = IoUring::new(32).expect("io_uring_setup");
    files(&mut ring);
    sockets(&mut ring);
    timeouts(&mut ring);
    links(&mut ring);
    println!("all well");
}
