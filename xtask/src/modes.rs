//! The modes of `uringlet run`, as options of tasks name them.

use anyhow::Context;

/// The mode of this name, of a task's modes and what it has for each.
pub(crate) fn named<T>(modes: &[(&'static str, T)], name: &str, usage: &str) -> anyhow::Result<&'static str> {
    modes.iter().map(|(mode, _)| *mode).find(|mode| *mode == name).with_context(|| format!("there is no mode `{name}`\n{usage}"))
}
