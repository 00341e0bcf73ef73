//! libc's functions, which come after ours in the search order.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicUsize, Ordering};

use uringlet_sys::Sysno;
use uringlet_sys::passthrough::pass_through;
use uringlet_sys::static_ref::StaticRef;

use super::errno::{self, to_libc_result};
use crate::convert::int;
use crate::libc_symbols::{self, behind_ours};
use crate::symbol_table::SymbolTable;

/// A function of libc that one of ours precedes.
#[derive(Debug)]
pub(super) struct NextFunction {
    name: &'static CStr,
    /// The system call with the same arguments and the same meaning, if there is one.
    nr: Option<Sysno>,
    /// Or [`UNKNOWN`], [`MISSING`].
    address: AtomicUsize,
}

/// Not looked up yet.
const UNKNOWN: usize = 0;
/// No object behind ours has it.
const MISSING: usize = 1;

type SixArgFunction = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> isize;

impl NextFunction {
    const fn new(name: &'static CStr, nr: Option<Sysno>) -> Self {
        Self { name, nr, address: AtomicUsize::new(UNKNOWN) }
    }

    /// Takes the function of this object, unless one before it had it.
    fn look_up_in(&self, symbols: &SymbolTable) {
        if self.address.load(Ordering::Relaxed) <= MISSING
            && let Some(address) = symbols.function(self.name)
        {
            self.address.store(address, Ordering::Relaxed);
        }
    }

