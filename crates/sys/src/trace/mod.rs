//! The stream of a trace: what the engine of a process tells `uringlet trace` about requests.
//!
//! The tracer makes one buffer ([`TraceBuffer`]), a sealed file in memory, and each traced process
//! maps it: children by fork(2) have the mapping, programs that are executed find its path in
//! `URINGLET_TRACE`, and `trace -p` writes the path into [`TraceControl`] of a running process. So
//! records of all processes are in one order, and outlive the process that made them.
//!
//! `queue` has the protocol between writers and reader, `layout` what is in memory, `control` when
//! a process records, `owner` how it notices that the tracer has died.

#[cfg(not(loom))]
mod buffer;
#[cfg(not(loom))]
mod control;
#[cfg(not(loom))]
mod control_word;
mod layout;
#[cfg(not(loom))]
mod owner;
mod queue;

#[cfg(not(loom))]
pub use buffer::{TraceBuffer, now};
#[cfg(not(loom))]
pub use control::{TraceWriter, forget_in_child, is_on, look, request, with_buffer};
#[cfg(not(loom))]
pub use control_word::TraceControl;
pub use layout::{
    DROPS_WHEN_FULL, FaultedCall, LAYOUT_VERSION, PAYLOAD_WORDS, RecordKind, TRACES_CALLS, TracePolicy, TraceRecord, argument,
    data_chunk_bytes, road,
};
#[cfg(not(loom))]
pub use owner::OwnerLock;

/// In a model nothing is traced.
#[cfg(loom)]
mod in_model {
    use super::{TracePolicy, TraceRecord};
    use core::convert::Infallible;
    use core::marker::PhantomData;

    /// A side of no buffer.
    #[derive(Clone, Copy, Debug)]
    pub struct TraceWriter<'b>(Infallible, PhantomData<&'b ()>);

    impl TraceWriter<'_> {
        /// None.
        #[must_use]
        pub const fn policy(self) -> TracePolicy {
            match self.0 {}
        }

        /// Yes.
        #[must_use]
        pub const fn is_named(self, _fd: i32) -> bool {
            match self.0 {}
        }

        /// Nothing.
        pub const fn record(self, _record: &TraceRecord) {
            match self.0 {}
        }
    }

    /// Nothing.
    pub const fn request(_path: &[u8]) {}

    /// Nothing.
    pub const fn look() {}

    /// Never.
    #[must_use]
    pub const fn is_on() -> bool {
        false
    }

    /// Nothing.
    pub fn with_buffer<R>(_act: impl FnOnce(TraceWriter<'_>) -> R) -> Option<R> {
        None
    }

    /// Nothing.
    pub const fn forget_in_child() {}
}
#[cfg(loom)]
pub use in_model::{TraceWriter, forget_in_child, is_on, look, request, with_buffer};
