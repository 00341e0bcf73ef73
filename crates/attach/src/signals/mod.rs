//! Signals that arrive while a program's thread is in the engine are deferred until it leaves, as
//! the kernel does: a handler may use a ring, fork, or never return, and the thread may hold a lock
//! of the engine's.
//!
//! From the first ring on, the kernel's handler for each signal that the program handles is
//! [`our_handler`]. If the interrupted stack pointer lies in an engine stack, it blocks all
//! signals, queues the signal to this thread again, and returns into the engine; a wait there ends
//! with EINTR. When the thread leaves the engine, the mask is restored, and the kernel delivers
//! what is pending, on the program's own stack.
//!
//! A signal may arrive after the engine's last check and before its wait, which nothing would end
//! then. So a timer interrupts the thread every millisecond until it has left, by the signal that
//! the engine interrupts its own threads with.
//!
//! Not deferred: faults (those of the engine's own copies end the copy, `fault_check`), and the
//! SIGXFSZ of the engine's own writes (`file_size`). A signal that the thread's own mask blocks
//! came in through the mask of a waiting io_uring_enter(2): it is delivered once when the thread
//! leaves, before the mask is restored.
//!
//! | module | holds |
//! |---|---|
//! | `interception` | puts our handler before the program's |
//! | `handlers` | the program's handlers |
//! | `on_signal` | our handler |
//! | `siginfo` | the kernel's `siginfo_t` |
//! | `deferral` | a signal put off until the thread leaves the engine |
//! | `fault_check` | whether a fault of the engine's copies ends only the copy |
//! | `file_size` | SIGXFSZ |
//! | `sigsys` | SIGSYS while calls are trapped |

mod deferral;
mod fault_check;
mod file_size;
mod handlers;
mod interception;
mod on_signal;
mod siginfo;
mod sigsys;

pub(crate) use deferral::NO_TIMER;
pub(crate) use handlers::{HANDLER_FLAGS, program_handler};
pub(crate) use interception::{action_changed, intercept, intercept_cancels, intercepted_handler, is_intercepting, show_own_action};
pub(crate) use on_signal::our_handler;
pub(crate) use siginfo::SignalInfo;
pub(crate) use sigsys::{ProgramAction, action_for_kernel, note_action, set_raw_action, take_sigsys};
