//! What is run: the worker beside this executable, this executable itself, the drop-in library.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The programs and libraries that take part.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) uringlet: PathBuf,
    pub(super) worker: PathBuf,
    /// The folder of the drop-in `liburing.so.2`.
    pub(super) drop_in: Option<PathBuf>,
    /// Why the kernel gives no ring, if it gives none.
    pub(super) no_kernel: Option<String>,
}

const WORKERS: [&str; 2] = ["uringlet-bench-worker", "../lib/uringlet/uringlet-bench-worker"];
const DROP_INS: [&str; 2] = ["liburing/liburing.so.2", "../lib/uringlet/liburing/liburing.so.2"];

impl Tools {
    pub(super) fn find() -> Result<Self, String> {
        let uringlet = std::env::current_exe().map_err(|error| format!("cannot find out where uringlet is installed: {error}"))?;
        let directory = uringlet.parent().unwrap_or(Path::new("/")).to_path_buf();
        let first = |places: [&str; 2]| places.iter().map(|place| directory.join(place)).find(|path| path.is_file());
        let worker = first(WORKERS).ok_or_else(|| {
            format!("uringlet-bench-worker is neither in {0} nor in {0}/../lib/uringlet; build it with `cargo build --release -p uringlet-bench`", directory.display())
        })?;
        let drop_in = first(DROP_INS).and_then(|path| path.parent().map(Path::to_path_buf));
        let no_kernel = value(Command::new(&worker).arg("probe")).err();
        Ok(Self { uringlet, worker, drop_in, no_kernel })
    }
}

/// Runs a worker; what it measured, or what it says went wrong.
pub(super) fn value(command: &mut Command) -> Result<f64, String> {
    let text = output(command)?;
    let field = |name: &str| text.split_once(&format!("\"{name}\": ")).map(|(_, rest)| rest.trim_end().trim_end_matches('}').to_owned());
    if let Some(error) = field("error") {
        return Err(error.trim_matches('"').to_owned());
    }
    let value = field("value").and_then(|value| value.parse().ok());
    value.ok_or_else(|| format!("the worker ended without a number{}", if text.is_empty() { String::new() } else { format!(": {text}") }))
}

/// What a program prints.
pub(super) fn output(command: &mut Command) -> Result<String, String> {
    let out = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let out = out.map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
    if out.status.success() || !out.stdout.is_empty() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&out.stderr);
    Err(format!("{}: {}", out.status, complaint.lines().next_back().unwrap_or("no word why")))
}
