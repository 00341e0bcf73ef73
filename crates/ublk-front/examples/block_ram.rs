//! A device in memory as `/dev/ublkbN`, until interrupted: to try out programs that need a block
//! device. `block_ram N [SIZE_MIB]`
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use uringlet_ublk::frontend::FrontEnd;
use uringlet_ublk_front::block::BlockFrontEnd;
use uringlet_ublk_server::ram_device::{RamDevice, RamDeviceSpec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let id: u32 = args.next().ok_or("usage: block_ram N [SIZE_MIB]")?.parse()?;
    let mib: u64 = args.next().map_or(Ok(64), |arg| arg.parse())?;
    let front = BlockFrontEnd::new(Path::new("/dev"));
    if let Some(missing) = front.missing().first() {
        return Err(missing.clone().into());
    }
    let device = Arc::new(RamDevice::new(id, RamDeviceSpec { depth: 64, ..RamDeviceSpec::with_size(mib << 20) }));
    front.start(device).map_err(|errno| std::io::Error::from_raw_os_error(errno.into_raw()))?;
    println!("{}", front.node(id).display());
    loop {
        std::thread::park();
    }
}
