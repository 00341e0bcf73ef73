//! The measurements of `uringlet bench writes`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::args::{BenchWritesArgs, WritesPart};
use super::engine::WriteEngine;
use super::slow_fs::SlowFs;
use super::sysctl;
use super::workspace::Workspace;
use crate::bench::fio;
use crate::bench::host::HostInfo;
use crate::bench::job::{BenchJob, Jobs, ParseOutput, TableCell};
use crate::bench::json;
use crate::bench::launch::Launch;
use crate::bench::output::remove_if_there;
use crate::bench::stop::StopFlag;
use crate::bench::tools::BenchTools;

/// The program that generates the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadGenerator {
    Own,
    Fio,
}

impl LoadGenerator {
    pub(super) fn name(self) -> &'static str {
        if self == Self::Own { "own generator" } else { "fio" }
    }
}

/// A filesystem under test.
#[derive(Clone, Debug)]
pub(super) struct TestVolume {
    pub(super) kind: String,
    pub(super) label: String,
    directory: PathBuf,
}

pub(super) const DEPTHS: &str = "1 KiB random writes, 10 MB file";
pub(super) const BLOCKS: &str = "4 KiB writes, 64 MB file, depth 1";
pub(super) const SLOW: &str = "one file takes 100 ms a write";
pub(super) const THROTTLED: &str = "dirty pages are throttled";
const MIB: u64 = 1 << 20;
const SLOW_MS: u64 = 100;
const DIRTY_LIMIT: u64 = 8 * MIB;

/// The title of a table.
pub(super) fn title(what: &str, volume: &TestVolume, generator: LoadGenerator) -> String {
    format!("{what}, {}, {}", volume.label, generator.name())
}

#[derive(Debug)]
pub(super) struct WritesPlan {
    pub(super) jobs: Jobs,
    pub(super) volumes: Vec<TestVolume>,
    pub(super) generators: Vec<LoadGenerator>,
    pub(super) engines: Vec<WriteEngine>,
    /// What is not measured, and why.
    pub(super) notes: Vec<String>,
}

/// Plans all measurements and makes the filesystems for them.
pub(super) fn plan(args: &BenchWritesArgs, tools: &BenchTools, workspace: &mut Workspace, stop: &StopFlag) -> WritesPlan {
    let mut plan = WritesPlan {
        jobs: Jobs::default(),
        volumes: Vec::new(),
        generators: vec![LoadGenerator::Own],
        engines: Vec::new(),
        notes: Vec::new(),
    };
    plan.engines = args.engines().into_iter().filter(|&engine| engine != WriteEngine::Kernel || tools.no_kernel.is_none()).collect();
    if let (Some(why), true) = (&tools.no_kernel, args.engines().contains(&WriteEngine::Kernel)) {
        plan.notes.push(format!("kernel's ring: not measured, io_uring is not available from the kernel here ({why})"));
    }
    let has_rates = args.parts.iter().any(|&part| part != WritesPart::Latency);
    if has_rates && !args.no_fio {
        match fio::missing() {
            None => plan.generators.push(LoadGenerator::Fio),
            Some(why) => plan.notes.push(format!("fio: not measured ({why}; package fio)")),
        }
    }
    if has_rates {
        plan.find_volumes(args, workspace, stop);
    }
    for volume in plan.volumes.clone() {
        for generator in plan.generators.clone() {
            plan.add_rates(args, tools, &volume, generator);
        }
    }
    if args.parts.contains(&WritesPart::Latency) {
        plan.add_latencies(args, tools, workspace);
    }
    plan
}

/// The parameters of one throughput measurement and its row.
struct WriteCase<'a> {
    what: &'static str,
    row: String,
    pattern: &'a str,
    block: usize,
    size: u64,
    depth: u32,
}

impl WritesPlan {
    fn find_volumes(&mut self, args: &BenchWritesArgs, workspace: &mut Workspace, stop: &StopFlag) {
        for fs in args.filesystems() {
            let Some(kind) = fs.made() else {
                let kind = HostInfo::detect(workspace.path()).filesystem;
                self.volumes.push(TestVolume {
                    label: format!("{kind} (this machine's)"),
                    kind,
                    directory: workspace.path().to_path_buf(),
                });
                continue;
            };
            match workspace.filesystem(kind, stop) {
                Ok(directory) => self.volumes.push(TestVolume { kind: kind.to_owned(), label: format!("{kind} (loop image)"), directory }),
                Err(why) => self.notes.push(format!("{kind} (loop image): not measured ({why})")),
            }
        }
    }

    fn add_rates(&mut self, args: &BenchWritesArgs, tools: &BenchTools, volume: &TestVolume, generator: LoadGenerator) {
        if args.parts.contains(&WritesPart::Depths) {
            for depth in args.depths() {
                let case = WriteCase { what: DEPTHS, row: depth.to_string(), pattern: "random", block: 1024, size: 10 * MIB, depth };
                self.add_rate(args, tools, volume, generator, &case);
            }
        }
        if args.parts.contains(&WritesPart::Blocks) {
            for pattern in ["sequential", "random"] {
                let case = WriteCase { what: BLOCKS, row: pattern.to_owned(), pattern, block: 4096, size: 64 * MIB, depth: 1 };
                self.add_rate(args, tools, volume, generator, &case);
            }
        }
    }

