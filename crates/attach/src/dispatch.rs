//! What becomes of a system call that reached us: by number, whichever road it came.

use syscalls::Sysno;
use uringlet::ENGINE;
use uringlet_sys::{AppPromise, UserPtr};

use crate::entry::{CallFrame, Disposition};
use crate::safe_read;
use crate::signals;
use crate::symbols::polling;

/// The numbers that concern the engine.
const NUMBERS: [Sysno; 27] = [
    Sysno::io_uring_setup,
    Sysno::io_uring_enter,
    Sysno::io_uring_register,
    Sysno::mmap,
    Sysno::close,
    Sysno::close_range,
    Sysno::dup,
    Sysno::dup2,
    Sysno::dup3,
    Sysno::fcntl,
    Sysno::epoll_ctl,
    Sysno::epoll_wait,
    Sysno::epoll_pwait,
    Sysno::epoll_pwait2,
    Sysno::poll,
    Sysno::ppoll,
    Sysno::select,
    Sysno::pselect6,
    Sysno::setuid,
    Sysno::setgid,
    Sysno::setreuid,
    Sysno::setregid,
    Sysno::setresuid,
    Sysno::setresgid,
    Sysno::setgroups,
    Sysno::setfsuid,
    Sysno::capset,
];
const SETFSGID: Sysno = Sysno::setfsgid;

/// 1 at each number that concerns the engine. Indexed by the low 16 bits of `rax`, so that a lookup needs no comparison (and leaves the flags alone);
/// [`dispatch`] looks at the whole number.
pub(crate) static INTERCEPTED: [u8; 1 << 16] = {
    let mut table = [0; 1 << 16];
    let mut i = 0;
    while i < NUMBERS.len() {
        table[NUMBERS[i] as usize] = 1;
        i += 1;
    }
    table[SETFSGID as usize] = 1;
    table
};

/// Whether a call with this number may be ours.
pub(crate) fn is_intercepted(nr: u32) -> bool {
    (nr as usize) < INTERCEPTED.len() && INTERCEPTED[nr as usize] == 1
}

const PLAIN: Disposition = Disposition { value: 0, plain: 1 };

fn done(value: isize) -> Disposition {
    Disposition { value, plain: 0 }
}

fn done_if(value: Option<isize>) -> Disposition {
    value.map_or(PLAIN, done)
}

/// The program's thread is on an engine stack here, its own registers are in `call`.
pub(crate) unsafe extern "C" fn dispatch(call: &CallFrame) -> Disposition {
    let CallFrame { a1, a2, a3, a4, a5, a6, nr, .. } = *call;
    let Some(nr) = Sysno::new(nr) else { return PLAIN };
    match nr {
        Sysno::io_uring_enter => done(ENGINE.enter(a1 as u32, a2 as u32, a3 as u32, a4 as u32, UserPtr::new(a5), a6)),
        Sysno::io_uring_setup => {
            safe_read::note_ring_setup();
            signals::arm();
            // SAFETY: the program made this very call to the kernel's io_uring, which asks of it what the promise says.
            let promise = unsafe { AppPromise::given() };
            done(ENGINE.setup(promise, a1 as u32, UserPtr::new(a2)))
        }
        Sysno::io_uring_register => done(ENGINE.register(a1 as u32, a2 as u32, UserPtr::new(a3), a4 as u32)),
        Sysno::mmap => done_if(ENGINE.mmap(a1, a2, a3 as u32, a4 as u32, a5 as i32, a6 as u64)),
        Sysno::close => done_if(ENGINE.close(a1 as i32)),
        Sysno::close_range => done_if(ENGINE.close_range(a1 as u32, a2 as u32, a3 as u32)),
        Sysno::dup | Sysno::dup2 | Sysno::dup3 | Sysno::fcntl => duplicate(nr, [a1, a2, a3]),
        Sysno::epoll_ctl => {
            polling::before_epoll_ctl(a2 as i32, a3 as i32);
            PLAIN
        }
        Sysno::epoll_wait | Sysno::epoll_pwait | Sysno::epoll_pwait2 => {
            polling::settle();
            PLAIN
        }
        Sysno::poll | Sysno::ppoll => {
            polling::before_poll(a1, a2);
            PLAIN
        }
        Sysno::select | Sysno::pselect6 => {
            polling::before_select(a1, [a2, a3, a4]);
            PLAIN
        }
        _ => credentials(nr, [a1, a2, a3]),
    }
}

/// Issues the call as the program asked for it: `value`, or `-errno`.
pub(crate) fn pass_through(nr: Sysno, args: [usize; 3]) -> isize {
    // SAFETY: the program's own call with the program's own arguments.
    unsafe { syscalls::raw::syscall3(nr as usize, args[0], args[1], args[2]) as isize }
}

const F_DUPFD: usize = 0;
const F_DUPFD_CLOEXEC: usize = 1030;
const F_GETFD: usize = 1;

fn duplicate(nr: Sysno, args: [usize; 3]) -> Disposition {
    let [old, new, _] = args;
    match nr {
        Sysno::fcntl if new != F_DUPFD && new != F_DUPFD_CLOEXEC => return PLAIN,
        Sysno::dup2 | Sysno::dup3 => before_replace(old as i32, new as i32),
        _ => {}
    }
    let result = pass_through(nr, args);
    if result >= 0 && result as i32 != old as i32 {
        ENGINE.duped(old as i32, result as i32);
    }
    done(result)
}

/// dup2 and dup3 close `new`, but only if they succeed.
pub(crate) fn before_replace(old: i32, new: i32) {
    if old != new && pass_through(Sysno::fcntl, [old as usize, F_GETFD, 0]) >= 0 {
        ENGINE.before_replace(new);
    }
}

fn credentials(nr: Sysno, args: [usize; 3]) -> Disposition {
    if !is_intercepted(nr as u32) {
        return PLAIN;
    }
    let result = pass_through(nr, args);
    if result >= 0 {
        ENGINE.credentials_changed();
    }
    done(result)
}
