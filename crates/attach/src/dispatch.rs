//! What the engine does with an intercepted system call: by number, whichever entry it came by.

use uringlet::{ENGINE, IdentityChange};
use uringlet_sys::passthrough::pass_through;
use uringlet_sys::{AppPromise, Sysno, UserPtr};

use crate::arch::CallFrame;
use crate::convert::{int, low_i32, low_u32};
use crate::disposition::Disposition;
use crate::{dup, in_use, polled_fds, signals, symbols};

/// Handles a call. The program's thread is on an engine stack here, its own registers are in
/// `call`.
pub(crate) unsafe extern "C" fn dispatch(call: &CallFrame) -> Disposition {
    use Disposition::{Handled, Passthrough};
    let Some(nr) = Sysno::new(call.nr) else { return Passthrough };
    let args @ [a1, a2, a3, a4, a5, a6] = call.args();
    match nr {
        Sysno::io_uring_enter => Handled(ENGINE.enter(low_u32(a1), low_u32(a2), low_u32(a3), low_u32(a4), UserPtr::new(a5), a6)),
        Sysno::io_uring_setup => Handled(setup(low_u32(a1), UserPtr::new(a2))),
        Sysno::io_uring_register => Handled(ENGINE.register(low_u32(a1), low_u32(a2), UserPtr::new(a3), low_u32(a4))),
        Sysno::mmap => Disposition::of(ENGINE.mmap(a1, a2, low_u32(a3), low_u32(a4), low_i32(a5), a6 as u64)),
        Sysno::close => Disposition::of(ENGINE.close(low_i32(a1))),
        Sysno::close_range => match ENGINE.close_range(low_u32(a1), low_u32(a2), low_u32(a3)) {
            Some(result) => Handled(result),
            None => change_identity(nr, args),
        },
        Sysno::dup | Sysno::dup2 | Sysno::dup3 | Sysno::fcntl => duplicate(nr, args),
        Sysno::epoll_ctl => {
            polled_fds::before_epoll_ctl(low_i32(a2), low_i32(a3));
            Passthrough
        }
        Sysno::epoll_wait | Sysno::epoll_pwait | Sysno::epoll_pwait2 => {
            polled_fds::settle();
            Passthrough
        }
        Sysno::poll | Sysno::ppoll => {
            polled_fds::before_poll(a1, a2);
            Passthrough
        }
        Sysno::select | Sysno::pselect6 => {
            polled_fds::before_select(a1, [a2, a3, a4]);
            Passthrough
        }
        Sysno::rt_sigaction => set_signal_action(args),
        _ => change_identity(nr, args),
    }
}

fn setup(entries: u32, params: UserPtr) -> isize {
    in_use::begin();
    signals::intercept();
    symbols::before_ring();
    // SAFETY: the program made this very call to the kernel's io_uring, whose rules the promise
    // states.
    let promise = unsafe { AppPromise::given() };
    ENGINE.setup(promise, entries, params)
}

/// Issues the call as the program asked for it.
fn issue(nr: Sysno, args: [usize; 6]) -> isize {
    // SAFETY: the program's own call with the program's own arguments.
    unsafe { pass_through(nr, args) }
}

fn duplicate(nr: Sysno, args: [usize; 6]) -> Disposition {
    let [old, new, ..] = args;
    match nr {
        Sysno::fcntl if !dup::is_dup_command(low_i32(new)) => return Disposition::Passthrough,
        Sysno::dup2 | Sysno::dup3 => {
            if let Err(errno) = ENGINE.before_dup(low_i32(old), low_i32(new)) {
                return Disposition::Handled(-(errno.into_raw() as isize));
            }
        }
        _ => {}
    }
    let result = issue(nr, args);
    if result >= 0 && int(result) != low_i32(old) {
        ENGINE.duped(low_i32(old), int(result));
    }
    Disposition::Handled(result)
}

fn change_identity(nr: Sysno, args: [usize; 6]) -> Disposition {
    let Some(change) = IdentityChange::of(nr, [args[0], args[1], args[2]]) else { return Disposition::Passthrough };
    ENGINE.before_identity_call(change);
    let result = issue(nr, args);
    ENGINE.after_identity_call(change, result);
    Disposition::Handled(result)
}

/// rt_sigaction(2) without libc.
fn set_signal_action(args: [usize; 6]) -> Disposition {
    let [signal, new, old, ..] = args;
    let Some(before) = signals::intercepted_handler(low_u32(signal)) else { return Disposition::Passthrough };
    let result = issue(Sysno::rt_sigaction, args);
    if result == 0 {
        if old != 0 {
            signals::show_own_action(UserPtr::new(old), before);
        }
        if new != 0 {
            signals::action_changed(low_u32(signal));
        }
    }
    Disposition::Handled(result)
}
