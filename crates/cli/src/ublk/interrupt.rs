//! Ctrl-C.

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uringlet_ublkd::client::BrokerClient;

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long requests that wait for somebody else may keep a server that is to end.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

/// Becomes true with the first of the signals that end a program.
pub(super) fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    survive_broken_pipes()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("catching signals")?;
    }
    Ok(stop)
}

/// A peer that goes is an error of the write, and no reason to end: `main` is not std's, which sees to that.
pub(super) fn survive_broken_pipes() -> anyhow::Result<()> {
    signal_hook::flag::register(SIGPIPE, Arc::default()).map(drop).context("catching signals")
}

/// Sleeps until the flag is true, or `is_over`.
pub(super) fn wait(stop: &AtomicBool, is_over: impl Fn() -> bool) {
    while !stop.load(Ordering::Relaxed) && !is_over() {
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Deletes the device when a signal comes, which ends its server. Requests that do not end by themselves do by `abort_signal`.
pub(super) fn delete_device(client: &BrokerClient, id: u32, abort: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let stop = flag()?;
    let client = client.clone();
    let abort_later = move || {
        std::thread::sleep(GRACE_PERIOD);
        // Whoever listened may be gone.
        let _ = writeln!(std::io::stderr(), "uringlet ublk: requests of device {id} that wait for somebody else fail now");
        abort();
    };
    std::thread::Builder::new().name("ublk-signals".into()).spawn(move || {
        wait(&stop, || false);
        // Without it they end in their own time.
        let _ = std::thread::Builder::new().name("ublk-grace".into()).spawn(abort_later);
        // Somebody else may have deleted it.
        let _ = client.delete_async(id);
    })?;
    Ok(())
}
