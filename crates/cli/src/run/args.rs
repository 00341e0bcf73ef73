//! The command line of `uringlet run`, and the environment variables that pass it to the attached
//! library.

use std::ffi::{OsStr, OsString};

use uringlet_ublkd::runtime_dir;

use super::exec::Environment;
use super::faults::FaultArgs;
use clap::{Args, FromArgMatches};

/// Run a program with io_uring in user space
///
/// The program's io_uring calls are answered in its own process through ordinary system calls; the
/// kernel's io_uring is not used. Children of the program are attached too. A program that cannot
/// be attached runs as without uringlet, and one line on standard error says why. The exit status
/// is the program's; 127 if it was not found, 126 if it cannot be run, 125 if --require refuses it
/// or the variable URINGLET has a wrong value.
#[derive(Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct RunArgs {
    /// Use the kernel's io_uring if it works here: then the program is executed as without
    /// uringlet. Otherwise attach. URINGLET=when-blocked means the same, URINGLET=kernel never
    /// attaches, and URINGLET=engine always does, which is the default
    #[arg(long)]
    pub(super) when_blocked: bool,

    /// Print to standard error what was found and rewritten in the program and its libraries
    #[arg(long)]
    pub(super) explain: bool,

    /// Do not say when nothing could be attached
    #[arg(long, conflicts_with = "require")]
    pub(super) quiet: bool,

    /// Run nothing and exit with 125 if the program cannot be attached
    #[arg(long)]
    pub(super) require: bool,

    /// Scan for system calls again instead of using the cached result of an earlier start, and
    /// cache nothing
    #[arg(long)]
    pub(super) no_cache: bool,

    /// Answer io_uring calls of code that is made at run time (JIT) or may not be changed, too: a
    /// seccomp filter traps them, at about 2 µs a call. Where there is such code the program and
    /// its children can gain no privileges any more (no_new_privs): sudo and ping fail
    #[arg(long)]
    pub(super) trap: bool,

    /// Which thread executes requests that may block
    #[arg(long, value_enum, value_name = "MODE", default_value_t = RunMode::Adaptive)]
    pub(super) mode: RunMode,

    /// How IOSQE_ASYNC is honoured on sockets, pipes and other pollable files
    #[arg(long, value_enum, value_name = "HINT", default_value_t = IosqeAsync::Weighed)]
    pub(super) iosqe_async: IosqeAsync,

    #[command(flatten)]
    pub(super) faults: FaultArgs,

    /// Which ublk devices the program sees
    #[arg(long, value_enum, value_name = "DEVICES", default_value_t = UblkScope::Broker)]
    pub(super) ublk: UblkScope,

    /// The program, looked up in PATH, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM [ARGS]")]
    pub(super) command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
--inject OPCODES:WHAT[:WHICH...]   OPCODES: READ,%net or *; or a call: setup, enter, register
What is done:
  error=ERRNO  retval=N    it is not executed: this is its result
  delay=TIME               it is executed later (ns, us, ms, s; without a unit microseconds)
  short=N%  short=BYTES    it moves less
  shots=N                  a multishot ends with its N-th result
  overflow                 its CQE comes as if the CQ were full
  hangup                   its socket is shut down before: the peer is lost
  worker  ready            a worker executes it; a poll is told that its file is ready
Which of them:
  when=N  when=N+  when=N+STEP  when=N..LAST  when=P%   counted in each ring; by chance from seed=N
  fd=N,...  path=PATTERN   with this number in the SQE; with such a path (* ?)

Examples:
  uringlet run --inject WRITE:error=EIO:when=3+10 -- program
  uringlet run --inject '%net:delay=5ms:when=1%' --inject 'READ:short=50%:path=/data/*' -- server
  uringlet run --inject setup:error=EPERM -- program
  uringlet run --legal 7 -- program
  uringlet trace -- uringlet run --legal 7 -- program

docs/chaos.md explains all of it.";

/// The command's name.
pub(crate) const NAME: &str = "run";

impl RunArgs {
    /// The command with these options.
    pub(crate) fn describe(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }

    /// The options of the command, whose name comes first; ends the process with a message if they
    /// are wrong.
    pub(crate) fn parse(arguments: &[&OsStr], command: clap::Command) -> Self {
        let mut command = Self::describe(command);
        let matches = command.try_get_matches_from_mut(arguments).unwrap_or_else(|error| error.exit());
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
    }

    /// What the attached library shall do if the program cannot make an io_uring call through it.
    pub(super) fn export_notice(&self, environment: &mut Environment) {
        let notice = match (self.quiet, self.require) {
            (true, _) => "quiet",
            (_, true) => "require",
            _ => "print",
        };
        environment.set("URINGLET_NOTICE", OsStr::new(notice));
    }
}

/// How rings are driven, unless the program selects a mode when it sets one up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum RunMode {
    /// The submitter, as long as it is not expected to block; otherwise a worker
    Adaptive,
    /// A worker submits for the caller; when it blocks, the next worker takes over
    Uringlet,
    /// Always a worker, as the kernel's io_uring does for buffered writes on ext4
    Workers,
}

impl RunMode {
    const VARIABLE: &str = "URINGLET_MODE";

    /// Sets the variable that the attached library reads; unset means the default.
    pub(super) fn export(self, environment: &mut Environment) {
        match self {
            Self::Adaptive => environment.remove(Self::VARIABLE),
            Self::Uringlet => environment.set(Self::VARIABLE, OsStr::new("uringlet")),
            Self::Workers => environment.set(Self::VARIABLE, OsStr::new("workers")),
        }
    }
}

/// Which thread makes the first attempt of a request with IOSQE_ASYNC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum IosqeAsync {
    /// The submitter, for accepts and for up to 32 KiB to send or receive; otherwise a worker
    Weighed,
    /// Always a worker: for a busy submitter on a machine with idle CPUs
    Worker,
    /// A worker that blocks until the request is complete, as in Linux before 5.16: for comparison
    Block,
}

impl IosqeAsync {
    const VARIABLE: &str = "URINGLET_IOSQE_ASYNC";

    /// As [`RunMode::export`].
    pub(super) fn export(self, environment: &mut Environment) {
        match self {
            Self::Weighed => environment.remove(Self::VARIABLE),
            Self::Worker => environment.set(Self::VARIABLE, OsStr::new("worker")),
            Self::Block => environment.set(Self::VARIABLE, OsStr::new("block")),
        }
    }
}

/// The driver behind `/dev/ublk-control`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum UblkScope {
    /// Those of the broker, listed by `uringlet ublk`: other programs can use them. The broker is
    /// started on demand
    Broker,
    /// Its own, invisible to other programs; they end with the program
    InProcess,
}

impl UblkScope {
    const VARIABLE: &str = "URINGLET_UBLK";
    /// The program that starts a broker.
    const PROGRAM: &str = "URINGLET_PROGRAM";

    /// As [`RunMode::export`].
    pub(super) fn export(self, environment: &mut Environment) {
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
