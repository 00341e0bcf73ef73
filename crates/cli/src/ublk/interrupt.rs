//! Ctrl-C.

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uringlet_ublkd::client::Client;

const LOOK: Duration = Duration::from_millis(50);
/// How long requests that wait for somebody else may keep a server that is to end.
const GRACE: Duration = Duration::from_secs(5);

/// Becomes true with the first of the signals that end a program.
pub(super) fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("catching signals")?;
    }
    Ok(stop)
}

/// Sleeps until the flag is true, or `is_over`.
pub(super) fn wait(stop: &AtomicBool, is_over: impl Fn() -> bool) {
    while !stop.load(Ordering::Relaxed) && !is_over() {
        std::thread::sleep(LOOK);
    }
}

/// Deletes the device when a signal comes, which ends its server.
pub(super) fn delete_device(client: &Client, id: u32) -> anyhow::Result<()> {
    let stop = flag()?;
    let client = client.clone();
    std::thread::Builder::new().name("ublk-signals".into()).spawn(move || {
        wait(&stop, || false);
        // Somebody else may have deleted it.
        let _ = client.delete(id, false);
        std::thread::sleep(GRACE);
        // The end of this process ends them.
        eprintln!("uringlet ublk: device {id} has requests that do not end; they fail now");
        std::process::exit(1);
    })?;
    Ok(())
}
