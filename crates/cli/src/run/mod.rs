//! `uringlet run`: puts `liburinglet.so` in front of a program and becomes that program.
//!
//! Nothing stays behind: the same process, its exit status, signals, descriptors and terminal are the program's from the first instruction on.

mod exec;
mod executable;
mod lookup;
mod preload;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::Status;
use uringlet_ublkd::runtime_dir;

/// Run a program with io_uring in user space
///
/// The program's io_uring calls are answered in its own process by ordinary system calls; the kernel's io_uring is not used. Children of the program are
/// attached too. The exit status is the program's; 127 if it was not found, 126 if it cannot be run or not be attached.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Print to standard error what was found and rewritten in the program and its libraries
    #[arg(long)]
    explain: bool,

    /// Look for system calls anew instead of using what an earlier start has found, and do not remember what is found
    #[arg(long)]
    no_cache: bool,

    /// Who executes requests that may block
    #[arg(long, value_enum, value_name = "MODE", default_value_t = RunMode::Adaptive)]
    mode: RunMode,

    /// What becomes of IOSQE_ASYNC on sockets, pipes and whatever else can be waited for
    #[arg(long, value_enum, value_name = "HINT", default_value_t = IosqeAsync::Weighed)]
    iosqe_async: IosqeAsync,

    /// Whose ublk devices the program sees
    #[arg(long, value_enum, value_name = "WHOSE", default_value_t = UblkScope::Broker)]
    ublk: UblkScope,

    /// The program, looked up in PATH, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<OsString>,
}

/// How a ring is driven, unless the program asks for one way when it makes the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RunMode {
    /// The caller, while that is expected not to block; otherwise a worker
    Adaptive,
    /// A worker submits in the caller's stead; when it blocks, the next one goes on
    Uringlet,
    /// A worker, always: what the kernel's io_uring does with buffered writes on ext4
    Workers,
}

impl RunMode {
    /// What tells the attached library. The default is told by silence.
    const VARIABLE: &str = "URINGLET_MODE";

    fn export(self, environment: &mut exec::Environment) {
        match self {
            Self::Adaptive => environment.remove(Self::VARIABLE),
            Self::Uringlet => environment.set(Self::VARIABLE, OsStr::new("uringlet")),
            Self::Workers => environment.set(Self::VARIABLE, OsStr::new("workers")),
        }
    }
}

/// Who makes the first try of a request that asks to be made elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum IosqeAsync {
    /// The submitter, of accepts and of up to 32 KiB to send or to receive; of all else a worker
    Weighed,
    /// A worker, always: for a submitter that is short of time on a machine with idle CPUs
    Worker,
    /// A worker, which stays until it is done: as Linux did before 5.16, for comparing
    Block,
}

impl IosqeAsync {
    const VARIABLE: &str = "URINGLET_IOSQE_ASYNC";

    fn export(self, environment: &mut exec::Environment) {
        match self {
            Self::Weighed => environment.remove(Self::VARIABLE),
            Self::Worker => environment.set(Self::VARIABLE, OsStr::new("worker")),
            Self::Block => environment.set(Self::VARIABLE, OsStr::new("block")),
        }
    }
}

/// What is behind `/dev/ublk-control`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum UblkScope {
    /// The broker's, as `uringlet ublk` shows them: they can be used by other programs. It is started when it is needed
    Broker,
    /// The program's own, that nobody else sees and that end with it
    InProcess,
}

impl UblkScope {
    const VARIABLE: &str = "URINGLET_UBLK";
    /// The program that starts a broker.
    const PROGRAM: &str = "URINGLET_PROGRAM";

    fn export(self, environment: &mut exec::Environment) {
        if self == Self::InProcess {
            return environment.remove(Self::VARIABLE);
        }
        environment.set(Self::VARIABLE, OsStr::new("broker"));
        environment.set(runtime_dir::DIR_VARIABLE, runtime_dir::default_dir().as_os_str());
        if let Ok(program) = std::env::current_exe() {
            environment.set(Self::PROGRAM, program.as_os_str());
        }
    }
}

/// Why the program did not start.
#[derive(Debug)]
pub(crate) struct RunError {
    status: Status,
    message: String,
}

impl RunError {
    /// The program is not there: 127, as from a shell.
    fn not_found(message: impl fmt::Display) -> Self {
        Self { status: 127, message: message.to_string() }
    }

    /// The program is there, but: 126, as from a shell.
    fn not_runnable(message: impl fmt::Display) -> Self {
        Self { status: 126, message: message.to_string() }
    }
}

pub(crate) fn run(args: &RunArgs) -> Status {
    let error = match start(args) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    eprintln!("uringlet run: {}", error.message);
    error.status
}

fn start(args: &RunArgs) -> Result<std::convert::Infallible, RunError> {
    let program = lookup::find(&args.command[0])?;
    executable::check(&program)?;
    let library = preload::find()?;
    let mut environment = exec::Environment::inherited();
    let before = std::env::var_os("LD_PRELOAD");
    environment.set("LD_PRELOAD", &prepended(library.as_os_str(), before.as_deref()));
    if args.explain {
        environment.set("URINGLET_EXPLAIN", OsStr::new("1"));
    }
    if args.no_cache {
        environment.set("URINGLET_CACHE", OsStr::new("off"));
    }
    args.mode.export(&mut environment);
    args.iosqe_async.export(&mut environment);
    args.ublk.export(&mut environment);
    Err(exec::exec_program(&program, &args.command, &environment))
}

/// `library` first, what was preloaded before behind it, nothing twice.
fn prepended(library: &OsStr, before: Option<&OsStr>) -> OsString {
    let mut list = library.as_bytes().to_vec();
    let before = before.map_or(&b""[..], OsStr::as_bytes);
    for entry in before.split(|&b| b == b':' || b == b' ').filter(|e| !e.is_empty() && *e != library.as_bytes()) {
        list.push(b':');
        list.extend_from_slice(entry);
    }
    OsString::from_vec(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_comes_first_and_once() {
        let list = |before: Option<&str>| prepended(OsStr::new("/l/u.so"), before.map(OsStr::new)).into_string().unwrap();
        assert_eq!(list(None), "/l/u.so");
        assert_eq!(list(Some("")), "/l/u.so");
        assert_eq!(list(Some("a.so b.so")), "/l/u.so:a.so:b.so");
        assert_eq!(list(Some("a.so:/l/u.so::b.so")), "/l/u.so:a.so:b.so");
    }
}
