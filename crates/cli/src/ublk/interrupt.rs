//! Signals that end a server.

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uringlet_ublkd::client::BrokerClient;

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long requests that wait for their backend may delay the end of a server.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

/// A flag that SIGINT, SIGTERM and SIGHUP set.
pub(super) fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    survive_broken_pipes()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("registering signal handlers")?;
    }
    Ok(stop)
}

/// Makes writes to a closed pipe fail with EPIPE instead of ending the process. `main` is not
/// std's, which would ignore SIGPIPE.
pub(super) fn survive_broken_pipes() -> anyhow::Result<()> {
    signal_hook::flag::register(SIGPIPE, Arc::default()).map(drop).context("registering signal handlers")
}

/// Waits until the flag is set or `is_over`.
pub(super) fn wait(stop: &AtomicBool, is_over: impl Fn() -> bool) {
    while !stop.load(Ordering::Relaxed) && !is_over() {
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Deletes the device on a signal, which ends its server. `abort` ends requests that do not end in
/// time. Returns the flag that the signal sets: while there is no broker, nothing else ends the
/// server.
pub(super) fn delete_device(client: &BrokerClient, id: u32, abort: impl FnOnce() + Send + 'static) -> anyhow::Result<Arc<AtomicBool>> {
    let stop = flag()?;
    let flag = Arc::clone(&stop);
    let client = client.clone();
    let abort_later = move || {
        std::thread::sleep(GRACE_PERIOD);
        // An error of the write does not matter.
        let _ = writeln!(std::io::stderr(), "uringlet ublk: requests of device {id} that wait for their backend fail now");
        abort();
    };
    std::thread::Builder::new().name("ublk-signals".into()).spawn(move || {
        wait(&stop, || false);
        // If this thread cannot start, the requests end in their own time.
        let _ = std::thread::Builder::new().name("ublk-grace".into()).spawn(abort_later);
        // An error means that it was deleted already.
        let _ = client.delete_async(id);
    })?;
    Ok(flag)
}
