//! rustix's io_uring functions, which make their system calls without libc.

use rustix::io_uring::{IoringEnterFlags, io_uring_enter, io_uring_params, io_uring_setup};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    uringlet::init()?;
    let mut params = io_uring_params::default();
    // SAFETY: no descriptor is handed over.
    let ring = unsafe { io_uring_setup(8, &mut params) }?;
    assert_eq!(params.sq_entries, 8);
    // SAFETY: nothing is submitted.
    let entered = unsafe { io_uring_enter(&ring, 0, 0, IoringEnterFlags::empty()) }?;
    assert_eq!(entered, 0);
    println!("all well");
    Ok(())
}
