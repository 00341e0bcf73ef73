//! Queues that are resized while they hold entries and while requests are in flight: on the engine
//! and on the kernel's ring.

mod common;

common::oracle::compare! {
    /// IORING_REGISTER_RESIZE_RINGS.
    resize,
}

/// The same with the ring's own workers.
#[test]
fn queues_of_a_ring_with_uringlet_workers_are_resized() {
    common::oracle::engine_with(&["--mode=uringlet"], "resize", &[]);
}
