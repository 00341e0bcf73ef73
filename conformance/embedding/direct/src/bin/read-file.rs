//! The example of `docs/embedding.md`.

use std::os::fd::AsRawFd;
use uringlet::Ring;
use uringlet::io_uring::{opcode, types};

fn main() -> std::io::Result<()> {
    let file = std::fs::File::open("/etc/os-release")?;
    let mut buffer = [0; 64];
    let mut ring = Ring::new(8)?; // the kernel's, or the engine's where that is blocked
    let read = opcode::Read::new(types::Fd(file.as_raw_fd()), buffer.as_mut_ptr(), 64).build();
    // SAFETY: file and buffer are there until the completion.
    unsafe { ring.push(&read) }.expect("the queue has room");
    ring.submit_and_wait(1)?;
    for completion in ring.completions() {
        println!("{} bytes", completion.result());
    }
    Ok(())
}
