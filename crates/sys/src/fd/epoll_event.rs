//! What epoll_ctl(2) and epoll_wait(2) take.

use crate::linux::general::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};

pub use crate::linux::general::epoll_event as EpollEvent;
pub use crate::linux::general::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT};

/// No event: what arrays for events start with.
pub const NO_EVENT: EpollEvent = EpollEvent { events: 0, data: 0 };

/// What to do with a file in an epoll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EpollOp {
    /// `EPOLL_CTL_ADD`
    Add = EPOLL_CTL_ADD,
    /// `EPOLL_CTL_DEL`
    Del = EPOLL_CTL_DEL,
    /// `EPOLL_CTL_MOD`
    Mod = EPOLL_CTL_MOD,
}
