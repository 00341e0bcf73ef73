//! System calls on behalf of the program, one thin function each. The program's addresses go
//! through untouched; the kernel checks them. All return what the call returned, or the errno.

use crate::arch;
use crate::clock;
use crate::linux;
use crate::linux::general::{
    AT_EMPTY_PATH, F_DUPFD_CLOEXEC, F_DUPFD_QUERY, F_GETFL, F_SETFD, F_SETFL, F_SETLK, F_UNLCK, F_WRLCK, FD_CLOEXEC, SEEK_SET, flock,
    pollfd,
};
use crate::linux::ioctl::{BLKDISCARD, FIONREAD, TIOCOUTQ};
use crate::linux::net::SO_ERROR;
use crate::proc_path::ProcPath;
use crate::required_calls::is_denial;
use crate::user_ptr::{Pod, UserPtr};
use core::mem::MaybeUninit;
use syscalls::{Errno, Sysno, syscall};

/// Result of a system call: its return value, or the errno.
pub type Res = Result<usize, Errno>;

/// The descriptor that a call returned.
#[inline]
#[must_use]
pub fn number_of(result: usize) -> i32 {
    i32::try_from(result).unwrap_or(-1)
}

pub use linux::general::{
    O_ACCMODE, O_CLOEXEC, O_DIRECT, O_DSYNC, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_WRONLY, RWF_APPEND, RWF_DSYNC, RWF_HIPRI, RWF_NOWAIT,
    RWF_SYNC,
};
pub use linux::net::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_WAITALL, SO_ACCEPTCONN, SO_DOMAIN, SO_PROTOCOL, SO_RCVLOWAT, SO_TYPE, SOL_SOCKET};

/// `O_SYNC` without the bit that it shares with `O_DSYNC`.
pub const O_SYNC: u32 = linux::general::__O_SYNC;

/// `struct msghdr` of the 64-bit ABI, with its padding as fields and addresses as numbers: it is
/// read from the program.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Msghdr {
    /// Address of the socket address.
    pub name: u64,
    /// Its size, bytes.
    pub namelen: u32,
    /// Zero.
    pub pad: u32,
    /// Address of the iovecs.
    pub iov: u64,
    /// Their number.
    pub iovlen: u64,
    /// Address of the ancillary data.
    pub control: u64,
    /// Its size, bytes.
    pub controllen: u64,
    /// `MSG_*` of the message received.
    pub flags: u32,
    /// Zero.
    pub pad2: u32,
}

pub use linux::general::open_how as OpenHow;

// SAFETY: integers without padding: what would be padding is a field.
unsafe impl Pod for Msghdr {}
// SAFETY: three integers of 8 bytes.
unsafe impl Pod for OpenHow {}

/// The part of fstat(2)'s answer that the engine uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileStat {
    /// `st_mode`.
    pub mode: u32,
    /// `st_dev`.
    pub dev: u64,
    /// `st_ino`.
    pub ino: u64,
    /// `st_size`, bytes.
    pub size: u64,
    /// `st_uid`.
    pub uid: u32,
    /// `st_rdev`: which device it is, of a device's file.
    pub rdev: u64,
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $nr:ident($($arg:ident: $t:ty => $e:expr),* $(,)?);)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// Those of the system call.
            #[inline(always)]
            pub fn $name($($arg: $t),*) -> Res {
                // SAFETY: addresses are the program's and checked by the kernel; that they are
                // buffers it may use is what `AppPromise` stands for. No address of the engine's is
                // passed.
                unsafe { syscall!(Sysno::$nr $(, $e)*) }
            }
        )*
    };
}

