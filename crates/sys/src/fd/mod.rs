//! The engine's own file descriptors: few, with high numbers, close-on-exec, and marked in
//! `fd_table`.

mod engine_fd;
mod epoll_event;
#[cfg_attr(loom, path = "../model/event.rs")]
mod event;
mod leaving;
mod moved;
mod record_locks;
mod ring_fd;

pub use engine_fd::{EngineFd, grow_fd_table};
pub use epoll_event::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EpollEvent, EpollOp, NO_EVENT};
#[cfg(loom)]
pub use event::signal_eventfd;
pub use event::{ClockStep, Epoll, EventFd, TimerFd};
pub use leaving::{LeavingNumber, wait_until_left};
pub(crate) use moved::FIRST_INTERNAL;
pub use moved::{MovedNumber, lock_for_fork, move_away, recover_in_copy, reset_in_child, unlock_after_fork};
pub use record_locks::{any_number_lingers, before_programs_close, close_keeping_locks};
pub use ring_fd::RingFd;
