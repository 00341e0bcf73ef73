//! Calls `uringlet::init()` first, then does what its first argument says.

use io_uring::{IoUring, opcode, types};
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FIRST_FREE: i32 = 3;
const HIGHEST: i32 = 1023;

unsafe extern "C" {
    fn close(fd: i32) -> i32;
    fn fcntl(fd: i32, command: i32, argument: i32) -> i32;
}

fn main() -> ExitCode {
    let mode = std::env::args_os().nth(1).unwrap_or_default();
    if mode == "threads" {
        return threads();
    }
    if mode == "close-first" {
        close_all();
    }
    let begun = uringlet::init();
    let Ok(backend) = begun else {
        println!("error: {}", begun.unwrap_err());
        return ExitCode::FAILURE;
    };
    match mode.to_str() {
        Some("panic") => panic!("on purpose"),
        Some("exit") => return ExitCode::from(7),
        Some("abort") => std::process::abort(),
        Some("self") => describe(),
        Some("child") => return start_child(Children::Inherit),
        Some("child-of-closed") => return start_child(Children::Closed),
        Some("child-close-on-exec") => return start_child(Children::CloseOnExec),
        Some("exec") => exec_self(),
        Some("twice") => assert_eq!(uringlet::init(), Ok(backend)),
        _ => {}
    }
    println!("{backend:?}: {}", ring());
    ExitCode::SUCCESS
}

/// `init` with a second thread, then a ring.
fn threads() -> ExitCode {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || receiver.recv());
    let begun = uringlet::init();
    drop(sender);
    let _ = other.join();
    match begun {
        Ok(backend) => println!("{backend:?}: {}", ring()),
        Err(error) => println!("error: {error}"),
    }
    ExitCode::SUCCESS
}

/// Names the ring's owner, once the ring has written and read a file while threads allocate.
fn ring() -> String {
    let mut ring = match IoUring::new(8) {
        Ok(ring) => ring,
        Err(error) => return format!("no ring: {error}"),
    };
    let busy: Vec<_> = (0..4).map(|seed| std::thread::spawn(move || allocate(seed))).collect();
    for round in 0..200u32 {
        turn(&mut ring, round);
    }
    let total: usize = busy.into_iter().map(|thread| thread.join().expect("a thread")).sum();
    assert_eq!(total, 4 * 20_000);
    let target = std::fs::read_link(format!("/proc/self/fd/{}", ring.as_raw_fd())).expect("a link");
    if target.as_os_str().as_bytes().ends_with(b"[io_uring]") { "kernel".into() } else { "engine".into() }
}

fn turn(ring: &mut IoUring, round: u32) {
    let mut file = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open("embedding-data").expect("open");
    let text = format!("round {round}").into_bytes();
    let mut back = vec![0; text.len()];
    let fd = types::Fd(file.as_raw_fd());
    let write = opcode::Write::new(fd, text.as_ptr(), text.len() as u32).build().user_data(1);
    let read = opcode::Read::new(fd, back.as_mut_ptr(), text.len() as u32).build().user_data(2);
    for entry in [write, read] {
        // SAFETY: both buffers outlive the call, which returns when the request is complete.
        unsafe { ring.submission().push(&entry) }.expect("room");
        ring.submit_and_wait(1).expect("enter");
        let result = ring.completion().next().expect("a completion").result();
        assert_eq!(result, text.len() as i32);
    }
    assert_eq!(back, text);
    file.flush().expect("flush");
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

/// What a program can see of its start.
fn describe() {
    println!("name: {}", std::fs::read_to_string("/proc/self/comm").expect("comm").trim_end());
    println!("executable: {}", std::env::current_exe().expect("a path").display());
    let arguments: Vec<OsString> = std::env::args_os().collect();
    println!("arguments: {:?}", arguments.iter().map(|argument| argument.as_bytes()).collect::<Vec<_>>());
    let mut variables: Vec<_> = std::env::vars_os().filter(|(name, _)| !is_ours(name)).collect();
    variables.sort();
    println!("variables: {variables:?}");
    println!("pid is the starter's: {}", std::env::var("STARTED").is_ok_and(|pid| pid == std::process::id().to_string()));
    let open: Vec<i32> = (0..16).filter(|&fd| is_open(fd)).collect();
    println!("descriptors: {open:?}");
}

fn is_ours(name: &OsString) -> bool {
    name == "LD_PRELOAD" || name == "STARTED" || [b"URINGLET", &b"XTASK"[..]].iter().any(|prefix| name.as_bytes().starts_with(prefix))
}

fn is_open(fd: i32) -> bool {
    const F_GETFD: i32 = 1;
    // SAFETY: asks about a number.
    unsafe { fcntl(fd, F_GETFD, 0) >= 0 }
}

#[derive(Clone, Copy, PartialEq)]
enum Children {
    Inherit,
    Closed,
    CloseOnExec,
}

/// Runs the program that is named by the second argument.
fn start_child(children: Children) -> ExitCode {
    const F_SETFD: i32 = 2;
    const FD_CLOEXEC: i32 = 1;
    match children {
        Children::Inherit => {}
        Children::Closed => close_all(),
        // SAFETY: flags of numbers.
        Children::CloseOnExec => (FIRST_FREE..=HIGHEST).for_each(|fd| unsafe {
            fcntl(fd, F_SETFD, FD_CLOEXEC);
        }),
    }
    let program = std::env::args_os().nth(2).expect("a program");
    let status = Command::new(program).args(std::env::args_os().skip(3)).status().expect("a child");
    println!("child: {status}");
    ExitCode::SUCCESS
}

fn close_all() {
    // SAFETY: nothing of this program uses a number above 2.
    (FIRST_FREE..=HIGHEST).for_each(|fd| unsafe {
        close(fd);
    });
}

/// Becomes this program again, without the object's descriptor.
fn exec_self() -> ! {
    close_all();
    let error = Command::new(std::env::current_exe().expect("a path")).exec();
    panic!("{error}");
}
