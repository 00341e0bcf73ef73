//! The measurements of `uringlet bench ublk`.

use std::ffi::OsString;
use std::time::Duration;

use super::args::{BenchUblkArgs, UblkPart};
use super::servers::NullServers;
use crate::bench::job::{BenchJob, Jobs, TableCell};
use crate::bench::json;
use crate::bench::tools::{Attachment, BenchTools};

pub(super) const GET_DATA: &str = "4 KiB writes, null device in one process";
pub(super) const COPIES: &str = "random writes into a buffer of a pool, depth 1, null device in one process";
pub(super) const PATHS: &str = "null device, 4 KiB, random";
pub(super) const OFF: &str = "off";
pub(super) const ON: &str = "NEED_GET_DATA";
pub(super) const COPY: &str = "one more copy";
pub(super) const IN_PROCESS: &str = "in one process";
pub(super) const DEEP: &str = "depth 64, batch 16";
pub(super) const OPS: [&str; 2] = ["read", "write"];
pub(super) const DEPTHS: [u32; 2] = [1, 32];
/// Time of a process beyond the measured one: starting under `uringlet run`, warming up.
const OVERHEAD: Duration = Duration::from_millis(250);

/// The row for an operation and a depth in [`PATHS`].
pub(super) fn row(op: &str, depth: u32) -> String {
    format!("{op}, depth {depth}")
}

#[derive(Debug)]
pub(super) struct UblkPlan {
    pub(super) jobs: Jobs,
    /// Request sizes, KiB.
    pub(super) sizes: Vec<u32>,
    /// The columns of [`PATHS`].
    pub(super) paths: Vec<&'static str>,
    /// What is not measured, and why.
    pub(super) notes: Vec<String>,
}

struct UblkPlanBuilder<'a> {
    tools: &'a BenchTools,
    time: Duration,
    plan: UblkPlan,
}

impl UblkPlanBuilder<'_> {
    fn add(&mut self, cell: TableCell, attachment: Attachment, args: Vec<OsString>) {
        let args = args.into_iter().chain([format!("--seconds={}", self.time.as_secs_f64()).into()]);
        // Ten times the expected time, for busy machines.
        let launch = self.tools.worker(attachment, args).within(Duration::from_secs(60) + self.time * 10);
        self.plan.jobs.push(BenchJob::program(cell, self.time + OVERHEAD, launch, json::sample));
    }

    fn in_process(&mut self, cell: TableCell, args: &[String]) {
        let args = std::iter::once("ublk".into()).chain(args.iter().map(Into::into)).collect();
        self.add(cell, Attachment::Attached(&["--ublk=in-process"]), args);
    }
}

fn words(args: &[&str]) -> Vec<String> {
    args.iter().map(ToString::to_string).collect()
}

pub(super) fn plan(args: &BenchUblkArgs, tools: &BenchTools, servers: &NullServers) -> UblkPlan {
    let plan = UblkPlan { jobs: Jobs::default(), sizes: args.sizes(), paths: Vec::new(), notes: Vec::new() };
    let mut builder = UblkPlanBuilder { tools, time: args.time(), plan };
    if args.has(UblkPart::GetData) {
        get_data(&mut builder);
    }
    if args.has(UblkPart::Copies) {
        copies(&mut builder);
    }
    if args.has(UblkPart::Paths) {
        paths(&mut builder, servers);
    }
    builder.plan
}

fn get_data(builder: &mut UblkPlanBuilder<'_>) {
    for (depth, options) in [("depth 1", ["--depth=1", "--batch=1"]), (DEEP, ["--depth=64", "--batch=16"])] {
        for pattern in ["write", "randwrite"] {
            for (column, via) in [(OFF, "--via=plain"), (ON, "--via=get-data")] {
                let mut options = words(&options);
                options.push(via.to_owned());
                options.extend((pattern == "write").then(|| "--sequential".to_owned()));
                builder.in_process(TableCell::new(GET_DATA, format!("{pattern}, {depth}"), column), &options);
            }
        }
    }
}

fn copies(builder: &mut UblkPlanBuilder<'_>) {
    for kib in builder.plan.sizes.clone() {
        for (column, via) in [(COPY, "--via=copy"), (ON, "--via=get-data")] {
            let options = [format!("--block={}", u64::from(kib) << 10), via.to_owned()];
            builder.in_process(TableCell::new(COPIES, format!("{kib} KiB"), column), &options);
        }
    }
}

fn paths(builder: &mut UblkPlanBuilder<'_>, servers: &NullServers) {
    builder.plan.paths = std::iter::once(IN_PROCESS).chain(servers.endpoints().map(|endpoint| endpoint.column)).collect();
    if let (Some(why), true) = (&builder.tools.no_kernel, servers.endpoints().any(|endpoint| endpoint.needs_kernel())) {
        builder.plan.notes.push(format!("block device: not measured, io_uring is not available from the kernel here ({why})"));
    }
    for op in OPS {
        for depth in DEPTHS {
            let options = [format!("--op={op}"), format!("--depth={depth}")];
            builder.in_process(TableCell::new(PATHS, row(op, depth), IN_PROCESS), &options);
            for endpoint in servers.endpoints().filter(|endpoint| !endpoint.needs_kernel() || builder.tools.no_kernel.is_none()) {
                let args = endpoint.worker_args().into_iter().chain(options.iter().map(Into::into)).collect();
                builder.add(TableCell::new(PATHS, row(op, depth), endpoint.column), Attachment::Plain, args);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::ublk::args::tests::parse;
    use crate::bench::ublk::servers::tests::servers;

    pub(in crate::bench::ublk) fn tools(no_kernel: Option<&str>) -> BenchTools {
        BenchTools { uringlet: "/b/u".into(), worker: "/b/w".into(), drop_in: None, no_kernel: no_kernel.map(str::to_owned) }
    }

    #[test]
    fn every_path_gets_the_same_workload() {
        let plan = plan(&parse(&["--sizes=4,64"]).unwrap(), &tools(None), &servers());
        assert_eq!(plan.jobs.0.len(), 8 + 4 + 4 * (1 + 4));
        assert_eq!(plan.jobs.rows(PATHS), ["read, depth 1", "read, depth 32", "write, depth 1", "write, depth 32"]);
        assert_eq!(plan.jobs.rows(COPIES), ["4 KiB", "64 KiB"]);
        assert!(plan.jobs.find_job(GET_DATA, "randwrite, depth 64, batch 16", ON).is_some());
    }

    #[test]
    fn without_the_kernels_ring_block_devices_are_left_out() {
        let plan = plan(&parse(&["--parts=paths"]).unwrap(), &tools(Some("no ring")), &servers());
        assert_eq!((plan.jobs.0.len(), plan.notes.len()), (4 * (1 + 3), 1));
        assert!(plan.notes[0].contains("no ring"), "{}", plan.notes[0]);
    }
}