calls! {
    /// dup3(2): `new` means the file of `old`, and is not the engine's.
    dup3 = dup3(old: i32 => old, new: i32 => new, flags: u32 => flags);
    /// read(2), at the file position.
    read = read(fd: i32 => fd, buf: UserPtr => buf.addr(), len: usize => len);
    /// write(2), at the file position.
    write = write(fd: i32 => fd, buf: UserPtr => buf.addr(), len: usize => len);
    /// pread(2): `off` in bytes.
    pread = pread64(fd: i32 => fd, buf: UserPtr => buf.addr(), len: usize => len, off: i64 => off);
    /// pwrite(2): `off` in bytes.
    pwrite = pwrite64(fd: i32 => fd, buf: UserPtr => buf.addr(), len: usize => len, off: i64 => off);
    /// preadv2(2): `off` -1 for the file position, `flags` are `RWF_*`.
    preadv2 = preadv2(fd: i32 => fd, iov: UserPtr => iov.addr(), n: usize => n, off: i64 => off, hi: usize => hi, flags: u32 => flags);
    /// pwritev2(2): `off` -1 for the file position, `flags` are `RWF_*`.
    pwritev2 = pwritev2(fd: i32 => fd, iov: UserPtr => iov.addr(), n: usize => n, off: i64 => off, hi: usize => hi, flags: u32 => flags);
    /// fsync(2).
    fsync = fsync(fd: i32 => fd);
    /// fdatasync(2).
    fdatasync = fdatasync(fd: i32 => fd);
    /// sync_file_range(2).
    sync_file_range = sync_file_range(fd: i32 => fd, off: i64 => off, len: i64 => len, flags: u32 => flags);
    /// fallocate(2).
    fallocate = fallocate(fd: i32 => fd, mode: u32 => mode, off: i64 => off, len: i64 => len);
    /// posix_fadvise(2).
    fadvise = fadvise64(fd: i32 => fd, off: i64 => off, len: i64 => len, advice: u32 => advice);
    /// madvise(2).
    madvise = madvise(addr: UserPtr => addr.addr(), len: usize => len, advice: u32 => advice);
    /// ftruncate(2).
    ftruncate = ftruncate(fd: i32 => fd, len: i64 => len);
    /// openat2(2).
    openat2 = openat2(dir: i32 => dir, path: UserPtr => path.addr(), how: UserPtr => how.addr(), size: usize => size);
    /// openat(2).
    openat = openat(dir: i32 => dir, path: UserPtr => path.addr(), flags: u32 => flags, mode: u32 => mode);
    /// close(2).
    close = close(fd: i32 => fd);
    /// close_range(2).
    close_range = close_range(first: u32 => first, last: u32 => last, flags: u32 => flags);
    /// unshare(2).
    unshare = unshare(flags: u32 => flags);
    /// statx(2).
    statx = statx(dir: i32 => dir, path: UserPtr => path.addr(), flags: u32 => flags, mask: u32 => mask, buf: UserPtr => buf.addr());
    /// unlinkat(2).
    unlinkat = unlinkat(dir: i32 => dir, path: UserPtr => path.addr(), flags: u32 => flags);
    /// renameat2(2).
    renameat2 = renameat2(olddir: i32 => olddir, old: UserPtr => old.addr(), newdir: i32 => newdir, new: UserPtr => new.addr(), flags: u32 => flags);
    /// mkdirat(2).
    mkdirat = mkdirat(dir: i32 => dir, path: UserPtr => path.addr(), mode: u32 => mode);
    /// symlinkat(2).
    symlinkat = symlinkat(target: UserPtr => target.addr(), dir: i32 => dir, path: UserPtr => path.addr());
    /// linkat(2).
    linkat = linkat(olddir: i32 => olddir, old: UserPtr => old.addr(), newdir: i32 => newdir, new: UserPtr => new.addr(), flags: u32 => flags);
    /// setxattr(2): `size` in bytes, `flags` are `XATTR_*`.
    setxattr = setxattr(path: UserPtr => path.addr(), name: UserPtr => name.addr(), value: UserPtr => value.addr(), size: usize => size, flags: u32 => flags);
    /// fsetxattr(2): `size` in bytes, `flags` are `XATTR_*`.
    fsetxattr = fsetxattr(fd: i32 => fd, name: UserPtr => name.addr(), value: UserPtr => value.addr(), size: usize => size, flags: u32 => flags);
    /// getxattr(2): `size` in bytes.
    getxattr = getxattr(path: UserPtr => path.addr(), name: UserPtr => name.addr(), value: UserPtr => value.addr(), size: usize => size);
    /// fgetxattr(2): `size` in bytes.
    fgetxattr = fgetxattr(fd: i32 => fd, name: UserPtr => name.addr(), value: UserPtr => value.addr(), size: usize => size);
    /// splice(2): null offsets for the file positions.
    splice = splice(fd_in: i32 => fd_in, off_in: UserPtr => off_in.addr(), fd_out: i32 => fd_out, off_out: UserPtr => off_out.addr(), len: usize => len, flags: u32 => flags);
    /// tee(2).
    tee = tee(fd_in: i32 => fd_in, fd_out: i32 => fd_out, len: usize => len, flags: u32 => flags);
    /// dup(2): the lowest free number, which children inherit.
    dup = dup(fd: i32 => fd);
    /// epoll_ctl(2).
    epoll_ctl = epoll_ctl(epfd: i32 => epfd, op: u32 => op, fd: i32 => fd, event: UserPtr => event.addr());
    /// accept4(2).
    accept4 = accept4(fd: i32 => fd, addr: UserPtr => addr.addr(), len: UserPtr => len.addr(), flags: u32 => flags);
    /// connect(2).
    connect = connect(fd: i32 => fd, addr: UserPtr => addr.addr(), len: u32 => len);
    /// bind(2).
    bind = bind(fd: i32 => fd, addr: UserPtr => addr.addr(), len: u32 => len);
    /// listen(2).
    listen = listen(fd: i32 => fd, backlog: u32 => backlog);
    /// socket(2).
    socket = socket(domain: u32 => domain, kind: u32 => kind, protocol: u32 => protocol);
    /// shutdown(2).
    shutdown = shutdown(fd: i32 => fd, how: u32 => how);
    /// setsockopt(2): `len` in bytes.
    setsockopt = setsockopt(fd: i32 => fd, level: u32 => level, option: u32 => option, value: UserPtr => value.addr(), len: u32 => len);
    /// getsockname(2).
    getsockname = getsockname(fd: i32 => fd, addr: UserPtr => addr.addr(), len: UserPtr => len.addr());
    /// getpeername(2).
    getpeername = getpeername(fd: i32 => fd, addr: UserPtr => addr.addr(), len: UserPtr => len.addr());
    /// sendto(2).
    sendto = sendto(fd: i32 => fd, buf: UserPtr => buf.addr(), len: usize => len, flags: u32 => flags, addr: UserPtr => addr.addr(), addrlen: u32 => addrlen);
    /// recvfrom(2).
    recvfrom = recvfrom(fd: i32 => fd, buf: UserPtr => buf.addr(), len: usize => len, flags: u32 => flags, addr: UserPtr => addr.addr(), addrlen: UserPtr => addrlen.addr());
    /// sendmsg(2).
    sendmsg = sendmsg(fd: i32 => fd, msg: UserPtr => msg.addr(), flags: u32 => flags);
    /// preadv(2): `off` in bytes.
    preadv = preadv(fd: i32 => fd, iov: UserPtr => iov.addr(), n: usize => n, off: i64 => off, hi: usize => hi);
    /// pwritev(2): `off` in bytes.
    pwritev = pwritev(fd: i32 => fd, iov: UserPtr => iov.addr(), n: usize => n, off: i64 => off, hi: usize => hi);
    /// readv(2), at the file position.
    readv = readv(fd: i32 => fd, iov: UserPtr => iov.addr(), n: usize => n);
    /// writev(2), at the file position.
    writev = writev(fd: i32 => fd, iov: UserPtr => iov.addr(), n: usize => n);
    /// utimensat(2).
    utimensat = utimensat(dir: i32 => dir, path: UserPtr => path.addr(), times: UserPtr => times.addr(), flags: u32 => flags);
    /// memfd_create(2).
    memfd_create = memfd_create(name: UserPtr => name.addr(), flags: u32 => flags);
    /// pipe2(2).
    pipe2 = pipe2(fds: UserPtr => fds.addr(), flags: u32 => flags);
    /// pipe(2).
    old_pipe = pipe(fds: UserPtr => fds.addr());
    /// fcntl(2), of the operations that take a number.
    fcntl = fcntl(fd: i32 => fd, op: u32 => op, arg: u32 => arg);
    /// ppoll(2), with the thread's signal mask.
    ppoll = ppoll(files: UserPtr => files.addr(), n: usize => n, timeout: UserPtr => timeout.addr(), mask: usize => mask);
    /// fstat(2), of the structure itself.
    raw_fstat = fstat(fd: i32 => fd, stat: UserPtr => stat.addr());
    /// newfstatat(2).
    newfstatat = newfstatat(dir: i32 => dir, path: UserPtr => path.addr(), stat: UserPtr => stat.addr(), flags: u32 => flags);
    /// ioctl(2), of the operations that take an address.
    ioctl = ioctl(fd: i32 => fd, op: u32 => op, arg: UserPtr => arg.addr());
    /// getsockopt(2).
    raw_getsockopt = getsockopt(fd: i32 => fd, level: u32 => level, option: u32 => option, value: UserPtr => value.addr(), len: UserPtr => len.addr());
    /// recvmsg(2).
    recvmsg = recvmsg(fd: i32 => fd, msg: UserPtr => msg.addr(), flags: u32 => flags);
}

