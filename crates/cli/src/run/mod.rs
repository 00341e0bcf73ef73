//! `uringlet run`: puts `liburinglet.so` in front of a program and becomes that program.
//!
//! No parent process remains: this process becomes the program, with its exit status, signals,
//! descriptors and terminal.

mod args;
mod error;
mod exec;
mod executable;
mod lookup;
mod preload;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::status::Status;
pub(crate) use args::RunArgs;
use error::RunError;

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
