//! What may keep a process from the kernel's io_uring.

use std::fs;

/// The settings that decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockCause {
    /// `kernel.io_uring_disabled`; `None`: this kernel has no such setting.
    pub(crate) disabled: Option<u32>,
    /// `kernel.io_uring_group`: who may with 1; -1: nobody.
    pub(crate) group: Option<i64>,
    /// A seccomp filter is in force.
    pub(crate) has_filter: bool,
    /// The security context, where a security module has one.
    pub(crate) confinement: Option<String>,
}

impl BlockCause {
    pub(super) fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        let number = |path: &str| read(path)?.trim().parse::<i64>().ok();
        let status = read("/proc/self/status").unwrap_or_default();
        Self {
            disabled: number("/proc/sys/kernel/io_uring_disabled").and_then(|value| u32::try_from(value).ok()),
            group: number("/proc/sys/kernel/io_uring_group"),
            has_filter: is_filtered(&status),
            confinement: read("/proc/self/attr/current").and_then(|text| confined(&text)),
        }
    }

    /// Why io_uring_setup(2) says EPERM.
    pub(crate) fn of_eperm(&self) -> String {
        let by_group = match self.group {
            Some(group @ 0..) => format!("; members of group {group} may (kernel.io_uring_group)"),
            _ => String::new(),
        };
        match (self.disabled, self.has_filter, &self.confinement) {
            (Some(2..), ..) => "by kernel.io_uring_disabled = 2, for everybody".into(),
            (Some(1), false, _) => format!("by kernel.io_uring_disabled = 1, for users without CAP_SYS_ADMIN{by_group}"),
            (Some(1), true, _) => format!("by kernel.io_uring_disabled = 1{by_group}, or by a seccomp filter"),
            (_, true, _) => "by a seccomp filter".into(),
            (_, false, Some(context)) => format!("by a security module ({context})"),
            (_, false, None) => "by a security module".into(),
        }
    }
}

/// `Seccomp:` in /proc/PID/status: 2 is a filter.
fn is_filtered(status: &str) -> bool {
    status.lines().find_map(|line| line.strip_prefix("Seccomp:")).is_some_and(|mode| mode.trim() == "2")
}

/// The context, unless it says that there is none.
fn confined(context: &str) -> Option<String> {
    let context = context.trim_matches(['\0', '\n', ' ']);
    (!context.is_empty() && context != "unconfined" && context != "kernel").then(|| context.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_cause_is_named() {
        let of = |disabled, has_filter, confinement: Option<&str>| {
            BlockCause { disabled: Some(disabled), group: Some(27), has_filter, confinement: confinement.map(str::to_owned) }.of_eperm()
        };
        assert_eq!(of(2, true, None), "by kernel.io_uring_disabled = 2, for everybody");
        assert!(of(1, false, None).ends_with("members of group 27 may (kernel.io_uring_group)"));
        assert_eq!(of(0, true, Some("docker-default (enforce)")), "by a seccomp filter");
        assert_eq!(of(0, false, Some("docker-default (enforce)")), "by a security module (docker-default (enforce))");
    }

    #[test]
    fn words_of_the_kernel_are_read() {
        assert!(is_filtered("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n") && !is_filtered("Seccomp:\t0\n"));
        assert_eq!([confined("unconfined\n"), confined("\0"), confined("a_t\0")], [None, None, Some("a_t".into())]);
    }
}
