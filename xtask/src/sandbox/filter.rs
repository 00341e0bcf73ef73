//! Building and installing seccomp filters from system call names.

use anyhow::Context;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch};
use std::collections::BTreeMap;

/// The system calls of io_uring.
pub(super) const IO_URING: &[&str] = &["io_uring_setup", "io_uring_enter", "io_uring_register"];

/// Conditions for each call's number; an empty list means always.
pub(super) type CallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// The number of the named call; `None` on a CPU that never had it.
pub(super) fn number(name: &str) -> Option<i64> {
    let call: syscalls::Sysno = name.parse().ok()?;
    Some(i64::from(call.id()))
}

/// Compiles a filter: calls that match `rules` get `on_match`, all others `otherwise`.
pub(super) fn compile(rules: CallRules, on_match: SeccompAction, otherwise: SeccompAction) -> anyhow::Result<BpfProgram> {
    let arch: TargetArch = std::env::consts::ARCH.try_into().context("no seccomp filter is known for this CPU")?;
    let filter = SeccompFilter::new(rules, otherwise, on_match, arch)?;
    Ok(filter.try_into()?)
}

/// The filter of `--kill`.
pub(super) fn killing_io_uring() -> anyhow::Result<BpfProgram> {
    let rules = IO_URING.iter().filter_map(|name| number(name)).map(|nr| (nr, vec![])).collect();
    compile(rules, SeccompAction::KillProcess, SeccompAction::Allow)
}

/// Installs the filter for this thread and everything it starts.
///
/// This also sets `no_new_privs`, which Docker does not: set-uid programs gain no rights inside.
pub(super) fn install(program: &BpfProgram) -> anyhow::Result<()> {
    seccompiler::apply_filter(program).context("the kernel refused the seccomp filter")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_uring_numbers_are_the_same_on_every_cpu() {
        let numbers: Vec<_> = IO_URING.iter().map(|name| number(name)).collect();
        assert_eq!(numbers, [Some(425), Some(426), Some(427)]);
    }

    #[test]
    fn killing_filter_compiles() {
        assert!(!killing_io_uring().unwrap().is_empty());
    }
}
