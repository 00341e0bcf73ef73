//! The measurements of `uringlet bench echo`.

use std::ffi::OsString;
use std::time::Duration;

use super::args::{BenchEchoArgs, EchoMode};
use crate::bench::job::{BenchJob, Jobs, TableCell};
use crate::bench::json;
use crate::bench::tools::{Attachment, BenchTools};

/// What drives the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EchoBackend {
    Epoll,
    Kernel,
    Engine,
    /// uringlet, with every attempt made by a worker.
    WorkerOnly,
    /// uringlet, with workers that block instead of arming poll.
    HybridOff,
}

impl EchoBackend {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Kernel => "kernel's ring",
            Self::Engine => "engine",
            Self::WorkerOnly => "engine, always a worker",
            Self::HybridOff => "engine, hybrid step off",
        }
    }

    fn attachment(self) -> Attachment {
        match self {
            Self::Epoll | Self::Kernel => Attachment::Plain,
            Self::Engine => Attachment::Attached(&[]),
            Self::WorkerOnly => Attachment::Attached(&["--iosqe-async=worker"]),
            Self::HybridOff => Attachment::Attached(&["--iosqe-async=block"]),
        }
    }
}

/// The backends that are compared in a mode.
pub(super) fn backends_of(mode: EchoMode) -> &'static [EchoBackend] {
    match mode {
        EchoMode::Default => &[EchoBackend::Epoll, EchoBackend::Kernel, EchoBackend::Engine],
        EchoMode::DeferTaskrun | EchoMode::RegisteredFiles => &[EchoBackend::Kernel, EchoBackend::Engine],
        EchoMode::Async20 | EchoMode::Async4 => {
            &[EchoBackend::Kernel, EchoBackend::Engine, EchoBackend::WorkerOnly, EchoBackend::HybridOff]
        }
    }
}

/// Messages of one length on a number of connections. Each workload is a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EchoWorkload {
    pub(super) size: u32,
    pub(super) connections: u32,
    /// Mean pause of a connection between messages; 0: none.
    pub(super) pause_ms: u32,
}

impl EchoWorkload {
    pub(super) fn title(self) -> String {
        let pauses = if self.pause_ms == 0 { String::new() } else { format!(", pauses of {} ms", self.pause_ms) };
        format!("{} connection{}, {} bytes{pauses}", self.connections, if self.connections == 1 { "" } else { "s" }, self.size)
    }

    /// All combinations, and the workload with pauses.
    fn from_args(args: &BenchEchoArgs) -> Vec<Self> {
        let (sizes, connections) = (args.sizes(), args.connections());
        let one = |size| connections.iter().map(move |&connections| Self { size, connections, pause_ms: 0 });
        let mut workloads: Vec<Self> = sizes.iter().flat_map(|&size| one(size)).collect();
        if let (Some(&size), Some(&most), 1..) = (sizes.iter().min(), connections.iter().max(), args.pause_ms) {
            workloads.push(Self { size, connections: most, pause_ms: args.pause_ms });
        }
        workloads
    }

    /// Pauses are measured in the modes with workers only.
    fn applies_to(self, mode: EchoMode) -> bool {
        self.pause_ms == 0 || mode.is_async()
    }
}

#[derive(Debug)]
pub(super) struct EchoPlan {
    pub(super) jobs: Jobs,
    pub(super) modes: Vec<EchoMode>,
    pub(super) workloads: Vec<EchoWorkload>,
    /// What is not measured, and why.
    pub(super) notes: Vec<String>,
}

pub(super) fn plan(args: &BenchEchoArgs, tools: &BenchTools) -> EchoPlan {
    let (modes, mut workloads) = (args.modes(), EchoWorkload::from_args(args));
    workloads.retain(|workload| modes.iter().any(|&mode| workload.applies_to(mode)));
    let mut plan = EchoPlan { jobs: Jobs::default(), modes, workloads, notes: Vec::new() };
    if let Some(why) = &tools.no_kernel {
        plan.notes.push(format!("kernel's ring: not measured, io_uring is not available from the kernel here ({why})"));
    }
    for &workload in &plan.workloads {
        for &mode in plan.modes.iter().filter(|&&mode| workload.applies_to(mode)) {
            for &backend in backends_of(mode).iter().filter(|&&backend| backend != EchoBackend::Kernel || tools.no_kernel.is_none()) {
                let launch = tools.worker(Attachment::Plain, load(tools, workload, mode, backend, args.time())).within(limit(args.time()));
                let cell = TableCell::new(workload.title(), mode.label(), backend.label());
                plan.jobs.push(BenchJob::program(cell, expected(workload, args.time()), launch, json::sample));
            }
        }
    }
    plan
}

