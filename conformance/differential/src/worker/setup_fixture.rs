//! Creates the environment of a scenario: files, pipes and sockets with fixed numbers, and the
//! arena.

use crate::fixture;
use anyhow::{Context, ensure};
use std::ffi::CString;
use std::io;
use uringlet_abi::register::{self as reg, BufReg, Iovec};

use super::ring::RawRing;

fn ok(returned: i32, what: &str) -> anyhow::Result<i32> {
    ensure!(returned >= 0, "{what}: {}", io::Error::last_os_error());
    Ok(returned)
}

fn move_to(fd: i32, number: i32) -> anyhow::Result<()> {
    // SAFETY: descriptors of this process only.
    unsafe {
        ok(libc::dup2(fd, number), "dup2")?;
        ok(libc::close(fd), "close")?;
    }
    Ok(())
}

fn open(path: &str, flags: i32, number: i32) -> anyhow::Result<()> {
    let path = CString::new(path)?;
    // SAFETY: a NUL-terminated path.
    let fd = ok(unsafe { libc::open(path.as_ptr(), flags, 0o644) }, "open")?;
    move_to(fd, number)
}

/// Content of a file or buffer: different for each seed.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| ((i * 7 + (i >> 8) * 13 + seed * 31) % 251) as u8).collect()
}

/// Copies into the arena.
pub(super) fn write_arena(address: u64, bytes: &[u8]) {
    let end = address + bytes.len() as u64;
    assert!(address >= fixture::ARENA && end <= fixture::ARENA + fixture::ARENA_LEN, "memory of a scenario lies in the arena");
    // SAFETY: inside the arena, which is mapped for good.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
}

/// Copies out of the arena.
pub(super) fn read_arena(address: u64, len: usize) -> Vec<u8> {
    assert!(address >= fixture::ARENA && address + len as u64 <= fixture::ARENA + fixture::ARENA_LEN, "inside the arena");
    // SAFETY: inside the arena; running requests may change it meanwhile, byte by byte.
    unsafe { std::slice::from_raw_parts(address as *const u8, len).to_vec() }
}

fn map_arena() -> anyhow::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    for (at, len, protection) in
        [(fixture::ARENA, fixture::ARENA_LEN, libc::PROT_READ | libc::PROT_WRITE), (fixture::READ_ONLY, 4096, libc::PROT_READ)]
    {
        // SAFETY: NOREPLACE: no mapping of ours is at this address.
        let p = unsafe { libc::mmap(at as *mut libc::c_void, len as usize, protection, flags, -1, 0) };
        ensure!(p as u64 == at, "mapping the arena: {}", io::Error::last_os_error());
    }
    for i in 0..fixture::MAX_OPS {
        write_arena(fixture::ARENA + i * fixture::CHUNK, &pattern(i, fixture::AUX as usize));
    }
    for i in 0..fixture::N_FIXED_BUFFERS {
        write_arena(fixture::FIXED_BUFFERS + i * fixture::FIXED_BUFFER_LEN, &pattern(500 + i, fixture::FIXED_BUFFER_LEN as usize));
    }
    Ok(())
}

fn files() -> anyhow::Result<()> {
    let sizes = [6000, 3000, 9000, 16384, 100];
    let flags = [libc::O_RDWR, libc::O_RDWR | libc::O_APPEND, libc::O_RDONLY, libc::O_RDWR | libc::O_DIRECT, libc::O_WRONLY];
    for (i, number) in fixture::FILES.into_iter().enumerate() {
        let name = format!("f{i}");
        std::fs::write(&name, pattern(200 + i as u64, sizes[i]))?;
        open(&name, flags[i], number)?;
    }
    std::fs::create_dir("d0")?;
    for (i, name) in ["n0", "n1", "d0/n3"].into_iter().enumerate() {
        std::fs::write(name, pattern(300 + i as u64, 700))?;
    }
    open(".", libc::O_RDONLY | libc::O_DIRECTORY, fixture::DIRECTORY)?;
    open("/dev/null", libc::O_RDWR, fixture::NULL)?;
    open("/dev/zero", libc::O_RDWR, fixture::ZERO)?;
    fixture::VICTIMS.into_iter().try_for_each(|number| open("/dev/null", libc::O_RDWR, number))
}

fn streams() -> anyhow::Result<()> {
    for (i, number) in fixture::PIPES.into_iter().enumerate() {
        let mut ends = [0; 2];
        let flags = if i == 4 { libc::O_NONBLOCK } else { 0 };
        // SAFETY: two descriptors are written; the size of a pipe is a number.
        unsafe {
            ok(libc::pipe2(ends.as_mut_ptr(), flags), "pipe2")?;
            if i == 3 {
                ok(libc::fcntl(ends[1], libc::F_SETPIPE_SZ, 4096), "F_SETPIPE_SZ")?;
            }
        }
        move_to(ends[0], number)?;
        move_to(ends[1], number + 1)?;
    }
    for (i, number) in fixture::SOCKETS.into_iter().enumerate() {
        let mut ends = [0; 2];
        let kind = match i {
            2 => libc::SOCK_STREAM | libc::SOCK_NONBLOCK,
            3 => libc::SOCK_DGRAM,
            _ => libc::SOCK_STREAM,
        };
        // SAFETY: two descriptors are written.
        ok(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, "socketpair")?;
        move_to(ends[0], number)?;
        move_to(ends[1], number + 1)?;
    }
    loopback()
}

