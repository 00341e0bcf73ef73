//! The layers of the engine: a module of `crates/core` names no module of a higher layer.
//! Rust's privacy does not check that.

use super::findings::TidyFindings;
use super::ratchet::UPWARD;
use super::source::RustSource;

/// From bottom to top; modules of one row may name each other. `a/b` is a submodule whose layer is
/// not that of `a`.
const LAYERS: &[&[&str]] = &[
    &[
        "ring",
        "rsrc",
        "file",
        "identity",
        "identity_call",
        "intercepted",
        "slab",
        "hash",
        "fd_map",
        "cbpf",
        "req_id",
        "virtual_file",
        "throttle",
        "write",
        "variables",
    ],
    &["io_wq", "apoll", "timer", "uringlet/run_queue", "uringlet/workers"],
    &["route"],
    &["ring_resources"],
    &["ops"],
    &["trace"],
    &["fault"],
    &["kernel_trace"],
    &["request"],
    &["state"],
    &["submit"],
    &["driver", "register", "uringlet"],
    &["engine", "lib"],
];

/// Lower modules that must not be named either: an op only answers, and names nothing that acts on
/// it.
const BARRED: &[(&str, &[&str])] = &[("ops", &["io_wq", "apoll", "timer"])];

const CORE: &str = "crates/core/src/";

/// Records every upward or barred `crate::` path, and every module that has no layer.
pub(super) fn measure(sources: &[RustSource], found: &mut TidyFindings) {
    for source in sources {
        let Some(inner) = source.path.strip_prefix(CORE) else { continue };
        let module = inner.split(['/', '.']).next().unwrap_or_default();
        match layer(inner.trim_end_matches(".rs").split('/')) {
            Some(own) => measure_one(source, module, own, found),
            None => found.add(UPWARD, &source.path, format!("{}: module {module} has no layer in xtask/src/tidy/layers.rs", source.path)),
        }
    }
}

fn measure_one(source: &RustSource, module: &str, own: usize, found: &mut TidyFindings) {
    let barred = BARRED.iter().find(|(name, _)| *name == module).map_or(&[][..], |(_, barred)| *barred);
    for (named, line) in &source.crate_paths {
        // A name that is no module is an item at the crate's root.
        let first = named.split("::").next().unwrap_or(named);
        let is_above = layer(named.split("::")).is_some_and(|layer| layer > own);
        if is_above || barred.contains(&first) {
            found.add(UPWARD, &source.path, format!("{}:{line}: {module} names crate::{named}, a module above it", source.path));
        }
    }
}

fn layer<'a>(mut path: impl Iterator<Item = &'a str>) -> Option<usize> {
    let module = path.next()?;
    let row = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
    path.next().and_then(|submodule| row(&format!("{module}/{submodule}"))).or_else(|| row(module))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(path: &str, text: &str) -> usize {
        let mut found = TidyFindings::default();
        measure(&[RustSource::parse(path, text).unwrap()], &mut found);
        found.all_texts("").count()
    }

    #[test]
    fn a_downward_path_passes_and_an_upward_path_does_not() {
        assert_eq!(offences("crates/core/src/submit/link.rs", "use crate::ops::Issue;"), 0);
        assert_eq!(offences("crates/core/src/ops/rw.rs", "use crate::submit::link;"), 1);
        assert_eq!(offences("crates/core/src/ring/cq.rs", "fn f() { crate::driver::wake() }"), 1);
        assert_eq!(offences("crates/core/src/ring/cq.rs", "use crate::{ring::sq, file::File};"), 0);
    }

    #[test]
    fn a_submodule_may_have_a_layer_of_its_own() {
        assert_eq!(offences("crates/core/src/state/ring.rs", "use crate::uringlet::run_queue::RunQueue;"), 0);
        assert_eq!(offences("crates/core/src/state/ring.rs", "use crate::uringlet::wake;"), 1);
        assert_eq!(offences("crates/core/src/uringlet/run_queue.rs", "use crate::state::Ring;"), 1);
    }

    #[test]
    fn an_op_names_neither_workers_nor_requests() {
        assert_eq!(offences("crates/core/src/ops/rw.rs", "use crate::{io_wq, ring_resources};"), 1);
        assert_eq!(offences("crates/core/src/ops/rw.rs", "use crate::request::Request;"), 1);
    }

    #[test]
    fn a_new_module_needs_a_layer() {
        assert_eq!(offences("crates/core/src/novelty.rs", ""), 1);
    }
}
