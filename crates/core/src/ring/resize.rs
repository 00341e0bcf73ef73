//! New memory for the queues of a ring (`IORING_REGISTER_RESIZE_RINGS`), under the ring's lock.

use super::cq::Cq;
use super::sq::SubmitBaton;
use core::sync::atomic::Ordering::Relaxed;
use uringlet_sys::Errno;
use uringlet_sys::ring_memory::{RingField, RingMemory};

/// Moves what the queues hold to `new`, and puts it in place of `memory`. The baton's holder is the
/// caller, so that nothing is consumed meanwhile.
///
/// # Errors
/// `EOVERFLOW`: there is no room. Then nothing changes.
pub(crate) fn move_queues(memory: &mut RingMemory, cq: &Cq, baton: &SubmitBaton, new: RingMemory) -> Result<(), Errno> {
    baton.copy_to(memory, &new)?;
    cq.copy_to(memory, &new)?;
    for word in [RingField::SqDropped, RingField::SqFlags, RingField::CqFlags, RingField::CqOverflow] {
        new.word(word).store(memory.word(word).load(Relaxed), Relaxed);
    }
    memory.take_queues(new);
    Ok(())
}
