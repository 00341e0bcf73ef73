//! A device in memory behind an NBD server, until interrupted: to try out clients.
//! `nbd_ram SOCKET [SIZE_MIB [THREADS [TCP_PORT]]]`
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use uringlet_ublk::frontend::FrontEnd;
use uringlet_ublk_front::nbd::NbdServer;
use uringlet_ublk_server::ram_device::{RamDevice, RamDeviceSpec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let socket = args.next().ok_or("usage: nbd_ram SOCKET [SIZE_MIB [THREADS [TCP_PORT]]]")?;
    let mib: u64 = args.next().map_or(Ok(64), |arg| arg.parse())?;
    let threads = args.next().map_or(Ok(2), |arg| arg.parse())?;
    let server = NbdServer::new()?;
    let spec = RamDeviceSpec { depth: 128, threads, ..RamDeviceSpec::with_size(mib << 20) };
    let device = Arc::new(RamDevice::new(0, spec));
    server.start(device).map_err(|errno| std::io::Error::from_raw_os_error(errno.into_raw()))?;
    println!("{}", server.listen_unix(Path::new(&socket))?.uri(0));
    if let Some(port) = args.next() {
        println!("{}", server.listen_tcp(([127, 0, 0, 1], port.parse()?).into())?.uri(0));
    }
    loop {
        std::thread::park();
    }
}
