//! `IORING_OP_OPENAT, OPENAT2, CLOSE`.

use super::path::{UserPath, refuse_fixed};
use crate::intercepted;
use crate::ops::buffers::release;
use crate::ops::issue::{Issue, PrepCx, unused};
use crate::ops::outcome::Outcome;
use crate::ring_resources::RingResources;
use uringlet_abi::{FILE_INDEX_ALLOC, Sqe};
use uringlet_sys::fd::close_keeping_locks;
use uringlet_sys::io::{self, O_CLOEXEC, O_NONBLOCK, OpenHow};
use uringlet_sys::{Errno, UserPtr, fd_table, user};

const O_CREAT: u64 = 0o100;
const O_TRUNC: u64 = 0o1000;
const O_DIRECTORY: u64 = 0o200_000;
const O_NOFOLLOW: u64 = 0o400_000;
const O_PATH: u64 = 0o10_000_000;
/// `O_TMPFILE` without the `O_DIRECTORY` in it.
const TMPFILE: u64 = 0o20_000_000;
/// Every flag that open(2) knows. It ignores others; openat2(2) refuses them.
const KNOWN_FLAGS: u64 = 0o37_777_703;
/// The flags that are valid with `O_PATH`; open(2) ignores others.
const PATH_FLAGS: u64 = O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC as u64;
/// Permission bits that a new file can have.
const MODE_BITS: u64 = 0o7777;
/// These flags create or truncate a file, which may wait for a disk.
const MAKES: u64 = O_CREAT | O_TRUNC | TMPFILE;
/// `RESOLVE_CACHED`: EAGAIN rather than I/O.
const RESOLVE_CACHED: u64 = 0x20;
const HOW_SIZE: usize = size_of::<OpenHow>();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenCall {
    Openat,
    Openat2,
}

/// A validated open.
#[derive(Debug)]
pub(crate) struct Open {
    call: OpenCall,
    dir: i32,
    pub(super) path: UserPath,
    how: OpenHow,
    /// Slot + 1 to register the file in; 0 for a plain descriptor.
    file_index: u32,
    /// A try has found out.
    pub(super) needs_io: bool,
    /// Opened on a worker, not registered yet.
    uninstalled: Option<UninstalledFd>,
}

#[inline]
pub(super) fn prep_openat(sqe: &Sqe, cx: &PrepCx) -> Result<Open, Errno> {
    prep(sqe, cx, OpenCall::Openat, openat_how(u64::from(sqe.op_flags), u64::from(sqe.len)))
}

pub(super) fn prep_openat2(sqe: &Sqe, cx: &PrepCx) -> Result<Open, Errno> {
    prep(sqe, cx, OpenCall::Openat2, read_how(UserPtr::at(sqe.addr2()), sqe.len as usize)?)
}

fn prep(sqe: &Sqe, cx: &PrepCx, call: OpenCall, how: OpenHow) -> Result<Open, Errno> {
    unused(&[u64::from(sqe.buf_index)])?;
    refuse_fixed(cx)?;
    let path = UserPath::prep(sqe.addr, 0, cx)?;
    let file_index = sqe.file_index();
    if file_index != 0 && how.flags & u64::from(O_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Open { call, dir: sqe.fd, path, how, file_index, needs_io: false, uninstalled: None })
}

impl Open {
    /// Flags, mode and resolve as a filter of requests sees them: as a 64-bit kernel prepares them.
    pub(crate) fn filter_details(&self) -> [u64; 3] {
        const O_LARGEFILE: u64 = 0o100_000;
        let large = if self.how.flags & O_PATH == 0 { O_LARGEFILE } else { 0 };
        [self.how.flags | large, self.how.mode, self.how.resolve]
    }
}

/// The arguments as open(2) interprets them: it never refuses a flag.
fn openat_how(flags: u64, mode: u64) -> OpenHow {
    let flags = flags & if flags & O_PATH != 0 { PATH_FLAGS } else { KNOWN_FLAGS };
    let mode = if flags & (O_CREAT | TMPFILE) != 0 { mode & MODE_BITS } else { 0 };
    OpenHow { flags, mode, resolve: 0 }
}