/// The measured time, and starting, connecting and warming up.
fn expected(workload: EchoWorkload, time: Duration) -> Duration {
    let warm_up = (time / 5).max(Duration::from_millis(4) * workload.pause_ms);
    time + warm_up + Duration::from_millis(60) + Duration::from_micros(100) * workload.connections
}

/// Ten times the expected time, for busy machines.
fn limit(time: Duration) -> Duration {
    Duration::from_secs(90) + time * 10
}

/// The arguments of the load generator, which end with the server's command line.
fn load(tools: &BenchTools, workload: EchoWorkload, mode: EchoMode, backend: EchoBackend, time: Duration) -> Vec<OsString> {
    let both = [format!("--connections={}", workload.connections), format!("--size={}", workload.size)];
    let via = if backend == EchoBackend::Epoll { "--via=epoll" } else { "--via=ring" };
    let options = mode.options().iter().copied().chain([via]).map(ToString::to_string);
    let server = tools.worker(backend.attachment(), std::iter::once("echo-server".to_owned()).chain(both.clone()).chain(options));
    let mut argv: Vec<OsString> = vec!["echo".into()];
    argv.extend(both.into_iter().map(Into::into));
    argv.push(format!("--seconds={}", time.as_secs_f64()).into());
    argv.extend((workload.pause_ms > 0).then(|| format!("--pause-ms={}", workload.pause_ms).into()));
    argv.push("--".into());
    argv.extend(server.argv);
    argv
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::echo::args::tests::parse;

    pub(in crate::bench::echo) fn tools(no_kernel: Option<&str>) -> BenchTools {
        BenchTools { uringlet: "/b/u".into(), worker: "/b/w".into(), drop_in: None, no_kernel: no_kernel.map(str::to_owned) }
    }

    #[test]
    fn every_backend_runs_the_same_server() {
        let workload = EchoWorkload { size: 12, connections: 7, pause_ms: 0 };
        let of = |mode, backend| {
            let argv = load(&tools(None), workload, mode, backend, Duration::from_millis(500));
            argv.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let ends = "echo-server --connections=7 --size=12 --via=ring";
        assert_eq!(of(EchoMode::Default, EchoBackend::Kernel), format!("echo --connections=7 --size=12 --seconds=0.5 -- /b/w {ends}"));
        assert_eq!(
            of(EchoMode::Default, EchoBackend::Engine),
            format!("echo --connections=7 --size=12 --seconds=0.5 -- /b/u run -- /b/w {ends}")
        );
        assert!(of(EchoMode::Default, EchoBackend::Epoll).ends_with("-- /b/w echo-server --connections=7 --size=12 --via=epoll"));
        let off = of(EchoMode::Async4, EchoBackend::HybridOff);
        assert!(
            off.contains(" -- /b/u run --iosqe-async=block -- /b/w ") && off.ends_with("--registered-files --async-workers=4 --via=ring"),
            "{off}"
        );
    }

    #[test]
    fn without_the_kernels_ring_the_other_backends_are_measured() {
        let args = parse(&["--connections=1,2", "--sizes=12", "--pause-ms=0"]).unwrap();
        let whole = plan(&args, &tools(None));
        assert_eq!((whole.jobs.0.len(), whole.notes.len()), (2 * 15, 0));
        let rest = plan(&args, &tools(Some("no ring")));
        assert_eq!((rest.jobs.0.len(), rest.notes.len()), (2 * 10, 1));
        assert!(rest.jobs.0.iter().all(|job| job.cell.column != EchoBackend::Kernel.label()) && rest.notes[0].contains("no ring"));
    }

    #[test]
    fn pauses_are_measured_with_workers_only() {
        let workloads = |args: &[&str]| plan(&parse(args).unwrap(), &tools(None)).workloads;
        let last = *workloads(&["--connections=1,9,2", "--sizes=16,12"]).last().unwrap();
        assert_eq!(last, EchoWorkload { size: 12, connections: 9, pause_ms: 20 });
        assert!(workloads(&["--modes=default"]).iter().all(|workload| workload.pause_ms == 0));
        let plan = plan(&parse(&["--connections=9", "--sizes=12"]).unwrap(), &tools(None));
        assert_eq!((plan.jobs.0.len(), plan.jobs.rows("9 connections, 12 bytes, pauses of 20 ms").len()), (15 + 8, 2));
        let argv = load(&tools(None), last, EchoMode::Async20, EchoBackend::Engine, Duration::from_secs(1));
        assert!(argv.contains(&"--pause-ms=20".into()));
    }
}
