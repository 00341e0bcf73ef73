//! Ctrl-C and its relatives: noted, so that what was made is removed and what was measured is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};

/// Whether somebody wants this to end.
#[derive(Clone, Debug, Default)]
pub(super) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// From now on signals are noted, and whatever runs is ended soon. A reader that went away is noted too: writing to it is then an error, and no
    /// death. A second signal is no threat: a terminal that is closed sends several.
    pub(super) fn on_signals() -> Result<Self, String> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGPIPE] {
            let noted = signal_hook::flag::register(signal, Arc::clone(&stop.0));
            noted.map_err(|error| format!("cannot take signal {signal}: {error}"))?;
        }
        Ok(stop)
    }

    pub(super) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
