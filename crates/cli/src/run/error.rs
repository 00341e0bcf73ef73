//! Why a program does not start.

use std::fmt;

use crate::status::Status;

/// The message, and the exit status that a shell would use.
#[derive(Debug)]
pub(crate) struct RunError {
    pub(super) status: Status,
    pub(crate) message: String,
}

impl RunError {
    /// The program does not exist: 127.
    pub(super) fn not_found(message: impl fmt::Display) -> Self {
        Self { status: 127, message: message.to_string() }
    }

    /// The program could run, but `--require` asks that it is attached: 125.
    pub(super) fn not_attached(reason: impl fmt::Display) -> Self {
        Self { status: 125, message: format!("{reason}. --require: nothing is run") }
    }

    /// A variable has a wrong value: 125.
    pub(super) fn wrong_variable(message: impl fmt::Display) -> Self {
        Self { status: 125, message: message.to_string() }
    }

    /// An option is wrong: 125.
    pub(super) fn wrong_option(message: impl fmt::Display) -> Self {
        Self { status: 125, message: message.to_string() }
    }

    /// Nothing can be done to requests that the engine does not execute: 125.
    pub(super) fn no_faults(reason: impl fmt::Display) -> Self {
        Self { status: 125, message: format!("{reason}. Only the engine injects faults: nothing is run") }
    }

    /// The program exists but cannot be run: 126.
    pub(super) fn not_runnable(message: impl fmt::Display) -> Self {
        Self { status: 126, message: message.to_string() }
    }
}
