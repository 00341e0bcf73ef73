//! Ctrl-C and its relatives: noted, so that what was made is removed and what was measured is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};

/// Whether somebody wants this to end.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on the first signal is noted; a second one, at an end that does not come, ends the process as ever. A reader that went away is
    /// noted too: writing to it is then an error, and no death.
    pub(super) fn on_signals() -> Result<Self, String> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The order matters: the second signal finds the flag set.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop.0)).map_err(|error| refused(signal, &error))?;
        }
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGPIPE] {
            signal_hook::flag::register(signal, Arc::clone(&stop.0)).map_err(|error| refused(signal, &error))?;
        }
        Ok(stop)
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn refused(signal: i32, error: &std::io::Error) -> String {
    format!("cannot take signal {signal}: {error}")
}
