//! What a program does with rings. Each function panics if something is wrong.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};
use uringlet::io_uring::{cqueue, opcode, squeue, types};
use uringlet::{QueueFull, Ring};

pub fn all() {
    files_under_changing_numbers();
    threads_allocate_meanwhile();
    a_full_queue();
    links_and_timeouts();
    more_completions_than_the_queue_holds();
    registered();
    readiness();
    a_server();
    a_thread_with_little_stack();
    forks();
    children();
    dropped_in_flight();
    errors();
}

/// What answers the ring's calls: /proc says it.
pub fn answered_by(ring: &Ring) -> &'static str {
    let target = std::fs::read_link(format!("/proc/self/fd/{}", ring.as_raw_fd())).expect("a link");
    if target.to_string_lossy().ends_with("[io_uring]") { "kernel" } else { "engine" }
}

fn ring() -> Ring {
    Ring::new(8).expect("a ring")
}

/// One request, which is complete when this returns.
fn one(ring: &mut Ring, entry: squeue::Entry) -> i32 {
    // SAFETY: the callers' buffers outlive the call, and it returns with the CQE.
    unsafe { ring.push(&entry.user_data(7)) }.expect("room");
    ring.submit_and_wait(1).expect("enter");
    let completion = ring.completions().next().expect("a completion");
    assert_eq!(completion.user_data(), 7);
    completion.result()
}

fn write_and_read(ring: &mut Ring, file: &File, text: &[u8]) {
    let fd = types::Fd(file.as_raw_fd());
    let len = text.len() as u32;
    let mut back = vec![0; text.len()];
    assert_eq!(one(ring, opcode::Write::new(fd, text.as_ptr(), len).build()), text.len() as i32);
    assert_eq!(one(ring, opcode::Read::new(fd, back.as_mut_ptr(), len).build()), text.len() as i32);
    assert_eq!(back, text);
}

fn data_file() -> File {
    let path = format!("direct-data-{}-{:?}", std::process::id(), std::thread::current().id());
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).expect("open");
    std::fs::remove_file(path).expect("unlink");
    file
}

/// A number is a file's, then a socket's, then a file's again. Nobody tells the engine.
fn files_under_changing_numbers() {
    let mut ring = ring();
    let mut number = None;
    for round in 0..100u32 {
        let file = data_file();
        assert_eq!(*number.get_or_insert(file.as_raw_fd()), file.as_raw_fd());
        write_and_read(&mut ring, &file, format!("round {round}").as_bytes());
        drop(file);
        let (near, mut far) = UnixStream::pair().expect("a pair");
        assert_eq!(number, Some(near.as_raw_fd()));
        let mut byte = [0; 1];
        let entry = opcode::Read::new(types::Fd(near.as_raw_fd()), byte.as_mut_ptr(), 1).build();
        // SAFETY: the byte outlives the wait below.
        unsafe { ring.push(&entry) }.expect("room");
        assert_eq!(ring.submit().expect("submit"), 1);
        far.write_all(b"x").expect("write");
        ring.submit_and_wait(1).expect("wait");
        assert_eq!(ring.completions().next().expect("a completion").result(), 1);
        assert_eq!(byte, *b"x");
        drop(near);
        // Reads at an offset, which a socket has not.
        let mut file = data_file();
        assert_eq!(number, Some(file.as_raw_fd()));
        file.write_all(b"0123456789").expect("write");
        let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), byte.as_mut_ptr(), 1).offset(5).build();
        assert_eq!((one(&mut ring, entry), byte), (1, *b"5"));
    }
}

fn threads_allocate_meanwhile() {
    let busy: Vec<_> = (0..4).map(|seed| std::thread::spawn(move || allocate(seed))).collect();
    let rings: Vec<_> = (0..3)
        .map(|_| {
            std::thread::spawn(|| {
                let (mut ring, file) = (ring(), data_file());
                (0..100).for_each(|round| write_and_read(&mut ring, &file, &vec![round; 5000]));
            })
        })
        .collect();
    rings.into_iter().for_each(|thread| thread.join().expect("a ring's thread"));
    assert_eq!(busy.into_iter().map(|thread| thread.join().expect("a thread")).sum::<usize>(), 4 * 20_000);
}

