//! `uringlet top`: all processes of the user with an engine, on a screen that changes.
//!
//! ```text
//!   processes: /proc, counters of engines --> state: sort, filter, selection --> screen
//!   sampler: a trace of the selected one  -->
//! ```
//! Counters are read as `uringlet stat` does, without a cost for the processes. Opcodes, files and
//! latencies are not counted: a trace of the selected process tells them, while it is asked for.

mod processes;
mod sampler;
mod screen;
mod state;

use std::io::{self, IsTerminal};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::status::Status;
use processes::ProcessScan;
use sampler::Sampler;
use state::{KeyAction, TopState};

/// Show the processes that use uringlet, live
///
/// All processes of the user that run under `uringlet run`, with the drop-in liburing.so.2 or with
/// the engine built in (of all users for root): rings, requests a second, workers, delayed writes.
/// The selected one can be traced for its opcodes, files and latencies. It takes the right to trace
/// a process, as `uringlet stat`. Keys: arrows select; p n r o w sort by a column; / filters by
/// name; s switches the trace of the selected process on and off; t jumps into its trace, which
/// Ctrl-C leaves; q quits.
#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    /// Between two looks
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    delay: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err("from 0.1 to 3600".to_owned()) }
}

pub(crate) fn top(args: &TopArgs) -> Status {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        eprintln!("uringlet top: this is no terminal; `uringlet stat --tree --json 1` prints the counters of all processes");
        return 1;
    }
    match run(args) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("uringlet top: {error}");
            1
        }
    }
}

/// The terminal is restored at the end, and by ratatui's hook in a panic.
fn run(args: &TopArgs) -> io::Result<()> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_over))?;
    }
    // Ctrl-C is a key here. It is sent while a trace has the terminal.
    signal_hook::flag::register(SIGINT, Arc::default())?;
    let mut terminal = ratatui::try_init()?;
    let shown = show(args, &mut terminal, &is_over);
    ratatui::try_restore()?;
    shown
}

fn show(args: &TopArgs, terminal: &mut DefaultTerminal, is_over: &AtomicBool) -> io::Result<()> {
    let (mut scan, mut state, mut sampler) = (ProcessScan::default(), TopState::default(), Sampler::default());
    let mut next_look = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        if Instant::now() >= next_look {
            state.set_processes(scan.look());
            next_look = Instant::now() + args.delay;
        }
        sampler.follow(state.sampled_pid());
        state.set_sample(sampler.take());
        terminal.draw(|frame| screen::draw(frame, &state))?;
        // A signal is seen soon.
        let wait = next_look.saturating_duration_since(Instant::now()).min(Duration::from_millis(200));
        if !event::poll(wait)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        match state.on_key(key) {
            KeyAction::None => {}
            KeyAction::Quit => return Ok(()),
            KeyAction::Trace(pid) => {
                sampler.follow(None);
                trace(pid)?;
                *terminal = ratatui::try_init()?;
            }
        }
    }
    Ok(())
}

/// The terminal is the trace's until it ends.
fn trace(pid: i32) -> io::Result<()> {
    ratatui::try_restore()?;
    println!("requests of process {pid}; Ctrl-C goes back");
    Command::new(std::env::current_exe()?).args(["trace", "-T", "-p", &pid.to_string()]).status()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_a_number_of_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(["", "0", "-1", "NaN", "fast"].iter().all(|bad| seconds(bad).is_err()));
    }
}