/// Reads an open_how of `len` bytes. The bytes after the known fields must be zero.
fn read_how(addr: UserPtr, len: usize) -> Result<OpenHow, Errno> {
    const CHUNK: usize = 512;
    if len < HOW_SIZE {
        return Err(Errno::EINVAL);
    }
    let mut at = HOW_SIZE;
    while at < len {
        // Chunks end at possible page boundaries: an unreadable page must not hide set bytes before
        // it.
        let from = addr.add(at);
        let n = (CHUNK - from.addr() % CHUNK).min(len - at);
        let mut rest = [0_u8; CHUNK];
        user::read_slice(&mut rest[..n], from)?;
        if rest.iter().any(|&b| b != 0) {
            return Err(Errno::E2BIG);
        }
        at += n;
    }
    user::read(addr)
}

impl Open {
    /// Opens names that the dentry cache has, without sleeping on a FIFO or a device: with
    /// `O_NONBLOCK`, which is cleared again if the program did not set it.
    #[inline(always)]
    pub(super) fn try_issue(&mut self, ring: &mut RingResources) -> Issue {
        if self.how.flags & MAKES != 0 || self.needs_io {
            return Issue::Blocks;
        }
        let mut how = self.effective_how();
        how.resolve |= RESOLVE_CACHED;
        let must_restore = how.flags & (u64::from(O_NONBLOCK) | O_PATH) == 0;
        if must_restore {
            how.flags |= u64::from(O_NONBLOCK);
        }
        match io::openat2(self.dir, self.path.ptr(), io::ptr_of(&how), HOW_SIZE) {
            Ok(fd) => {
                if must_restore && let Err(errno) = io::set_file_flags(fd as i32, self.how.flags as u32) {
                    close_keeping_locks(io::number_of(fd));
                    return errno.into();
                }
                Issue::Complete(self.finish(ring, Outcome::ok(fd as i32)))
            }
            Err(Errno::EAGAIN) if self.how.resolve & RESOLVE_CACHED != 0 => Errno::EAGAIN.into(),
            // Not cached; an unknown call or flag; or an error that may come from a seccomp filter.
            Err(Errno::EAGAIN | Errno::ENOSYS | Errno::EINVAL | Errno::E2BIG | Errno::EPERM) => Issue::Blocks,
            Err(errno) => errno.into(),
        }
    }

    /// Returns the descriptor even if it is to be registered: [`finish`](Self::finish) moves it to
    /// its slot.
    pub(super) fn run(&mut self) -> Outcome {
        let how = self.effective_how();
        let opened = match self.call {
            OpenCall::Openat => self.plain(&how),
            OpenCall::Openat2 => match io::openat2(self.dir, self.path.ptr(), io::ptr_of(&how), HOW_SIZE) {
                // openat2 is missing: the older call does the same if no newer feature is used.
                Err(Errno::ENOSYS | Errno::EPERM) if self.is_plain() => self.plain(&how),
                other => other,
            },
        };
        if let (Ok(fd), 1..) = (opened, self.file_index) {
            self.uninstalled = Some(UninstalledFd(fd as i32));
        }
        opened.into()
    }

    fn plain(&self, how: &OpenHow) -> Result<usize, Errno> {
        io::openat(self.dir, self.path.ptr(), how.flags as u32, how.mode as u32)
    }

    /// Whether openat(2) does the same as openat2(2) with these arguments.
    fn is_plain(&self) -> bool {
        let plain = openat_how(self.how.flags, self.how.mode);
        self.how.resolve == 0 && plain.flags == self.how.flags && plain.mode == self.how.mode
    }

    /// A descriptor that will be registered must not leak into a child while it has a number.
    fn effective_how(&self) -> OpenHow {
        let mut how = self.how;
        if self.file_index != 0 {
            how.flags |= u64::from(O_CLOEXEC);
        }
        how
    }

    /// Runs under the ring's lock: registers the new descriptor if that was requested.
    pub(super) fn finish(&mut self, ring: &mut RingResources, outcome: Outcome) -> Outcome {
        core::mem::forget(self.uninstalled.take());
        match outcome.res {
            fd if fd < 0 => outcome,
            fd if self.file_index != 0 => install_file(ring, fd, self.file_index).into(),
            fd => {
                // The number may have been another file's that was closed without the engine's
                // knowledge.
                if !fd_table::is_unused(fd) {
                    fd_table::forget_kind(fd);
                }
                outcome
            }
        }
    }
}

