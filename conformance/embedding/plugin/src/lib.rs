//! A ring in a library that a program loads.

use uringlet::io_uring::opcode;
use uringlet::{Ring, RingBackend};

/// Makes a ring of the engine's and completes as many requests: their number.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_turns(turns: u32) -> u32 {
    let mut ring = Ring::builder().backend(RingBackend::Engine).build(8).expect("a ring");
    let turn = |turn: &u32| {
        let entry = opcode::Nop::new().build().user_data(u64::from(*turn));
        // SAFETY: it points to nothing.
        unsafe { ring.push(&entry) }.expect("room");
        ring.submit_and_wait(1).expect("enter");
        let completion = ring.completions().next().expect("a completion");
        completion.user_data() == u64::from(*turn) && completion.result() == 0
    };
    (0..turns).filter(turn).count() as u32
}
