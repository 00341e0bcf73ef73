//! Zero-copy receive, as a C program sees it through a ring: on the engine, and as far as the
//! kernel has it on the kernel's ring.

mod common;

common::oracle::compare! {
    /// RECV_ZC, ZCRX_IFQ without a device, ZCRX_CTRL.
    recv_zc,
}