/// A descriptor that is still to be registered: closed with its op if the ring ends before.
#[derive(Debug)]
struct UninstalledFd(i32);

impl Drop for UninstalledFd {
    fn drop(&mut self) {
        close_keeping_locks(self.0);
    }
}

/// Registers a fresh descriptor as the `file_index` of openat, accept and socket requests, and
/// closes the number. Returns 0, or the slot if it was chosen here.
pub(crate) fn install_file(ring: &mut RingResources, fd: i32, file_index: u32) -> Result<usize, Errno> {
    if file_index == FILE_INDEX_ALLOC && !ring.files.is_registered {
        close_keeping_locks(fd);
        return Err(Errno::ENFILE);
    }
    let (slot, old) = ring.files.install_fd(fd, file_index)?;
    release(ring, old);
    Ok(slot as usize)
}

/// A validated close.
#[derive(Debug)]
pub(crate) enum Close {
    /// A descriptor number of the program.
    Fd(i32),
    /// A registered file.
    Slot(u32),
}

#[inline]
pub(super) fn prep_close(sqe: &Sqe, cx: &PrepCx) -> Result<Close, Errno> {
    unused(&[sqe.off, sqe.addr, u64::from(sqe.len), u64::from(sqe.op_flags), u64::from(sqe.buf_index)])?;
    refuse_fixed(cx)?;
    let close = match (sqe.file_index(), sqe.fd) {
        (0, fd) => Close::Fd(fd),
        (file_index, 0) => Close::Slot(file_index - 1),
        _ => return Err(Errno::EINVAL),
    };
    Ok(close)
}

impl Close {
    pub(super) fn try_issue(&mut self, ring: &mut RingResources) -> Issue {
        match *self {
            // The last close of a file may wait for a disk, a server or a lingering socket.
            Self::Fd(_) => Issue::Blocks,
            Self::Slot(slot) => empty_slot(ring, slot).into(),
        }
    }

    pub(super) fn run(&mut self) -> Outcome {
        match *self {
            // A ring does not close rings: it could be itself.
            Self::Fd(fd) if fd_table::is_internal(fd) || fd_table::ring_index(fd).is_some() => Outcome::err(Errno::EBADF),
            Self::Fd(fd) => intercepted::close(fd).into(),
            Self::Slot(_) => Outcome::ok(0),
        }
    }

    /// Under the ring's lock.
    pub(super) fn finish(&mut self, ring: &mut RingResources, outcome: Outcome) -> Outcome {
        match *self {
            Self::Fd(_) => outcome,
            Self::Slot(slot) => empty_slot(ring, slot).into(),
        }
    }
}