/// fcntl(F_GETFL): `O_*` flags of the open file.
///
/// # Errors
/// `EBADF` there is none: a number by `O_PATH` leads to no open file.
pub fn file_flags(fd: i32) -> Result<u32, Errno> {
    let flags = fcntl(fd, F_GETFL, 0)? as u32;
    if flags & O_PATH != 0 { Err(Errno::EBADF) } else { Ok(flags) }
}

/// Whether two numbers are of one open file: fcntl(F_DUPFD_QUERY). Never before Linux 6.10, which
/// does not know.
#[must_use]
pub fn is_same_file(fd: i32, other: i32) -> bool {
    fcntl(fd, F_DUPFD_QUERY, other.cast_unsigned()) == Ok(1)
}

/// fcntl(F_SETFL).
///
/// # Errors
/// `EBADF`.
pub fn set_file_flags(fd: i32, flags: u32) -> Res {
    fcntl(fd, F_SETFL, flags)
}

/// fstat(2), or newfstatat(2) where a filter denies that: it may know only what libc uses.
///
/// # Errors
/// `EBADF`.
pub fn fstat(fd: i32) -> Result<FileStat, Errno> {
    let mut st = MaybeUninit::<linux::general::stat>::zeroed();
    let place = UserPtr::new(st.as_mut_ptr().addr());
    match raw_fstat(fd, place) {
        Err(errno) if is_denial(errno) => newfstatat(fd, ptr_of_slice(b"\0"), place, AT_EMPTY_PATH)?,
        other => other?,
    };
    // SAFETY: integers only; the kernel has written them.
    let st = unsafe { st.assume_init() };
    Ok(FileStat { mode: st.st_mode, dev: st.st_dev, ino: st.st_ino, size: st.st_size.cast_unsigned(), uid: st.st_uid, rdev: st.st_rdev })
}