fn allocate(seed: usize) -> usize {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for i in 0..20_000 {
        kept.push(vec![seed as u8; 16 + (i * 37 + seed) % 4000]);
        if kept.len() > 64 {
            kept.swap_remove(i % 64);
        }
    }
    20_000
}

fn a_full_queue() {
    let mut ring = ring();
    let nop = opcode::Nop::new().build();
    assert_eq!(ring.sq_room(), 8);
    // SAFETY: they point to nothing.
    unsafe {
        ring.push_all(&vec![nop.clone(); 7]).expect("room");
        assert_eq!(ring.push_all(&vec![nop.clone(); 2]), Err(QueueFull));
        ring.push(&nop).expect("room");
        assert_eq!(ring.push(&nop), Err(QueueFull));
    }
    assert_eq!(ring.submit().expect("submit"), 8);
    assert_eq!(ring.submit().expect("submit"), 0);
    assert_eq!(ring.sq_room(), 8);
    assert_eq!(ring.completions().count(), 8);
    assert_eq!(ring.completions().count(), 0);
}

fn links_and_timeouts() {
    let mut ring = ring();
    let (near, _far) = UnixStream::pair().expect("a pair");
    let mut byte = [0; 1];
    let time = types::Timespec::new().nsec(10_000_000);
    let read = opcode::Read::new(types::Fd(near.as_raw_fd()), byte.as_mut_ptr(), 1).build().user_data(1).flags(squeue::Flags::IO_LINK);
    let limit = opcode::LinkTimeout::new(&time).build().user_data(2);
    // SAFETY: all outlives the wait.
    unsafe { ring.push_all(&[read, limit]) }.expect("room");
    ring.submit_and_wait(2).expect("wait");
    let mut results: Vec<_> = ring.completions().map(|completion| (completion.user_data(), completion.result())).collect();
    results.sort_unstable();
    assert_eq!(results, [(1, -libc::ECANCELED), (2, -libc::ETIME)]);
    let begun = Instant::now();
    let error = ring.submit_and_wait_timeout(1, Duration::from_millis(30)).expect_err("nothing comes");
    assert_eq!(error.raw_os_error(), Some(libc::ETIME));
    assert!(begun.elapsed() >= Duration::from_millis(30));
}

fn more_completions_than_the_queue_holds() {
    let mut ring = Ring::builder().cq_entries(8).build(8).expect("a ring");
    for first in [0, 8, 16, 24] {
        for n in first..first + 8 {
            // SAFETY: it points to nothing.
            unsafe { ring.push(&opcode::Nop::new().build().user_data(n)) }.expect("room");
        }
        assert_eq!(ring.submit().expect("submit"), 8);
    }
    let found: Vec<_> = ring.completions().map(|completion| completion.user_data()).collect();
    assert_eq!(found, (0..32).collect::<Vec<_>>());
}

fn registered() {
    let mut ring = ring();
    let file = data_file();
    let mut memory = *b"0123456789";
    // SAFETY: the memory outlives the ring's requests, and is unregistered.
    unsafe { ring.register_buffers(&[IoSliceMut::new(&mut memory)]) }.expect("buffers");
    ring.register_files(&[-1, file.as_raw_fd()]).expect("files");
    assert_eq!(one(&mut ring, opcode::WriteFixed::new(types::Fixed(1), memory.as_ptr(), 10, 0).build()), 10);
    assert_eq!(one(&mut ring, opcode::ReadFixed::new(types::Fixed(1), memory.as_mut_ptr(), 5, 0).offset(5).build()), 5);
    assert_eq!(memory, *b"5678956789");
    assert_eq!(one(&mut ring, opcode::Fsync::new(types::Fixed(0)).build()), -libc::EBADF);
    ring.unregister_files().expect("files");
    ring.unregister_buffers().expect("buffers");
    assert_eq!(ring.unregister_buffers().expect_err("there are none").raw_os_error(), Some(libc::ENXIO));
    // SAFETY: a new descriptor.
    let counter = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, 0)) };
    ring.register_eventfd(counter.as_fd()).expect("eventfd");
    assert_eq!(one(&mut ring, opcode::Nop::new().build()), 0);
    let mut count = [0; 8];
    File::from(counter).read_exact(&mut count).expect("a count");
    assert_eq!(u64::from_ne_bytes(count), 1);
    ring.unregister_eventfd().expect("eventfd");
    let probe = ring.probe().expect("a probe");
    assert!(probe.is_supported(opcode::Read::CODE) && probe.is_supported(opcode::FutexWait::CODE) && !probe.is_supported(250));
}

