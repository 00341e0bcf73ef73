//! Termination signals set a flag, so that temporary files are removed and results are printed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};

/// Whether the benchmark should end.
#[derive(Clone, Debug, Default)]
pub(super) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Installs handlers that set the flag; the running program is then stopped soon. SIGPIPE too:
    /// writing to a closed pipe becomes an error instead of the end. Later signals change nothing,
    /// since a closing terminal sends several.
    pub(super) fn on_signals() -> Result<Self, String> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGPIPE] {
            let noted = signal_hook::flag::register(signal, Arc::clone(&stop.0));
            noted.map_err(|error| format!("cannot handle signal {signal}: {error}"))?;
        }
        Ok(stop)
    }

    pub(super) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
