//! Names the crate, and makes a ring.

use uringlet as _;

fn main() {
    match io_uring::IoUring::new(8) {
        Ok(mut ring) => {
            // SAFETY: no buffers.
            unsafe { ring.submission().push(&io_uring::opcode::Nop::new().build()) }.expect("room");
            ring.submit_and_wait(1).expect("enter");
            assert_eq!(ring.completion().next().map(|cqe| cqe.result()), Some(0));
            println!("all well");
        }
        Err(error) => println!("no ring: {error}"),
    }
}
