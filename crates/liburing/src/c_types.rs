//! C types that are only passed through, and the error numbers that this crate itself returns.

/// Declares types of which only the address is used here.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            #[repr(C)]
            pub struct $name([u8; 0]);
        )*
    };
}

opaque! {
    /// `sigset_t`
    SigSet;
    /// The argument of io_uring_enter2: `sigset_t` in liburing's older headers, `void` in newer
    /// ones.
    EnterArg;
    /// `cpu_set_t`
    CpuSet;
    /// `void`
    Void;
    /// `struct io_uring_probe`
    Probe;
    /// `struct io_uring_buf_ring`
    BufRing;
    /// `struct io_uring_restriction`
    Restriction;
    /// `struct io_uring_napi`
    Napi;
    /// `struct io_uring_clock_register`
    ClockRegister;
    /// `struct io_uring_mem_region_reg`
    MemRegionReg;
    /// `struct io_uring_reg_wait`
    RegWait;
    /// `struct io_uring_zcrx_ifq_reg`
    ZcrxIfqReg;
    /// `struct zcrx_ctrl`
    ZcrxCtrl;
    /// `struct io_uring_bpf`
    Bpf;
    /// `struct io_uring_query_hdr`
    QueryHdr;
}

/// Error numbers, negated as liburing returns them.
#[allow(missing_docs)]
pub mod err {
    pub const EBADF: i32 = -9;
    pub const EAGAIN: i32 = -11;
    pub const ENOMEM: i32 = -12;
    pub const EEXIST: i32 = -17;
    pub const EINVAL: i32 = -22;
    pub const EMFILE: i32 = -24;
    pub const ETIME: i32 = -62;
    pub const EOPNOTSUPP: i32 = -95;
}