/// The path of an open file, by readlink(2) of `/proc/self/fd/N`: its length, at most the buffer's.
///
/// # Errors
/// Those of readlink(2): `ENOENT` where /proc is not mounted.
pub fn path_of(fd: i32, into: &mut [u8]) -> Result<usize, Errno> {
    let path = ProcPath::of(fd);
    // SAFETY: a NUL-terminated path of ours; the kernel writes at most as much as there is room.
    unsafe { syscall!(Sysno::readlink, path.bytes().as_ptr(), into.as_mut_ptr(), into.len()) }
}

/// Whether a descriptor is an eventfd. True also where /proc is not mounted.
#[must_use]
pub fn is_eventfd(fd: i32) -> bool {
    let mut link = [0_u8; 32];
    let n = path_of(fd, &mut link);
    n.map_or(true, |n| link[..n].starts_with(b"anon_inode:[eventfd"))
}

/// poll(2) of one file without waiting: the events that hold now out of `mask` (and `POLLERR`,
/// `POLLHUP`, `POLLNVAL`).
///
/// # Errors
/// Those of poll(2).
pub fn poll_now(fd: i32, mask: u32) -> Result<u32, Errno> {
    #[cfg(loom)]
    if let Some(is_readable) = crate::model::poll(fd) {
        return Ok(if is_readable { mask & linux::general::EPOLLIN } else { 0 });
    }
    poll(fd, mask, 0)
}

