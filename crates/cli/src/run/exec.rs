//! execve(2) without side effects: std's `Command` would reset the signal mask and SIGPIPE.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::execve;

use super::error::RunError;

/// The program's environment.
#[derive(Debug)]
pub(super) struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    pub(super) fn inherited() -> Self {
        Self(std::env::vars_os().collect())
    }

    pub(super) fn set(&mut self, name: &str, value: &OsStr) {
        self.remove(name);
        self.0.push((name.into(), value.into()));
    }

    /// As [`set`](Self::set), before all others.
    pub(super) fn set_first(&mut self, name: &str, value: &OsStr) {
        self.remove(name);
        self.0.insert(0, (name.into(), value.into()));
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(n, _)| n != name);
    }

    fn strings(&self) -> Vec<CString> {
        let join = |(name, value): &(OsString, OsString)| {
            let mut text = name.clone();
            text.push("=");
            text.push(value);
            c_string(&text)
        };
        self.0.iter().map(join).collect()
    }
}

/// Names and values come from the kernel or the command line, so they contain no NUL.
fn c_string(text: &OsStr) -> CString {
    let bytes: Vec<u8> = text.as_bytes().iter().copied().take_while(|&b| b != 0).collect();
    CString::new(OsString::from_vec(bytes).into_vec()).unwrap_or_default()
}

/// Executes the program; returns only if that failed.
pub(super) fn exec_program(path: &Path, arguments: &[OsString], environment: &Environment) -> RunError {
    let file = c_string(path.as_os_str());
    let arguments: Vec<CString> = arguments.iter().map(|a| c_string(a)).collect();
    let error = match execve(&file, &arguments, &environment.strings()) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    let hint = match error {
        Errno::ENOENT => return RunError::not_found(format_args!("{}: its interpreter does not exist", path.display())),
        Errno::ENOEXEC => "; if it is a script, its first line must name an interpreter (#!/bin/sh)",
        Errno::E2BIG => "; arguments and environment are together too long",
        _ => "",
    };
    RunError::not_runnable(format_args!("{}: cannot be executed: {}{hint}", path.display(), error.desc()))
}
