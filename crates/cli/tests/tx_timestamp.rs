//! Time stamps of sent data, as a C program sees them through a ring: on the engine and on the
//! kernel's ring.

mod common;

common::oracle::compare! {
    /// SOCKET_URING_OP_TX_TIMESTAMP on UDP and TCP sockets.
    tx_timestamp,
}
