//! What the engine does with an intercepted system call: by number, whichever entry it came by.

use uringlet_core::{ENGINE, IdentityChange};
use uringlet_sys::linux::general::PROT_EXEC;
use uringlet_sys::ring_backend::PR_GET_RING_ENGINE;
use uringlet_sys::{AppPromise, Sysno, UserPtr};

use crate::arch::CallFrame;
use crate::backend::is_kernel_traced;
use crate::convert::{Register, int, low_i32, low_u32};
use crate::disposition::Disposition;
use crate::kernel_call::issue;
use crate::ring_fd::{self, Direction, EINVAL};
use crate::{before_ring, dup, exec, fork, kernel_ring_calls, path_calls, polled_fds, signals, symbols, trap};

/// Handles a call. The program's thread is on an engine stack here, its own registers are in
/// `call`.
pub(crate) unsafe extern "C" fn dispatch(call: &CallFrame) -> Disposition {
    // By far the most frequent: it pays for no other call.
    if call.nr == Sysno::io_uring_enter as usize {
        if is_kernel_traced() {
            return Disposition::Handled(kernel_ring_calls::enter(call.args()));
        }
        let [fd, to_submit, min_complete, flags, arg, arg_len] = call.args();
        return Disposition::Handled(ENGINE.enter(
            low_u32(fd),
            low_u32(to_submit),
            low_u32(min_complete),
            low_u32(flags),
            UserPtr::new(arg),
            arg_len,
        ));
    }
    dispatch_other(call)
}

#[inline(never)]
fn dispatch_other(call: &CallFrame) -> Disposition {
    use Disposition::{Handled, Passthrough};
    let Some(nr) = Sysno::new(call.nr) else { return Passthrough };
    let args @ [a1, a2, a3, a4, a5, a6] = call.args();
    match nr {
        Sysno::io_uring_setup | Sysno::io_uring_register if is_kernel_traced() => Handled(kernel_ring_calls::call(nr, args)),
        Sysno::io_uring_setup => Handled(setup(low_u32(a1), UserPtr::new(a2))),
        Sysno::io_uring_register => Handled(ENGINE.register(low_u32(a1), low_u32(a2), UserPtr::new(a3), low_u32(a4))),
        Sysno::mmap => match ENGINE.mmap(a1, a2, low_u32(a3), low_u32(a4), low_i32(a5), a6 as u64) {
            Some(result) => Handled(result),
            None => protect(nr, args),
        },
        Sysno::mprotect | Sysno::pkey_mprotect => protect(nr, args),
        Sysno::rt_sigprocmask if trap::is_on() => Handled(symbols::change_raw_mask(args)),
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
        Sysno::fork | Sysno::clone | Sysno::clone3 => Disposition::of(fork::call(nr, args)),
        Sysno::prctl if low_u32(a1) == PR_GET_RING_ENGINE && !is_kernel_traced() => Handled(1),
        Sysno::read | Sysno::readv => refuse(ring_fd::refuses_transfer(low_i32(a1), Direction::Read)),
        Sysno::write | Sysno::writev => refuse(ring_fd::refuses_transfer(low_i32(a1), Direction::Write)),
        Sysno::sendmsg => refuse(ENGINE.passes_a_ring(low_i32(a1), UserPtr::new(a2))),
        Sysno::sendmmsg => send_messages(args),
        Sysno::setrlimit | Sysno::prlimit64 => set_limit(nr, args),
        _ => path_calls::call(nr, args, call).unwrap_or_else(|| change_identity(nr, args)),
    }
}

pub(crate) fn setup(entries: u32, params: UserPtr) -> isize {
    before_ring::prepare();
    // SAFETY: the program made this very call to the kernel's io_uring, whose rules the promise
    // states.
    let promise = unsafe { AppPromise::given() };
    ENGINE.setup(promise, entries, params)
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

fn refuse(is_refused: bool) -> Disposition {
    if is_refused { Disposition::Handled(EINVAL) } else { Disposition::Passthrough }
}

/// sendmmsg(2) without libc.
fn send_messages(mut args: [usize; 6]) -> Disposition {
    let [fd, messages, count, ..] = args;
    let refused = ring_fd::first_refused(messages, low_u32(count), |message| ENGINE.passes_a_ring(low_i32(fd), UserPtr::new(message)));
    match refused {
        None => Disposition::Passthrough,
        Some(0) => Disposition::Handled(EINVAL),
        Some(sent) => {
            args[2] = sent.reg();
            Disposition::Handled(issue(Sysno::sendmmsg, args))
        }
    }
}

/// setrlimit(2) and prlimit(2) without libc.
fn set_limit(nr: Sysno, args: [usize; 6]) -> Disposition {
    let result = issue(nr, args);
    if result >= 0 {
        ENGINE.limits_changed();
    }
    Disposition::Handled(result)
}

fn change_identity(nr: Sysno, args: [usize; 6]) -> Disposition {
    let Some(change) = IdentityChange::of(nr, [args[0], args[1], args[2]]) else { return Disposition::Passthrough };
    ENGINE.before_identity_call(change);
    let result = issue(nr, args);
    ENGINE.after_identity_call(change, result);
    exec::note_filter(nr, [args[0], args[1], args[2]], result);
    if change.is_filter && result >= 0 {
        trap::note_filter();
    }
    Disposition::Handled(result)
}

/// mmap(2) and mprotect(2): what becomes code may have to be trapped.
fn protect(nr: Sysno, args: [usize; 6]) -> Disposition {
    let [start, len, protection, ..] = args;
    if low_u32(protection) & PROT_EXEC == 0 || !trap::covers_new_code() {
        return Disposition::Passthrough;
    }
    let result = issue(nr, args);
    if result >= 0 {
        trap::note_code(if nr == Sysno::mmap { result.cast_unsigned() } else { start }, len);
    }
    Disposition::Handled(result)
}

/// rt_sigaction(2) without libc.
fn set_signal_action(args: [usize; 6]) -> Disposition {
    let [signal, new, old, ..] = args;
    let before = signals::intercepted_handler(low_u32(signal));
    if before.is_none() && !trap::is_on() {
        return Disposition::Passthrough;
    }
    let result = if trap::is_on() { signals::set_raw_action(args) } else { issue(Sysno::rt_sigaction, args) };
    if let Some(before) = before.filter(|_| result == 0 && !trap::is_trap_signal(low_u32(signal))) {
        if old != 0 {
            signals::show_own_action(UserPtr::new(old), before);
        }
        if new != 0 {
            signals::action_changed(low_u32(signal));
        }
    }
    Disposition::Handled(result)
}