    /// One job per engine in succession, so that what is compared is measured together.
    fn add_rate(
        &mut self,
        args: &BenchWritesArgs,
        tools: &BenchTools,
        volume: &TestVolume,
        generator: LoadGenerator,
        case: &WriteCase<'_>,
    ) {
        let file = volume.directory.join("file");
        let time = args.time();
        for engine in self.engines.clone() {
            let cell = TableCell::new(title(case.what, volume, generator), &case.row, engine.label());
            let (launch, read, expected): (_, ParseOutput, _) = match generator {
                LoadGenerator::Own => (case.worker(tools, engine, &file, time), json::sample, time + Duration::from_millis(200)),
                LoadGenerator::Fio => (case.fio(tools, engine, &file, time), fio::sample, time + fio::OVERHEAD),
            };
            let file = file.clone();
            let launch = launch.within(limit(time));
            self.jobs.push(BenchJob::new(cell, expected, move |stop| {
                let printed = launch.output(stop);
                remove_if_there(&file)?;
                read(&printed?)
            }));
        }
    }

    fn add_latencies(&mut self, args: &BenchWritesArgs, tools: &BenchTools, workspace: &mut Workspace) {
        let directory = workspace.path().to_path_buf();
        match workspace.mount_point("slow") {
            Ok(point) => self.add_slow_file(args, tools, &directory, &point),
            Err(why) => self.notes.push(format!("{SLOW}: not measured ({why})")),
        }
        if args.allow_sysctl && !rustix::process::geteuid().is_root() {
            self.notes.push(format!("{THROTTLED}: not measured (changing the limits needs root)"));
        } else if args.allow_sysctl {
            self.add_throttled(args, tools, &directory);
        } else {
            self.notes.push(format!("{THROTTLED}: not measured (it lowers vm.dirty_bytes meanwhile: --allow-sysctl)"));
        }
    }

    fn rings(&self) -> Vec<WriteEngine> {
        self.engines.iter().copied().filter(|engine| engine.has_ring()).collect()
    }

    fn add_slow_file(&mut self, args: &BenchWritesArgs, tools: &BenchTools, directory: &Path, point: &Path) {
        for engine in self.rings() {
            let (worker, point) = (tools.worker.clone(), point.to_path_buf());
            let launch = latency(args, tools, engine, &point.join("slow"), directory, &["--size", "1048576"]);
            let cell = TableCell::new("latency", SLOW, engine.label());
            self.jobs.push(BenchJob::new(cell, args.latency_time() + Duration::from_millis(300), move |stop| {
                let slow = SlowFs::mount(&worker, &point, SLOW_MS)?;
                let printed = launch.output(stop);
                drop(slow);
                json::sample(&printed?)
            }));
        }
    }

    fn add_throttled(&mut self, args: &BenchWritesArgs, tools: &BenchTools, directory: &Path) {
        let file = directory.join("throttled");
        for engine in self.rings() {
            // Reads, since writes to other files are throttled too. Without a limit the stream
            // makes 1 GB/s, more than most disks take.
            let stream = ["--size", "268435456", "--block", "131072", "--depth", "16", "--reads"];
            let launch = latency(args, tools, engine, &file, directory, &stream);
            let (cell, file) = (TableCell::new("latency", THROTTLED, engine.label()), file.clone());
            self.jobs.push(BenchJob::new(cell, args.latency_time() + Duration::from_millis(500), move |stop| {
                let low = sysctl::lower(DIRTY_LIMIT, DIRTY_LIMIT / 2)?;
                let printed = launch.output(stop);
                drop(low);
                remove_if_there(&file)?;
                json::sample(&printed?)
            }));
        }
    }
}

/// Ten times the expected time, for busy machines.
fn limit(time: Duration) -> Duration {
    Duration::from_secs(60) + time * 10
}

fn latency(args: &BenchWritesArgs, tools: &BenchTools, engine: WriteEngine, slow: &Path, directory: &Path, stream: &[&str]) -> Launch {
    let seconds = args.latency_time().as_secs_f64().to_string();
    let mut argv: Vec<std::ffi::OsString> = vec!["latency".into(), "--seconds".into(), seconds.into()];
    argv.extend(["--slow".into(), slow.into(), "--directory".into(), directory.into()]);
    argv.extend(stream.iter().map(Into::into));
    tools.worker(engine.attachment(), argv).within(limit(args.latency_time()))
}

impl WriteCase<'_> {
    fn worker(&self, tools: &BenchTools, engine: WriteEngine, file: &Path, time: Duration) -> Launch {
        let mut argv: Vec<std::ffi::OsString> = vec!["write".into(), "--via".into(), engine.via().into(), "--file".into(), file.into()];
        let numbers = [
            ("--depth", self.depth.to_string()),
            ("--block", self.block.to_string()),
            ("--size", self.size.to_string()),
            ("--seconds", time.as_secs_f64().to_string()),
        ];
        argv.extend(numbers.into_iter().flat_map(|(name, number)| [name.into(), number.into()]));
        argv.extend((self.pattern == "sequential").then(|| "--sequential".into()));
        tools.worker(engine.attachment(), argv)
    }

    fn fio(&self, tools: &BenchTools, engine: WriteEngine, file: &Path, time: Duration) -> Launch {
        let writes = fio::Writes {
            engine: engine.ioengine(),
            pattern: if self.pattern == "sequential" { "write" } else { "randwrite" },
            block: &self.block.to_string(),
            size: &self.size.to_string(),
            depth: self.depth,
            time,
            file,
        };
        tools.launch(engine.attachment(), writes.argv())
    }
}