    /// At the first call.
    #[cold]
    fn look_up(&self) {
        let Some(objects) = BEHIND_OURS.get() else {
            // Before the constructor there is one thread, and objects are being added.
            return behind_ours().for_each(|symbols| self.look_up_in(&symbols));
        };
        objects.iter().for_each(|symbols| self.look_up_in(symbols));
        let _ = self.address.compare_exchange(UNKNOWN, MISSING, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The function, if this libc has it.
    #[inline]
    pub(super) fn function(&self) -> Option<SixArgFunction> {
        if self.address.load(Ordering::Relaxed) == UNKNOWN {
            self.look_up();
        }
        self.known()
    }

    #[inline]
    fn known(&self) -> Option<SixArgFunction> {
        let address = self.address.load(Ordering::Relaxed);
        // SAFETY: a C function that takes up to six integer or pointer arguments, variadic or not,
        // finds them in the same registers (see `arch`).
        (address > MISSING).then(|| unsafe { core::mem::transmute::<usize, SixArgFunction>(address) })
    }

    /// Whether it is libc's own, and no other object's that calls libc's.
    pub(super) fn is_libcs(&self) -> bool {
        self.address() == libc_symbols::address_of(self.name)
    }

    /// The function's address, for a jump.
    pub(super) fn address(&self) -> usize {
        self.function().map_or(0, |function| function as *const () as usize)
    }

    /// Calls libc's function; where this libc lacks it, the system call with the same arguments.
    /// Nothing is left to do after the call, so it can be a jump: no frame of ours is in the way
    /// when the thread is cancelled there.
    #[inline]
    pub(super) fn call(&self, args: [usize; 6]) -> isize {
        let [a1, a2, a3, a4, a5, a6] = args;
        match self.known() {
            // SAFETY: the program's own call, passed on.
            Some(function) => unsafe { function(a1, a2, a3, a4, a5, a6) },
            None => self.call_unknown(a1, a2, a3, a4, a5, a6),
        }
    }

    #[cold]
    #[inline(never)]
    fn call_unknown(&self, a1: usize, a2: usize, a3: usize, a4: usize, a5: usize, a6: usize) -> isize {
        let args = [a1, a2, a3, a4, a5, a6];
        if self.function().is_some() {
            return self.call(args);
        }
        // SAFETY: the program's own call, passed on.
        to_libc_result(self.nr.map_or(-ENOSYS, |nr| unsafe { pass_through(nr, args) }))
    }

    /// As [`call`](Self::call), for functions that return `int`.
    pub(super) fn call_int(&self, args: [usize; 6]) -> c_int {
        int(self.call(args))
    }
}

const ENOSYS: isize = 38;

macro_rules! next_functions {
    ($($constant:ident = $name:literal $($nr:ident)?;)*) => {
        $(pub(super) static $constant: NextFunction = NextFunction::new($name, next_functions!(@nr $($nr)?));)*
    };
    (@nr) => { None };
    (@nr $nr:ident) => { Some(Sysno::$nr) };
}

next_functions! {
    MMAP = c"mmap" mmap;
    CLOSE = c"close" close;
    CLOSE_RANGE = c"close_range" close_range;
    CLOSEFROM = c"closefrom";
    FCLOSE = c"fclose";
    FREOPEN = c"freopen";
    FREOPEN64 = c"freopen64";
    PCLOSE = c"pclose";
    ENDMNTENT = c"endmntent";
    CLOSEDIR = c"closedir";
    MQ_CLOSE = c"mq_close" close;
    EXIT = c"_exit" exit_group;
    EXIT_C = c"_Exit" exit_group;
    FILENO = c"fileno";
    DIRFD = c"dirfd";
    DUP = c"dup" dup;
    DUP2 = c"dup2" dup2;
    DUP3 = c"dup3" dup3;
    FCNTL = c"fcntl" fcntl;
    EPOLL_CTL = c"epoll_ctl" epoll_ctl;
    EPOLL_WAIT = c"epoll_wait" epoll_wait;
    EPOLL_PWAIT = c"epoll_pwait" epoll_pwait;
    EPOLL_PWAIT2 = c"epoll_pwait2" epoll_pwait2;
    POLL = c"poll" poll;
    PPOLL = c"ppoll" ppoll;
    POLL_CHK = c"__poll_chk" poll;
    PPOLL_CHK = c"__ppoll_chk" ppoll;
    SELECT = c"select" select;
    PSELECT = c"pselect";
    // libc changes all threads, the system call only one: no replacement.
    SETUID = c"setuid";
    SETGID = c"setgid";
    SETEUID = c"seteuid";
    SETEGID = c"setegid";
    SETREUID = c"setreuid";
    SETREGID = c"setregid";
    SETRESUID = c"setresuid";
    SETRESGID = c"setresgid";
    SETGROUPS = c"setgroups";
    SETFSUID = c"setfsuid";
    SETFSGID = c"setfsgid";
    INITGROUPS = c"initgroups";
    CAPSET = c"capset" capset;
    UNSHARE = c"unshare" unshare;
    SETNS = c"setns" setns;
    PRCTL = c"prctl" prctl;
    EXECVE = c"execve" execve;
    EXECVEAT = c"execveat" execveat;
    FEXECVE = c"fexecve";
    EXECV = c"execv";
    EXECVP = c"execvp";
    EXECVPE = c"execvpe";
    EXECL = c"execl";
    EXECLP = c"execlp";
    EXECLE = c"execle";
    POSIX_SPAWN = c"posix_spawn";
    POSIX_SPAWNP = c"posix_spawnp";
    SYSTEM = c"system";
    POPEN = c"popen";
    OPEN = c"open" open;
    OPEN64 = c"open64" open;
    OPEN_2 = c"__open_2";
    OPEN64_2 = c"__open64_2";
    OPENAT = c"openat" openat;
    OPENAT64 = c"openat64" openat;
    OPENAT_2 = c"__openat_2";
    OPENAT64_2 = c"__openat64_2";
    STAT = c"stat" stat;
    STAT64 = c"stat64" stat;
    LSTAT = c"lstat" lstat;
    LSTAT64 = c"lstat64" lstat;
    STATX = c"statx" statx;
    FSTATAT = c"fstatat" newfstatat;
    FSTATAT64 = c"fstatat64" newfstatat;
    XSTAT = c"__xstat";
    XSTAT64 = c"__xstat64";
    LXSTAT = c"__lxstat";
    LXSTAT64 = c"__lxstat64";
    FXSTATAT = c"__fxstatat";
    FXSTATAT64 = c"__fxstatat64";
    ACCESS = c"access" access;
    EUIDACCESS = c"euidaccess";
    FACCESSAT = c"faccessat" faccessat;
    OPENDIR = c"opendir";
    SCANDIR = c"scandir";
    SCANDIR64 = c"scandir64";
    SCANDIRAT = c"scandirat";
    SCANDIRAT64 = c"scandirat64";
    SETRLIMIT = c"setrlimit" setrlimit;
    PRLIMIT = c"prlimit" prlimit64;
    READ = c"read" read;
    WRITE = c"write" write;
    READV = c"readv" readv;
    WRITEV = c"writev" writev;
    SENDMSG = c"sendmsg" sendmsg;
    SENDMMSG = c"sendmmsg" sendmmsg;
    PTHREAD_SETCANCELTYPE = c"pthread_setcanceltype";
    PTHREAD_CREATE = c"pthread_create";
    PTHREAD_CANCEL = c"pthread_cancel";
    PTHREAD_JOIN = c"pthread_join";
    PTHREAD_KEY_CREATE = c"pthread_key_create";
    PTHREAD_KEY_DELETE = c"pthread_key_delete";
    PTHREAD_GETSPECIFIC = c"pthread_getspecific";
    PTHREAD_SETSPECIFIC = c"pthread_setspecific";
    MPROTECT = c"mprotect" mprotect;
    PKEY_MPROTECT = c"pkey_mprotect" pkey_mprotect;
    SIGPROCMASK = c"sigprocmask";
    PTHREAD_SIGMASK = c"pthread_sigmask";
    SIGACTION = c"sigaction";
    SIGNAL = c"signal";
    BSD_SIGNAL = c"bsd_signal";
    SYSV_SIGNAL = c"sysv_signal";
    UNDERSCORE_SYSV_SIGNAL = c"__sysv_signal";
    SSIGNAL = c"ssignal";
    SIGSET = c"sigset";
    DL_FIND_OBJECT = c"_dl_find_object";
}

/// The objects behind ours when the program starts; they are never unloaded.
static BEHIND_OURS: StaticRef<Vec<SymbolTable>> = StaticRef::new();

/// Notes the objects in the constructor: later the dynamic linker's list may change meanwhile. Most
/// processes call few of the functions, so each is looked up at its first call.
pub(crate) fn note_objects() {
    errno::resolve();
    BEHIND_OURS.set(Box::leak(Box::new(behind_ours().collect())));
}
