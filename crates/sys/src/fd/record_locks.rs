//! Closing a number of a program's file without taking the program's record locks away.
//!
//! close(2) of any number of a file drops all locks of fcntl(2) that the process has on the file.
//! The kernel's ring refers to files without numbers, so a program does not expect to lose a lock
//! when a registered file is unregistered or a request ends. Nothing removes a number from a
//! process' table without dropping them: dup2(2) onto it and the end of a thread drop them too.
//!
//! So a number on whose file this process has a lock is not closed yet but *lingers*. It is closed
//! when the locks are gone: with the program's own close of the file, which drops them, or at the
//! next close here or in the program after an unlock.
//!
//! `F_OFD_GETLK` tells whether there is a lock, since locks of the process conflict with those of
//! an open file. It names one lock; if that is another process', `/proc/locks` has them all.
//!
//! Differs: a lock that another thread takes between the question and the close is lost.

use super::leaving::LeavingNumber;
use crate::fd_table;
use crate::io;
use crate::linux::general::{AT_FDCWD, F_OFD_GETLK, F_UNLCK, F_WRLCK, SEEK_SET, flock};
use crate::process;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use syscalls::{Sysno, syscall};

/// Whether a number may linger.
static ANY_LINGERS: AtomicBool = AtomicBool::new(false);

/// Closes a number that the engine has of a file of the program's, now or when no lock is lost.
pub fn close_keeping_locks(fd: i32) {
    close_or_linger(LeavingNumber::begin(fd));
}

/// As [`close_keeping_locks`].
pub(super) fn close_or_linger(mut leaving: LeavingNumber) {
    if has_lock(leaving.number()) {
        match leaving.linger() {
            Ok(()) => return ANY_LINGERS.store(true, SeqCst),
            Err(not_covered) => leaving = not_covered,
        }
    }
    leaving.close();
    if ANY_LINGERS.load(Relaxed) {
        close_unlocked();
    }
}

/// Whether the program's closes are of interest here.
#[inline]
#[must_use]
pub fn any_number_lingers() -> bool {
    ANY_LINGERS.load(Relaxed)
}

/// The program is about to close a number, which drops the locks on its file. One relaxed load.
#[inline]
pub fn before_programs_close(fd: i32) {
    if ANY_LINGERS.load(Relaxed) {
        close_with(fd);
    }
}

/// Closes the lingering numbers of the same file, and those whose locks are gone.
#[cold]
fn close_with(fd: i32) {
    // A vfork child shares this memory, but neither the locks nor the numbers.
    if process::pid_now() != process::pid() {
        return;
    }
    if let Ok(closed) = io::fstat(fd) {
        close_lingering(|other| io::fstat(other).is_ok_and(|stat| (stat.dev, stat.ino) == (closed.dev, closed.ino)));
    }
    close_unlocked();
}

fn close_unlocked() {
    close_lingering(|fd| !has_lock(fd));
}

fn close_lingering(may_close: impl Fn(i32) -> bool) {
    let mut next = fd_table::next_lingering(0);
    while let Some(fd) = next {
        // Of two threads here one closes it.
        if may_close(fd)
            && let Some(leaving) = LeavingNumber::of_lingering(fd)
        {
            leaving.close();
        }
        next = fd_table::next_lingering(fd + 1);
    }
    // In this order: another thread may have marked one meanwhile.
    ANY_LINGERS.store(false, SeqCst);
    if fd_table::next_lingering(0).is_some() {
        ANY_LINGERS.store(true, SeqCst);
    }
}

/// Whether this process has a record lock on the file. False where the file cannot have any.
fn has_lock(fd: i32) -> bool {
    let mut lock = flock { l_type: F_WRLCK as i16, l_whence: SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 };
    // SAFETY: the kernel reads and writes a live structure.
    if unsafe { syscall!(Sysno::fcntl, fd, F_OFD_GETLK, &raw mut lock) }.is_err() || lock.l_type == F_UNLCK as i16 {
        return false;
    }
    let pid = process::pid_now();
    lock.l_pid.cast_unsigned() == pid || io::fstat(fd).is_ok_and(|stat| is_listed(pid, stat.ino))
}

/// Whether `/proc/locks` has a lock of this process on a file with this inode number. True where it
/// cannot be read.
fn is_listed(pid: u32, ino: u64) -> bool {
    let path = b"/proc/locks\0";
    let Ok(list) = io::openat(AT_FDCWD, io::ptr_of_slice(path), io::O_RDONLY | io::O_CLOEXEC, 0) else { return true };
    let list = io::number_of(list);
    let mut text = [0_u8; 4096];
    let mut kept = 0;
    let found = loop {
        let room = &mut text[kept..];
        let n = match io::read(list, io::ptr_of_mut(&mut room[0]), room.len()) {
            Ok(0) => break false,
            Ok(n) => n,
            Err(_) => break true,
        };
        let len = kept + n;
        let end = text[..len].iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        if text[..end].split(|&byte| byte == b'\n').any(|line| is_lock_of(line, pid, ino)) {
            break true;
        }
        text.copy_within(end..len, 0);
        kept = len - end;
        if kept == text.len() {
            break true;
        }
    };
    let _ = io::close(list);
    found
}

/// `1: POSIX  ADVISORY  WRITE 19814 fe:00:1234 10 14`: number, kind, mode, access, process, file.
fn is_lock_of(line: &[u8], pid: u32, ino: u64) -> bool {
    let Ok(line) = core::str::from_utf8(line) else { return false };
    let mut words = line.split_ascii_whitespace().skip(1);
    let (kind, owner, file) = (words.next(), words.nth(2), words.next());
    let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
    kind == Some("POSIX") && number(owner) == Some(pid.into()) && number(file.and_then(|file| file.rsplit(':').next())) == Some(ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_locks_are_understood() {
        let line = b"1: POSIX  ADVISORY  WRITE 19814 fe:00:1234 10 14";
        assert!(is_lock_of(line, 19814, 1234));
        assert!(!is_lock_of(line, 19814, 234));
        assert!(!is_lock_of(line, 1981, 1234));
        assert!(!is_lock_of(b"1: -> POSIX  ADVISORY  WRITE 19814 fe:00:1234 10 14", 19814, 1234));
        assert!(!is_lock_of(b"2: FLOCK  ADVISORY  WRITE 19814 fe:00:1234 0 EOF", 19814, 1234));
        assert!(!is_lock_of(b"", 0, 0));
    }
}