/// Pairs over the loopback.
fn loopback() -> anyhow::Result<()> {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::IntoRawFd;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let far = TcpStream::connect(listener.local_addr()?)?;
    let near = listener.accept()?.0;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    move_to(near.into_raw_fd(), fixture::TCP)?;
    move_to(far.into_raw_fd(), fixture::TCP + 1)?;
    let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    move_to(near.into_raw_fd(), fixture::UDP)?;
    move_to(far.into_raw_fd(), fixture::UDP + 1)
}

/// A ring that only receives messages.
pub(super) fn other_ring() -> anyhow::Result<RawRing> {
    let ring = RawRing::new(64, 0, 0).map_err(|errno| anyhow::anyhow!("another ring: {errno}"))?;
    let none = [-1_i32; 8];
    let answer = ring.register(reg::FILES, none.as_ptr() as u64, none.len() as u32);
    ensure!(answer == 0, "files of another ring: {answer}");
    // To be cloned: the last slot is empty.
    let mut buffers = fixed_buffers();
    buffers.push(Iovec::default());
    let answer = ring.register(reg::BUFFERS, buffers.as_ptr() as u64, buffers.len() as u32);
    ensure!(answer == 0, "buffers of another ring: {answer}");
    Ok(ring)
}

/// Creates the listening unix socket.
fn listener() -> anyhow::Result<()> {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    for (to, from) in address.sun_path.iter_mut().zip(b"listener") {
        *to = *from as libc::c_char;
    }
    // SAFETY: plain calls on fresh descriptors; the length of the address is correct.
    unsafe {
        let fd = ok(libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0), "socket")?;
        let len = size_of::<libc::sockaddr_un>() as u32;
        ok(libc::bind(fd, std::ptr::from_ref(&address).cast(), len), "bind")?;
        ok(libc::listen(fd, 16), "listen")?;
        move_to(fd, fixture::LISTENER)?;
        for number in fixture::FRESH_SOCKETS {
            move_to(ok(libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0), "socket")?, number)?;
        }
        for (i, number) in fixture::EVENTS.into_iter().enumerate() {
            move_to(ok(libc::eventfd(0, if i == 1 { libc::EFD_NONBLOCK } else { 0 }), "eventfd")?, number)?;
        }
        move_to(ok(libc::eventfd(0, libc::EFD_NONBLOCK), "eventfd")?, fixture::NOTIFIED)?;
        move_to(ok(libc::epoll_create1(0), "epoll_create1")?, fixture::EPOLL)
    }
}

/// Creates everything but the ring.
pub(super) fn build() -> anyhow::Result<()> {
    map_arena()?;
    files().context("files")?;
    streams()?;
    listener()
}

fn fixed_buffers() -> Vec<Iovec> {
    (0..fixture::N_FIXED_BUFFERS)
        .map(|i| Iovec { base: fixture::FIXED_BUFFERS + i * fixture::FIXED_BUFFER_LEN, len: fixture::FIXED_BUFFER_LEN })
        .collect()
}

/// Registers the fixture with a ring. Returns the results.
pub(super) fn register_all(ring: &RawRing) -> Vec<i64> {
    let buffers = fixed_buffers();
    let group = BufReg {
        ring_addr: fixture::BUF_RING,
        ring_entries: u32::from(fixture::BUF_RING_ENTRIES),
        bgid: fixture::RING_GROUP,
        ..BufReg::default()
    };
    let incremental = BufReg { ring_addr: fixture::INC_RING, bgid: fixture::INC_GROUP, flags: reg::PBUF_RING_INC, ..group };
    let answers = vec![
        ring.register(reg::BUFFERS, buffers.as_ptr() as u64, buffers.len() as u32),
        ring.register(reg::FILES, fixture::TABLE.as_ptr() as u64, fixture::TABLE.len() as u32),
        ring.register(reg::PBUF_RING, std::ptr::from_ref(&group) as u64, 1),
        ring.register(reg::PBUF_RING, std::ptr::from_ref(&incremental) as u64, 1),
    ];
    refill(fixture::RING_GROUP, 4);
    refill(fixture::INC_GROUP, 4);
    answers
}

/// Adds the next buffers to a buffer ring.
pub(super) fn refill(group: u16, n: u16) {
    use std::sync::atomic::{AtomicU16, Ordering};
    let ring = if group == fixture::INC_GROUP { fixture::INC_RING } else { fixture::BUF_RING };
    // SAFETY: the tail of the buffer ring, in the arena, aligned.
    let tail = unsafe { AtomicU16::from_ptr((ring + 14) as *mut u16) };
    let mut at = tail.load(Ordering::Relaxed);
    for _ in 0..n {
        let bid = at % fixture::BUF_RING_ENTRIES;
        let entry = ring + u64::from(bid) * 16;
        let address = fixture::provided(group, bid);
        // Without the last two bytes: in entry 0 they are the ring's tail.
        write_arena(entry, &[&address.to_ne_bytes()[..], &(fixture::PROVIDED_LEN as u32).to_ne_bytes(), &bid.to_ne_bytes()].concat());
        at = at.wrapping_add(1);
    }
    tail.store(at, Ordering::Release);
}