fn poll(fd: BorrowedFd<'_>, milliseconds: i32) -> bool {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live entry.
    unsafe { libc::poll(&raw mut entry, 1, milliseconds) == 1 }
}

/// poll(2) of the ring's descriptor.
fn readiness() {
    let mut ring = ring();
    let (near, mut far) = UnixStream::pair().expect("a pair");
    assert!(!poll(ring.as_fd(), 0));
    for _ in 0..20 {
        let mut byte = [0; 1];
        let entry = opcode::Recv::new(types::Fd(near.as_raw_fd()), byte.as_mut_ptr(), 1).build();
        // SAFETY: the byte outlives the request.
        unsafe { ring.push(&entry) }.expect("room");
        ring.submit().expect("submit");
        assert!(!poll(ring.as_fd(), 0));
        far.write_all(b"x").expect("write");
        assert!(poll(ring.as_fd(), 10_000));
        assert_eq!(ring.completions().map(|completion| completion.result()).collect::<Vec<_>>(), [1]);
        assert!(!poll(ring.as_fd(), 0));
    }
}

/// Multishot accept, and an echo of each connection.
fn a_server() {
    const CLIENTS: u64 = 20;
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("an address");
    let client = std::thread::spawn(move || {
        for n in 0..CLIENTS {
            let mut stream = TcpStream::connect(address).expect("connect");
            stream.write_all(&n.to_ne_bytes()).expect("write");
            let mut back = [0; 8];
            stream.read_exact(&mut back).expect("read");
            assert_eq!(u64::from_ne_bytes(back), n);
        }
    });
    let mut ring = ring();
    let accept = opcode::AcceptMulti::new(types::Fd(listener.as_raw_fd())).build().user_data(u64::MAX);
    // SAFETY: it points to nothing.
    unsafe { ring.push(&accept) }.expect("room");
    for _ in 0..CLIENTS {
        ring.submit_and_wait(1).expect("wait");
        let accepted = ring.completions().next().expect("a connection");
        assert!(cqueue::more(accepted.flags()) && accepted.result() >= 0);
        // SAFETY: a new descriptor.
        let stream = unsafe { OwnedFd::from_raw_fd(accepted.result()) };
        let mut bytes = [0; 8];
        let fd = types::Fd(stream.as_raw_fd());
        assert_eq!(one(&mut ring, opcode::Recv::new(fd, bytes.as_mut_ptr(), 8).build()), 8);
        assert_eq!(one(&mut ring, opcode::Send::new(fd, bytes.as_ptr(), 8).build()), 8);
    }
    client.join().expect("the client");
}

/// The engine runs on the stack of the thread that calls it.
fn a_thread_with_little_stack() {
    let work = || {
        let (mut ring, file) = (ring(), data_file());
        write_and_read(&mut ring, &file, b"little");
        let path = CString::new("/etc/passwd").expect("a path");
        let fd = one(&mut ring, opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr()).build());
        assert!(fd >= 0);
        assert_eq!(one(&mut ring, opcode::Close::new(types::Fd(fd)).build()), 0);
    };
    std::thread::Builder::new().stack_size(128 << 10).spawn(work).expect("a thread").join().expect("the thread");
}

