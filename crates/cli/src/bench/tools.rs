//! The programs and libraries under test: the worker, this executable, the drop-in library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::json;
use super::launch::Launch;
use super::stop::StopFlag;

/// Their paths.
#[derive(Debug)]
pub(super) struct BenchTools {
    pub(super) uringlet: PathBuf,
    pub(super) worker: PathBuf,
    /// The directory of the drop-in `liburing.so.2`.
    pub(super) drop_in: Option<PathBuf>,
    /// Why the kernel's io_uring is not available, if so.
    pub(super) no_kernel: Option<String>,
}

/// Which io_uring implementation a program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attachment {
    /// The kernel's, if any.
    Plain,
    /// uringlet's, through `uringlet run` with these options.
    Attached(&'static [&'static str]),
    /// uringlet's, through the drop-in library.
    DropIn,
}

const WORKER_PATHS: [&str; 2] = ["uringlet-bench-worker", "../lib/uringlet/uringlet-bench-worker"];
const DROP_IN_PATHS: [&str; 2] = ["liburing/liburing.so.2", "../lib/uringlet/liburing/liburing.so.2"];

impl BenchTools {
    pub(super) fn find() -> Result<Self, String> {
        let uringlet = std::env::current_exe().map_err(|error| format!("cannot determine where uringlet is installed: {error}"))?;
        let directory = uringlet.parent().unwrap_or(Path::new("/")).to_path_buf();
        let first = |paths: [&str; 2]| paths.iter().map(|path| directory.join(path)).find(|path| path.is_file());
        let worker = first(WORKER_PATHS).ok_or_else(|| {
            format!("uringlet-bench-worker is neither in {0} nor in {0}/../lib/uringlet; build it with `cargo build --release -p uringlet-bench`", directory.display())
        })?;
        let drop_in = first(DROP_IN_PATHS).and_then(|path| path.parent().map(Path::to_path_buf));
        let probe = Launch::new([worker.as_os_str(), "probe".as_ref()]).output(&StopFlag::default());
        let no_kernel = probe.and_then(|text| json::sample(&text)).err();
        Ok(Self { uringlet, worker, drop_in, no_kernel })
    }

    /// The command of the worker with these arguments.
    pub(super) fn worker(&self, attachment: Attachment, args: impl IntoIterator<Item = impl Into<OsString>>) -> Launch {
        let argv: Vec<OsString> = std::iter::once(self.worker.clone().into()).chain(args.into_iter().map(Into::into)).collect();
        self.launch(attachment, argv)
    }

    /// The command of a program.
    pub(super) fn launch(&self, attachment: Attachment, argv: Vec<OsString>) -> Launch {
        let before: Vec<OsString> = match attachment {
            Attachment::Attached(options) => {
                let run = [self.uringlet.clone().into(), "run".into()].into_iter();
                run.chain(options.iter().map(Into::into)).chain(["--".into()]).collect()
            }
            Attachment::Plain | Attachment::DropIn => Vec::new(),
        };
        let mut launch = Launch::new(before.into_iter().chain(argv));
        launch.library_path = if attachment == Attachment::DropIn { self.drop_in.clone().map(Into::into) } else { None };
        launch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attachment_has_its_command_line() {
        let tools = BenchTools { uringlet: "/b/u".into(), worker: "/b/w".into(), drop_in: Some("/l".into()), no_kernel: None };
        let plain = tools.worker(Attachment::Plain, ["x"]);
        assert_eq!((plain.argv, plain.library_path), (vec!["/b/w".into(), "x".into()], None));
        let attached = tools.worker(Attachment::Attached(&["--mode=uringlet"]), ["x"]);
        assert_eq!(attached.argv, ["/b/u", "run", "--mode=uringlet", "--", "/b/w", "x"]);
        assert_eq!(tools.worker(Attachment::DropIn, ["x"]).library_path, Some("/l".into()));
    }
}
