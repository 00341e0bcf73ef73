//! `uringlet run`: puts `liburinglet.so` in front of a program and becomes that program.
//!
//! No parent process remains: this process becomes the program, with its exit status, signals,
//! descriptors and terminal.

mod args;
mod backend;
mod error;
mod exec;
mod executable;
mod faults;
mod lookup;
mod preload;
mod static_program;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::status::Status;
pub(crate) use args::{NAME, RunArgs};
pub(crate) use error::RunError;
pub(crate) use executable::Target;
pub(crate) use faults::FaultArgs;

pub(crate) fn run(args: &RunArgs) -> Status {
    let error = match start(args) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    eprintln!("uringlet run: {}", error.message);
    error.status
}

/// What `uringlet run` starts, and `uringlet doctor` asks about.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The file that was named.
    pub(crate) program: PathBuf,
    pub(crate) target: Target,
    /// `liburinglet.so`; empty if there is none, which `target.why_not` says.
    pub(crate) library: PathBuf,
}

/// Looks the program and the library up.
pub(crate) fn resolve(program: &OsStr) -> Result<Resolved, RunError> {
    let program = lookup::find(program)?;
    let mut target = executable::check(&program)?;
    let (library, obstacle) = match preload::find() {
        Ok(library) => {
            let obstacle = preload::obstacle(&library).or_else(|| static_program::obstacle(&target, &library));
            (library, obstacle)
        }
        Err(reason) => (PathBuf::new(), Some(reason)),
    };
    target.why_not = target.why_not.or(obstacle);
    Ok(Resolved { program, target, library })
}

/// LD_PRELOAD for the program.
pub(crate) fn preload_list(library: &Path) -> OsString {
    prepended(library.as_os_str(), std::env::var_os("LD_PRELOAD").as_deref())
}

fn start(args: &RunArgs) -> Result<std::convert::Infallible, RunError> {
    let mut environment = exec::Environment::inherited();
    let plan = args.faults.plan()?;
    if backend::is_kernel(args.when_blocked)? {
        if plan.is_some() {
            return Err(RunError::no_faults("The kernel's ring is used (--when-blocked, or the variable URINGLET)"));
        }
        return Err(exec::exec_program(&lookup::find(&args.command[0])?, &args.command, &environment));
    }
    let Resolved { program, target, library } = resolve(&args.command[0])?;
    faults::export(plan.as_ref(), &mut environment);
    if let Some(reason) = &target.why_not {
        if plan.is_some() {
            return Err(RunError::no_faults(reason));
        }
        return Err(start_plain(args, &program, reason, &environment));
    }
    environment.set("LD_PRELOAD", &preload_list(&library));
    if !backend::is_kernel_traced() {
        environment.remove(backend::VARIABLE);
    }
    if args.explain {
        environment.set("URINGLET_EXPLAIN", OsStr::new("1"));
    }
    if args.no_cache {
        environment.set("URINGLET_CACHE", OsStr::new("off"));
    }
    args.export_notice(&mut environment);
    if args.trap {
        environment.set("URINGLET_TRAP", OsStr::new("1"));
    } else {
        environment.remove("URINGLET_TRAP");
    }
    args.mode.export(&mut environment);
    args.iosqe_async.export(&mut environment);
    args.ublk.export(&mut environment);
    if target.is_static {
        return Err(static_program::exec(&target, &args.command, &library, environment));
    }
    Err(exec::exec_program(&program, &args.command, &environment))
}

/// Runs a program that cannot be attached as without uringlet; returns only if that failed.
fn start_plain(args: &RunArgs, program: &Path, reason: &str, environment: &exec::Environment) -> RunError {
    if args.require {
        return RunError::not_attached(reason);
    }
    if !args.quiet {
        eprintln!("uringlet run: not attached: {reason}");
    }
    exec::exec_program(program, &args.command, environment)
}

/// LD_PRELOAD with `library` first, followed by the entries of `before`, without duplicates.
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
    fn the_library_is_preloaded_first_and_once() {
        let list = |before: Option<&str>| prepended(OsStr::new("/l/u.so"), before.map(OsStr::new)).into_string().unwrap();
        assert_eq!(list(None), "/l/u.so");
        assert_eq!(list(Some("")), "/l/u.so");
        assert_eq!(list(Some("a.so b.so")), "/l/u.so:a.so:b.so");
        assert_eq!(list(Some("a.so:/l/u.so::b.so")), "/l/u.so:a.so:b.so");
    }
}