fn empty_slot(ring: &mut RingResources, slot: u32) -> Result<usize, Errno> {
    if !ring.files.is_registered {
        return Err(Errno::ENXIO);
    }
    let old = ring.files.replace(slot, None)?.ok_or(Errno::EBADF)?;
    ring.release_file(old);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringlet_abi::sqe;

    const CX: PrepCx = PrepCx { setup: 0, sqe_flags: 0, is_after_link: false, is_wide: false };

    fn path() -> u64 {
        io::ptr_of_slice(b"/proc/self/maps\0").addr() as u64
    }

    fn how_at(how: &[u64], len: u32) -> Sqe {
        Sqe { addr: path(), off: io::ptr_of_slice(how).addr() as u64, len, ..Sqe::default() }
    }

    #[test]
    fn openat_ignores_what_open_ignores() {
        let how = openat_how(0x4000_0002, 0o644);
        assert_eq!((how.flags, how.mode), (2, 0));
        let how = openat_how(O_CREAT | 1, 0o177_777);
        assert_eq!((how.flags, how.mode), (O_CREAT | 1, 0o7777));
        let how = openat_how(O_PATH | O_TRUNC | O_CREAT | 2 | u64::from(O_NONBLOCK), 0o644);
        assert_eq!((how.flags, how.mode), (O_PATH, 0));
    }

    #[test]
    fn longer_open_hows_must_end_in_zeroes() {
        let mut how = [0_u64; 700];
        assert_eq!(prep_openat2(&how_at(&how, 23), &CX).err(), Some(Errno::EINVAL));
        assert!(prep_openat2(&how_at(&how, 24), &CX).is_ok());
        assert!(prep_openat2(&how_at(&how, 5600), &CX).is_ok());
        how[699] = 1;
        assert!(prep_openat2(&how_at(&how, 5592), &CX).is_ok());
        assert_eq!(prep_openat2(&how_at(&how, 5593), &CX).err(), Some(Errno::E2BIG));
        assert_eq!(prep_openat2(&Sqe { addr: path(), len: 24, ..Sqe::default() }, &CX).err(), Some(Errno::EFAULT));
        // The structure is read before the other fields are checked.
        assert_eq!(prep_openat2(&Sqe { len: 24, buf_index: 1, ..Sqe::default() }, &CX).err(), Some(Errno::EFAULT));
    }

    #[test]
    fn open_checks_its_fields() {
        let good = Sqe { addr: path(), fd: -100, ..Sqe::default() };
        assert!(prep_openat(&good, &CX).is_ok());
        assert_eq!(prep_openat(&Sqe { buf_index: 1, ..good }, &CX).err(), Some(Errno::EINVAL));
        assert_eq!(prep_openat(&Sqe { addr: 0, ..good }, &CX).err(), Some(Errno::EFAULT));
        assert_eq!(prep_openat(&good, &PrepCx { sqe_flags: sqe::FIXED_FILE, ..CX }).err(), Some(Errno::EBADF));
        let cloexec = Sqe { op_flags: O_CLOEXEC, ..good };
        assert!(prep_openat(&cloexec, &CX).is_ok());
        assert_eq!(prep_openat(&Sqe { splice_fd_in: 1, ..cloexec }, &CX).err(), Some(Errno::EINVAL));
    }

    #[test]
    fn close_checks_its_fields() {
        assert!(matches!(prep_close(&Sqe { fd: 7, ..Sqe::default() }, &CX), Ok(Close::Fd(7))));
        assert!(matches!(prep_close(&Sqe { splice_fd_in: 3, ..Sqe::default() }, &CX), Ok(Close::Slot(2))));
        for bad in [
            Sqe { fd: 7, splice_fd_in: 3, ..Sqe::default() },
            Sqe { off: 1, ..Sqe::default() },
            Sqe { addr: 1, ..Sqe::default() },
            Sqe { len: 1, ..Sqe::default() },
            Sqe { op_flags: 1, ..Sqe::default() },
            Sqe { buf_index: 1, ..Sqe::default() },
        ] {
            assert_eq!(prep_close(&bad, &CX).err(), Some(Errno::EINVAL));
        }
        assert_eq!(prep_close(&Sqe::default(), &PrepCx { sqe_flags: sqe::FIXED_FILE, ..CX }).err(), Some(Errno::EBADF));
    }

    #[test]
    fn only_plain_opens_fall_back_to_openat() {
        let plain = |flags, mode, resolve| prep_openat2(&how_at(&[flags, mode, resolve], 24), &CX).unwrap().is_plain();
        assert!(plain(2, 0, 0));
        assert!(plain(O_CREAT, 0o600, 0));
        assert!(!plain(0, 0o600, 0));
        assert!(!plain(1 << 40, 0, 0));
        assert!(!plain(O_CREAT, 0o200_000, 0));
        assert!(!plain(0, 0, 8));
    }

    #[test]
    fn open_run_uses_the_flags_of_the_program() {
        let sqe = Sqe { addr: path(), fd: -100, splice_fd_in: 1, ..Sqe::default() };
        let mut open = prep_openat(&sqe, &CX).unwrap();
        let fd = open.run().res;
        assert_eq!(io::file_flags(fd).unwrap() & O_NONBLOCK, 0);
        let opened = io::fstat(fd);
        // The ring ended meanwhile, so `finish` is not called.
        drop(open);
        assert_ne!(io::fstat(fd), opened);
    }
}
