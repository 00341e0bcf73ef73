//! What a thread may do, and how it changes that: credentials, working directory, Landlock. All of
//! it is asked from the kernel by plain system calls, so there is no model that could be wrong.

use anyhow::ensure;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use crate::numbers::Fd;

const KEEP: u32 = u32::MAX;

pub(crate) fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

pub(crate) fn effective_user() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

/// How a change of credentials is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallWay {
    /// libc's function: all threads.
    Libc,
    /// libc's `syscall`: this thread.
    Raw,
    /// An instruction of this object's own: this thread.
    Inline,
}

/// Becomes `user`; root is kept as the saved user, so that the thread can come back.
pub(crate) fn become_user(user: u32, way: CallWay) -> anyhow::Result<()> {
    // One user has no right to become another: root first.
    for user in [0, user] {
        let result = match way {
            // SAFETY: no addresses.
            CallWay::Libc => i64::from(unsafe { libc::setresuid(KEEP, user, 0) }),
            // SAFETY: no addresses.
            CallWay::Raw => unsafe { libc::syscall(libc::SYS_setresuid, KEEP, user, 0) },
            CallWay::Inline => inline_setresuid(KEEP, user, 0),
        };
        ensure!(result == 0, "setresuid to {user} by {way:?}: {result} ({})", io::Error::last_os_error());
    }
    Ok(())
}

/// setresuid(2) by an instruction of this object.
fn inline_setresuid(real: u32, effective: u32, saved: u32) -> i64 {
    #[cfg(target_arch = "x86_64")]
    {
        let result: i64;
        // SAFETY: a system call without addresses; the clobbers are those of the instruction.
        unsafe {
            std::arch::asm!(
                "syscall",
                inlateout("rax") libc::SYS_setresuid => result,
                in("rdi") u64::from(real),
                in("rsi") u64::from(effective),
                in("rdx") u64::from(saved),
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
        result
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: no addresses.
    unsafe {
        libc::syscall(libc::SYS_setresuid, real, effective, saved)
    }
}

/// Gives the thread a working directory and a umask of its own.
pub(crate) fn unshare_directory() -> bool {
    // SAFETY: no addresses.
    unsafe { libc::unshare(libc::CLONE_FS) == 0 }
}

/// Confines the thread to files below `folder`, for good. `false`: this kernel has no Landlock, or
/// refuses.
pub(crate) fn confine(folder: &CStr) -> bool {
    const READ_FILE: u64 = 1 << 2;
    const WRITE_FILE: u64 = 1 << 1;
    const PATH_BENEATH: usize = 1;
    #[repr(C, packed)]
    struct PathBeneath {
        allowed: u64,
        parent: RawFd,
    }
    let handled: u64 = READ_FILE | WRITE_FILE;
    // SAFETY: the attribute is one word, as its size says.
    let rules = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, size_of::<u64>(), 0) };
    let Ok(rules) = Fd::of_syscall(rules) else { return false };
    // SAFETY: a string that ends in NUL.
    let Ok(parent) = Fd::of(unsafe { libc::open(folder.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) }) else { return false };
    let beneath = PathBeneath { allowed: handled, parent: parent.number() };
    // SAFETY: a live rule of the kind that is named.
    unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, rules.number(), PATH_BENEATH, &raw const beneath, 0) == 0
            && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_landlock_restrict_self, rules.number(), 0) == 0
    }
}

/// Which file an open led to, or its errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenAnswer {
    /// Device and inode.
    File(u64, u64),
    Refused(i32),
}

impl OpenAnswer {
    /// Of what an open returned, whose descriptor is closed.
    pub(crate) fn of_result(result: i32) -> Self {
        if result < 0 {
            return Self::Refused(-result);
        }
        let Ok(fd) = Fd::of(result) else { return Self::Refused(0) };
        let mut stat = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: fstat fills the structure, whose zeros are a value of it.
        let stat = unsafe {
            libc::fstat(fd.number(), stat.as_mut_ptr());
            stat.assume_init()
        };
        Self::File(stat.st_dev, stat.st_ino)
    }

    /// Of a plain openat(2) by this thread, now.
    pub(crate) fn plain(path: &CStr, flags: i32) -> Self {
        // SAFETY: a string that ends in NUL.
        let result = unsafe { libc::openat(libc::AT_FDCWD, path.as_ptr(), flags, 0) };
        Self::of_result(if result < 0 { -io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { result })
    }
}
