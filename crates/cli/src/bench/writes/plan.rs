//! Everything that is measured.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::engine::Engine;
use super::settings::{Args, Part};
use super::slow::SlowFs;
use super::sysctl;
use super::workspace::Workspace;
use crate::bench::child::Launch;
use crate::bench::fio;
use crate::bench::host::Host;
use crate::bench::job::{Job, Jobs, Place, Read};
use crate::bench::json;
use crate::bench::remove_if_there;
use crate::bench::stop::Stop;
use crate::bench::tools::Tools;

/// Who makes the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generator {
    Own,
    Fio,
}

impl Generator {
    pub(super) fn name(self) -> &'static str {
        if self == Self::Own { "own generator" } else { "fio" }
    }
}

/// A filesystem that is written to.
#[derive(Clone, Debug)]
pub(super) struct Volume {
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

/// The name of a table.
pub(super) fn title(what: &str, volume: &Volume, generator: Generator) -> String {
    format!("{what}, {}, {}", volume.label, generator.name())
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) jobs: Jobs,
    pub(super) volumes: Vec<Volume>,
    pub(super) generators: Vec<Generator>,
    pub(super) engines: Vec<Engine>,
    /// What is not measured, and why.
    pub(super) notes: Vec<String>,
}

/// Also makes the filesystems that are wanted.
pub(super) fn plan(args: &Args, tools: &Tools, workspace: &mut Workspace, stop: &Stop) -> Plan {
    let mut plan =
        Plan { jobs: Jobs::default(), volumes: Vec::new(), generators: vec![Generator::Own], engines: Vec::new(), notes: Vec::new() };
    plan.engines = args.engines().into_iter().filter(|&engine| engine != Engine::Kernel || tools.no_kernel.is_none()).collect();
    if let (Some(why), true) = (&tools.no_kernel, args.engines().contains(&Engine::Kernel)) {
        plan.notes.push(format!("kernel's ring: not measured, the kernel gives none here ({why})"));
    }
    let has_rates = args.parts.iter().any(|&part| part != Part::Latency);
    if has_rates && !args.no_fio {
        match fio::missing() {
            None => plan.generators.push(Generator::Fio),
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
    if args.parts.contains(&Part::Latency) {
        plan.add_latencies(args, tools, workspace);
    }
    plan
}

/// Where in a table a rate belongs, and what is written.
struct Rate<'a> {
    what: &'static str,
    row: String,
    pattern: &'a str,
    block: usize,
    size: u64,
    depth: u32,
}

impl Plan {
    fn find_volumes(&mut self, args: &Args, workspace: &mut Workspace, stop: &Stop) {
        for fs in args.filesystems() {
            let Some(kind) = fs.made() else {
                let kind = Host::look(workspace.path()).filesystem;
                self.volumes.push(Volume { label: format!("{kind} (this machine's)"), kind, directory: workspace.path().to_path_buf() });
                continue;
            };
            match workspace.filesystem(kind, stop) {
                Ok(directory) => self.volumes.push(Volume { kind: kind.to_owned(), label: format!("{kind} (loop image)"), directory }),
                Err(why) => self.notes.push(format!("{kind} (loop image): not measured ({why})")),
            }
        }
    }

    fn add_rates(&mut self, args: &Args, tools: &Tools, volume: &Volume, generator: Generator) {
        if args.parts.contains(&Part::Depths) {
            for depth in args.depths() {
                let rate = Rate { what: DEPTHS, row: depth.to_string(), pattern: "random", block: 1024, size: 10 * MIB, depth };
                self.add_rate(args, tools, volume, generator, &rate);
            }
        }
        if args.parts.contains(&Part::Blocks) {
            for pattern in ["sequential", "random"] {
                let rate = Rate { what: BLOCKS, row: pattern.to_owned(), pattern, block: 4096, size: 64 * MIB, depth: 1 };
                self.add_rate(args, tools, volume, generator, &rate);
            }
        }
    }

    /// A number of each engine, one after the other: what is compared is measured together.
    fn add_rate(&mut self, args: &Args, tools: &Tools, volume: &Volume, generator: Generator, rate: &Rate<'_>) {
        let file = volume.directory.join("file");
        let time = args.time();
        for engine in self.engines.clone() {
            let place = Place::new(title(rate.what, volume, generator), &rate.row, engine.label());
            let (launch, read, expected): (_, Read, _) = match generator {
                Generator::Own => (rate.worker(tools, engine, &file, time), json::sample, time + Duration::from_millis(200)),
                Generator::Fio => (rate.fio(tools, engine, &file, time), fio::sample, time + fio::OVERHEAD),
            };
            let file = file.clone();
            let launch = launch.within(limit(time));
            self.jobs.push(Job::new(place, expected, move |stop| {
                let printed = launch.output(stop);
                remove_if_there(&file)?;
                read(&printed?)
            }));
        }
    }

    fn add_latencies(&mut self, args: &Args, tools: &Tools, workspace: &mut Workspace) {
        let directory = workspace.path().to_path_buf();
        match workspace.mount_point("slow") {
            Ok(point) => self.beside_slow_file(args, tools, &directory, &point),
            Err(why) => self.notes.push(format!("{SLOW}: not measured ({why})")),
        }
        if args.allow_sysctl && !rustix::process::geteuid().is_root() {
            self.notes.push(format!("{THROTTLED}: not measured (changing the limits needs root)"));
        } else if args.allow_sysctl {
            self.while_throttled(args, tools, &directory);
        } else {
            self.notes.push(format!("{THROTTLED}: not measured (it lowers vm.dirty_bytes for a while: --allow-sysctl)"));
        }
    }

    fn rings(&self) -> Vec<Engine> {
        self.engines.iter().copied().filter(|engine| engine.has_ring()).collect()
    }

    fn beside_slow_file(&mut self, args: &Args, tools: &Tools, directory: &Path, point: &Path) {
        for engine in self.rings() {
            let (worker, point) = (tools.worker.clone(), point.to_path_buf());
            let launch = latency(args, tools, engine, &point.join("slow"), directory, &["--size", "1048576"]);
            let place = Place::new("latency", SLOW, engine.label());
            self.jobs.push(Job::new(place, args.latency_time() + Duration::from_millis(300), move |stop| {
                let slow = SlowFs::mount(&worker, &point, SLOW_MS)?;
                let printed = launch.output(stop);
                drop(slow);
                json::sample(&printed?)
            }));
        }
    }

    fn while_throttled(&mut self, args: &Args, tools: &Tools, directory: &Path) {
        let file = directory.join("throttled");
        for engine in self.rings() {
            // Reads, since other files' writes are throttled too. 1 GB/s, if nothing holds it back: more than most disks take.
            let stream = ["--size", "268435456", "--block", "131072", "--depth", "16", "--reads"];
            let launch = latency(args, tools, engine, &file, directory, &stream);
            let (place, file) = (Place::new("latency", THROTTLED, engine.label()), file.clone());
            self.jobs.push(Job::new(place, args.latency_time() + Duration::from_millis(500), move |stop| {
                let low = sysctl::lower(DIRTY_LIMIT, DIRTY_LIMIT / 2)?;
                let printed = launch.output(stop);
                drop(low);
                remove_if_there(&file)?;
                json::sample(&printed?)
            }));
        }
    }
}

/// Ten times what is expected, for machines that are busy.
fn limit(time: Duration) -> Duration {
    Duration::from_secs(60) + time * 10
}

fn latency(args: &Args, tools: &Tools, engine: Engine, slow: &Path, directory: &Path, stream: &[&str]) -> Launch {
    let seconds = args.latency_time().as_secs_f64().to_string();
    let mut argv: Vec<std::ffi::OsString> = vec!["latency".into(), "--seconds".into(), seconds.into()];
    argv.extend(["--slow".into(), slow.into(), "--directory".into(), directory.into()]);
    argv.extend(stream.iter().map(Into::into));
    tools.worker(engine.side(), argv).within(limit(args.latency_time()))
}

impl Rate<'_> {
    fn worker(&self, tools: &Tools, engine: Engine, file: &Path, time: Duration) -> Launch {
        let mut argv: Vec<std::ffi::OsString> = vec!["write".into(), "--via".into(), engine.via().into(), "--file".into(), file.into()];
        let numbers = [
            ("--depth", self.depth.to_string()),
            ("--block", self.block.to_string()),
            ("--size", self.size.to_string()),
            ("--seconds", time.as_secs_f64().to_string()),
        ];
        argv.extend(numbers.into_iter().flat_map(|(name, number)| [name.into(), number.into()]));
        argv.extend((self.pattern == "sequential").then(|| "--sequential".into()));
        tools.worker(engine.side(), argv)
    }

    fn fio(&self, tools: &Tools, engine: Engine, file: &Path, time: Duration) -> Launch {
        let writes = fio::Writes {
            engine: engine.ioengine(),
            pattern: if self.pattern == "sequential" { "write" } else { "randwrite" },
            block: &self.block.to_string(),
            size: &self.size.to_string(),
            depth: self.depth,
            time,
            file,
        };
        tools.launch(engine.side(), writes.argv())
    }
}