#[inline(always)]
fn poll(fd: i32, mask: u32, timeout_ms: i32) -> Result<u32, Errno> {
    let mut file = pollfd { fd, events: (mask as u16).cast_signed(), revents: 0 };
    if let Err(errno) = arch::poll(&mut file, timeout_ms) {
        poll_if_denied(&mut file, timeout_ms, errno)?;
    }
    Ok(file.revents.cast_unsigned().into())
}

/// The same by ppoll(2), where a filter denies poll(2).
#[cold]
fn poll_if_denied(file: &mut pollfd, timeout_ms: i32, errno: Errno) -> Result<(), Errno> {
    if !is_denial(errno) {
        return Err(errno);
    }
    let timeout = clock::timespec(u64::from(timeout_ms.unsigned_abs()) * 1_000_000);
    let timeout = if timeout_ms < 0 { UserPtr::NULL } else { ptr_of(&timeout) };
    ppoll(ptr_of_mut(file), 1, timeout, 0).map(drop)
}

/// `SO_ERROR` of a socket: the errno of a connection attempt, 0 for none.
///
/// # Errors
/// `ENOTSOCK`, `EBADF`.
pub fn socket_error(fd: i32) -> Result<i32, Errno> {
    socket_option(fd, SO_ERROR)
}

/// The address of the engine's own memory, for calls that take a pointer to an argument block that
/// the engine keeps (iovecs, paths, message headers copied from the program).
///
/// The kernel reads it, or writes to it for the caller. The borrow keeps it alive only while the
/// caller does.
#[inline]
pub fn ptr_of<T>(value: &T) -> UserPtr {
    UserPtr::new(core::ptr::from_ref(value) as usize)
}

/// As [`ptr_of`], for memory that the kernel writes to.
#[inline]
pub fn ptr_of_mut<T>(value: &mut T) -> UserPtr {
    UserPtr::new(core::ptr::from_mut(value) as usize)
}

/// As [`ptr_of`], for a slice.
#[inline]
pub fn ptr_of_slice<T>(value: &[T]) -> UserPtr {
    UserPtr::new(value.as_ptr() as usize)
}

/// poll(2) of one file: waits without limit until one of the events in `mask` (or an error) holds.
///
/// # Errors
/// `EINTR`.
pub fn poll_wait(fd: i32, mask: u32) -> Result<u32, Errno> {
    poll(fd, mask, -1)
}

/// getsockopt(2) at `SOL_SOCKET`, of an option that is an int.
///
/// # Errors
/// `ENOTSOCK`, `EBADF`.
pub fn socket_option(fd: i32, option: u32) -> Result<i32, Errno> {
    int_option(fd, SOL_SOCKET, option)
}

/// getsockopt(2) of an option that is an int.
///
/// # Errors
/// `ENOTSOCK`, `EBADF`; `ENOPROTOOPT`, `EOPNOTSUPP` the socket has no such option.
pub fn int_option(fd: i32, level: u32, option: u32) -> Result<i32, Errno> {
    let mut value = 0_i32;
    getsockopt(fd, level, option, ptr_of_mut(&mut value), 4)?;
    Ok(value)
}

/// Whether a descriptor is a socket of the address family `AF_UNIX`.
#[must_use]
pub fn is_unix_socket(fd: i32) -> bool {
    const AF_UNIX: i32 = 1;
    socket_option(fd, SO_DOMAIN) == Ok(AF_UNIX)
}

