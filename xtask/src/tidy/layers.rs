//! The layers of the engine: a module of `crates/core` names none above its own. Rust's privacy does not check that.

use super::source::Source;

/// From bottom to top; modules of one row may name each other.
const LAYERS: &[&[&str]] = &[
    &["ring", "rsrc", "file", "slab", "req_id", "virtual_file", "write"],
    &["io_wq", "apoll", "timer"],
    &["ring_resources"],
    &["ops"],
    &["request"],
    &["state"],
    &["submit"],
    &["driver", "register"],
    &["engine", "lib"],
];

/// Below, and yet not to be named: an operation only answers; who acts on the answer is not its business.
const BARRED: &[(&str, &[&str])] = &[("ops", &["io_wq", "apoll", "timer"])];

const CORE: &str = "crates/core/src/";

/// A path that leads upward.
#[derive(Debug)]
pub(super) struct Breach {
    pub(super) path: String,
    pub(super) text: String,
}

/// Every upward or barred `crate::` path, and every module without a layer.
pub(super) fn check(sources: &[Source]) -> Vec<Breach> {
    sources.iter().flat_map(check_one).collect()
}

fn check_one(source: &Source) -> Vec<Breach> {
    let Some(inner) = source.path.strip_prefix(CORE) else { return Vec::new() };
    let breach = |text: String| Breach { path: source.path.clone(), text };
    let module = inner.split(['/', '.']).next().unwrap_or_default();
    let Some(own) = layer(module) else {
        return vec![breach(format!("{}: module {module} has no layer in xtask/src/tidy/layers.rs", source.path))];
    };
    let barred = BARRED.iter().find(|(name, _)| *name == module).map_or(&[][..], |(_, barred)| *barred);
    let mut breaches = Vec::new();
    for (named, line) in &source.crate_paths {
        // What is no module is re-exported at the top, or is a macro or a static there.
        let first = named.split("::").next().unwrap_or(named);
        let is_above = layer(first).is_some_and(|layer| layer > own);
        if is_above || barred.contains(&first) {
            breaches.push(breach(format!("{}:{line}: {module} names crate::{named}, which is above it", source.path)));
        }
    }
    breaches
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(path: &str, text: &str) -> usize {
        check(&[Source::parse(path, text).unwrap()]).len()
    }

    #[test]
    fn looking_down_is_fine_and_up_is_not() {
        assert_eq!(offences("crates/core/src/submit/link.rs", "use crate::ops::Issue;"), 0);
        assert_eq!(offences("crates/core/src/ops/rw.rs", "use crate::submit::link;"), 1);
        assert_eq!(offences("crates/core/src/ring/cq.rs", "fn f() { crate::driver::wake() }"), 1);
        assert_eq!(offences("crates/core/src/ring/cq.rs", "use crate::{ring::sq, file::File};"), 0);
    }

    #[test]
    fn an_operation_does_not_know_who_runs_it() {
        assert_eq!(offences("crates/core/src/ops/rw.rs", "use crate::{io_wq, kit};"), 1);
        assert_eq!(offences("crates/core/src/ops/rw.rs", "use crate::request::Request;"), 1);
    }

    #[test]
    fn a_new_module_needs_a_layer() {
        assert_eq!(offences("crates/core/src/novelty.rs", ""), 1);
    }
}