/// A child has rings of its own; its parent's go on.
fn forks() {
    let (mut ring, file) = (ring(), data_file());
    let (near, mut far) = UnixStream::pair().expect("a pair");
    let mut byte = [0; 1];
    let read = opcode::Read::new(types::Fd(near.as_raw_fd()), byte.as_mut_ptr(), 1).build().user_data(3);
    // SAFETY: the byte outlives the wait.
    unsafe { ring.push(&read) }.expect("room");
    ring.submit().expect("submit");
    for round in 0..10 {
        // SAFETY: the child ends by _exit.
        match unsafe { libc::fork() } {
            0 => {
                let result = std::panic::catch_unwind(|| write_and_read(&mut self::ring(), &data_file(), b"child"));
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(result.is_err())) }
            }
            child => {
                let mut status = -1;
                // SAFETY: a child of this process.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0, "round {round}");
            }
        }
    }
    far.write_all(b"x").expect("write");
    ring.submit_and_wait(1).expect("wait");
    let completion = ring.completions().next().expect("a completion");
    assert_eq!((completion.user_data(), completion.result(), byte), (3, 1, *b"x"));
    write_and_read(&mut ring, &file, b"parent");
}

/// Programs that are started get no descriptor of the engine's.
fn children() {
    let list = || Command::new("ls").arg("/proc/self/fd").output().expect("ls").stdout;
    let before = list();
    let mut ring = ring();
    let (near, _far) = UnixStream::pair().expect("a pair");
    let byte: &'static mut [u8; 1] = Box::leak(Box::new([0]));
    let entry = opcode::Read::new(types::Fd(near.as_raw_fd()), byte.as_mut_ptr(), 1).build();
    // SAFETY: the byte is never freed.
    unsafe { ring.push(&entry) }.expect("room");
    ring.submit().expect("submit");
    assert_eq!(String::from_utf8_lossy(&list()), String::from_utf8_lossy(&before));
}

/// A ring ends while a request waits.
fn dropped_in_flight() {
    let (near, mut far) = UnixStream::pair().expect("a pair");
    // As long as the program: the request may still be ending.
    let byte: &'static mut [u8; 1] = Box::leak(Box::new([0]));
    let mut ring = ring();
    let entry = opcode::Read::new(types::Fd(near.as_raw_fd()), byte.as_mut_ptr(), 1).build();
    // SAFETY: see above.
    unsafe { ring.push(&entry) }.expect("room");
    ring.submit().expect("submit");
    let number = ring.as_raw_fd();
    drop(ring);
    // SAFETY: asks about a number.
    assert_eq!(unsafe { libc::fcntl(number, libc::F_GETFD) }, -1);
    std::thread::sleep(Duration::from_millis(50));
    far.write_all(b"y").expect("write");
    let mut left = [0; 1];
    { &near }.read_exact(&mut left).expect("nobody else has read it");
    assert_eq!(left, *b"y");
}

fn errors() {
    let error = Ring::new(0).expect_err("a ring of no entries");
    assert_eq!(error.to_string(), "the ring cannot be made: Invalid argument (os error 22)");
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::InvalidInput);
    assert!(Ring::new(u32::MAX).is_err());
    assert!(Ring::builder().clamp().build(u32::MAX).is_ok());
    assert_eq!(one(&mut ring(), opcode::Read::new(types::Fd(-1), std::ptr::null_mut(), 1).build()), -libc::EBADF);
}

/// No page becomes executable that was written (Linux 6.3), as systemd's MemoryDenyWriteExecute.
pub fn forbid_new_code() {
    const PR_SET_MDWE: i32 = 65;
    const PR_MDWE_REFUSE_EXEC_GAIN: usize = 1;
    // SAFETY: no addresses.
    let result = unsafe { libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0usize, 0usize, 0usize) };
    assert_eq!(result, 0, "PR_SET_MDWE");
}

/// A second engine, in a library.
pub fn plugin(path: &str) {
    let mut own = ring();
    let path = CString::new(path).expect("a path");
    // SAFETY: the library's function has this type.
    let turns: extern "C" fn(u32) -> u32 = unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "it cannot be loaded");
        let function = libc::dlsym(library, c"plugin_turns".as_ptr());
        assert!(!function.is_null());
        std::mem::transmute(function)
    };
    for _ in 0..10 {
        assert_eq!(turns(50), 50);
        write_and_read(&mut own, &data_file(), b"own");
    }
    forks();
}