/// getsockopt(2) into the program's memory: how long the value is, bytes, of at most `len`.
///
/// # Errors
/// Those of getsockopt(2).
pub fn getsockopt(fd: i32, level: u32, option: u32, value: UserPtr, mut len: u32) -> Res {
    raw_getsockopt(fd, level, option, value, ptr_of_mut(&mut len))?;
    Ok(len as usize)
}

/// ioctl(BLKDISCARD): `start` and `len` in bytes.
///
/// # Errors
/// `EOPNOTSUPP`, `EBADF` opened for reading, `EPERM` a read-only device, `EINVAL` a bad range, or
/// one of another file's.
pub fn discard_blocks(fd: i32, start: u64, len: u64) -> Res {
    ioctl(fd, BLKDISCARD, ptr_of(&[start, len]))
}

/// ioctl(TIOCOUTQ): bytes that a socket has not sent yet, or that its peer has not confirmed.
///
/// # Errors
/// `EINVAL`, `ENOTTY`, `EBADF`.
pub fn bytes_unsent(fd: i32) -> Result<i32, Errno> {
    let mut value = 0_i32;
    ioctl(fd, TIOCOUTQ, ptr_of_mut(&mut value))?;
    Ok(value)
}

/// ioctl(FIONREAD): bytes that can be read now.
///
/// # Errors
/// `EINVAL`, `ENOTTY`, `EBADF`.
pub fn bytes_readable(fd: i32) -> Result<i32, Errno> {
    let mut value = 0_i32;
    ioctl(fd, FIONREAD, ptr_of_mut(&mut value))?;
    Ok(value)
}

/// epoll_wait(2) without waiting: how many of at most `most` events were stored.
///
/// # Errors
/// `EINVAL` no epoll set, or an impossible `most`; `EFAULT`.
pub fn epoll_now(epfd: i32, events: UserPtr, most: u32) -> Res {
    // SAFETY: the events' address is the program's and checked by the kernel; no signal mask.
    unsafe { syscall!(Sysno::epoll_pwait, epfd, events.addr(), most as i32, 0, 0, 8) }
}

/// pipe2(2), or pipe(2) where a filter denies that: the numbers to read from and to write to.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `EINVAL`, `ENOPKG`.
pub fn pipe(flags: u32) -> Result<[i32; 2], Errno> {
    let mut ends = [0_i32; 2];
    match pipe2(ptr_of_mut(&mut ends), flags) {
        Err(errno) if is_denial(errno) && flags & !(O_CLOEXEC | O_NONBLOCK | O_DIRECT) == 0 => {
            old_pipe(ptr_of_mut(&mut ends))?;
            for end in ends {
                fcntl(end, F_SETFD, if flags & O_CLOEXEC == 0 { 0 } else { FD_CLOEXEC })?;
                fcntl(end, F_SETFL, flags & !O_CLOEXEC)?;
            }
        }
        other => drop(other?),
    }
    Ok(ends)
}

/// A duplicate with the lowest free number, close-on-exec.
///
/// # Errors
/// `EBADF`, `EMFILE`.
pub fn dup_cloexec(fd: i32) -> Res {
    fcntl(fd, F_DUPFD_CLOEXEC, 0)
}

/// fcntl(F_SETLK): acquires, or releases, this process' record lock on the first byte of a file. On
/// a socket it locks nothing but this byte among the processes that share the socket.
///
/// # Errors
/// `EAGAIN` another process has it; others where the file cannot be locked.
pub fn set_record_lock(fd: i32, is_locked: bool) -> Res {
    let kind = if is_locked { F_WRLCK } else { F_UNLCK };
    let lock = flock { l_type: kind as i16, l_whence: SEEK_SET as i16, l_start: 0, l_len: 1, l_pid: 0 };
    // SAFETY: the kernel reads a live structure.
    unsafe { syscall!(Sysno::fcntl, fd, F_SETLK, &raw const lock) }
}
