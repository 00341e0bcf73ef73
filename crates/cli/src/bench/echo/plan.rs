//! Everything that is measured.

use std::ffi::OsString;
use std::time::Duration;

use super::settings::{Args, Mode};
use crate::bench::job::{Job, Jobs, Place};
use crate::bench::json;
use crate::bench::tools::{Side, Tools};

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Epoll,
    Kernel,
    Engine,
    /// The engine, the submitter trying nothing itself.
    Worker,
    /// The engine, workers blocking where they would arm poll.
    HybridOff,
}

impl Who {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Kernel => "kernel's ring",
            Self::Engine => "engine",
            Self::Worker => "engine, always a worker",
            Self::HybridOff => "engine, hybrid step off",
        }
    }

    fn side(self) -> Side {
        match self {
            Self::Epoll | Self::Kernel => Side::Plain,
            Self::Engine => Side::Attached(&[]),
            Self::Worker => Side::Attached(&["--iosqe-async=worker"]),
            Self::HybridOff => Side::Attached(&["--iosqe-async=block"]),
        }
    }
}

/// All that serve in a mode.
pub(super) fn all_of(mode: Mode) -> &'static [Who] {
    match mode {
        Mode::Default => &[Who::Epoll, Who::Kernel, Who::Engine],
        Mode::DeferTaskrun | Mode::RegisteredFiles => &[Who::Kernel, Who::Engine],
        Mode::Async20 | Mode::Async4 => &[Who::Kernel, Who::Engine, Who::Worker, Who::HybridOff],
    }
}

/// Messages of a size on a number of connections: a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scene {
    pub(super) size: u32,
    pub(super) connections: u32,
    /// Of each connection between messages, on average; 0: none.
    pub(super) pause_ms: u32,
}

impl Scene {
    pub(super) fn title(self) -> String {
        let pauses = if self.pause_ms == 0 { String::new() } else { format!(", pauses of {} ms", self.pause_ms) };
        format!("{} connection{}, {} bytes{pauses}", self.connections, if self.connections == 1 { "" } else { "s" }, self.size)
    }

    /// All of them, and the one with pauses.
    fn all(args: &Args) -> Vec<Self> {
        let (sizes, connections) = (args.sizes(), args.connections());
        let one = |size| connections.iter().map(move |&connections| Self { size, connections, pause_ms: 0 });
        let mut scenes: Vec<Self> = sizes.iter().flat_map(|&size| one(size)).collect();
        if let (Some(&size), Some(&most), 1..) = (sizes.iter().min(), connections.iter().max(), args.pause_ms) {
            scenes.push(Self { size, connections: most, pause_ms: args.pause_ms });
        }
        scenes
    }

    /// Pauses matter to workers only.
    fn has(self, mode: Mode) -> bool {
        self.pause_ms == 0 || mode.is_async()
    }
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) jobs: Jobs,
    pub(super) modes: Vec<Mode>,
    pub(super) scenes: Vec<Scene>,
    /// What is not measured, and why.
    pub(super) notes: Vec<String>,
}

pub(super) fn plan(args: &Args, tools: &Tools) -> Plan {
    let (modes, mut scenes) = (args.modes(), Scene::all(args));
    scenes.retain(|scene| modes.iter().any(|&mode| scene.has(mode)));
    let mut plan = Plan { jobs: Jobs::default(), modes, scenes, notes: Vec::new() };
    if let Some(why) = &tools.no_kernel {
        plan.notes.push(format!("kernel's ring: not measured, the kernel gives none here ({why})"));
    }
    for &scene in &plan.scenes {
        for &mode in plan.modes.iter().filter(|&&mode| scene.has(mode)) {
            for &who in all_of(mode).iter().filter(|&&who| who != Who::Kernel || tools.no_kernel.is_none()) {
                let launch = tools.worker(Side::Plain, load(tools, scene, mode, who, args.time())).within(limit(args.time()));
                let place = Place::new(scene.title(), mode.label(), who.label());
                plan.jobs.push(Job::program(place, expected(scene, args.time()), launch, json::sample));
            }
        }
    }
    plan
}

/// Starting, connecting and warming up included.
fn expected(scene: Scene, time: Duration) -> Duration {
    let warm_up = (time / 5).max(Duration::from_millis(4) * scene.pause_ms);
    time + warm_up + Duration::from_millis(60) + Duration::from_micros(100) * scene.connections
}

/// Ten times what is expected, for machines that are busy.
fn limit(time: Duration) -> Duration {
    Duration::from_secs(90) + time * 10
}

/// The arguments of who loads; the last of them start the server.
fn load(tools: &Tools, scene: Scene, mode: Mode, who: Who, time: Duration) -> Vec<OsString> {
    let both = [format!("--connections={}", scene.connections), format!("--size={}", scene.size)];
    let via = if who == Who::Epoll { "--via=epoll" } else { "--via=ring" };
    let options = mode.options().iter().copied().chain([via]).map(ToString::to_string);
    let server = tools.worker(who.side(), std::iter::once("echo-server".to_owned()).chain(both.clone()).chain(options));
    let mut argv: Vec<OsString> = vec!["echo".into()];
    argv.extend(both.into_iter().map(Into::into));
    argv.push(format!("--seconds={}", time.as_secs_f64()).into());
    argv.extend((scene.pause_ms > 0).then(|| format!("--pause-ms={}", scene.pause_ms).into()));
    argv.push("--".into());
    argv.extend(server.argv);
    argv
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::echo::settings::tests::parse;

    pub(in crate::bench::echo) fn tools(no_kernel: Option<&str>) -> Tools {
        Tools { uringlet: "/b/u".into(), worker: "/b/w".into(), drop_in: None, no_kernel: no_kernel.map(str::to_owned) }
    }

    #[test]
    fn the_same_server_everywhere() {
        let scene = Scene { size: 12, connections: 7, pause_ms: 0 };
        let of = |mode, who| {
            let argv = load(&tools(None), scene, mode, who, Duration::from_millis(500));
            argv.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let ends = "echo-server --connections=7 --size=12 --via=ring";
        assert_eq!(of(Mode::Default, Who::Kernel), format!("echo --connections=7 --size=12 --seconds=0.5 -- /b/w {ends}"));
        assert_eq!(of(Mode::Default, Who::Engine), format!("echo --connections=7 --size=12 --seconds=0.5 -- /b/u run -- /b/w {ends}"));
        assert!(of(Mode::Default, Who::Epoll).ends_with("-- /b/w echo-server --connections=7 --size=12 --via=epoll"));
        let off = of(Mode::Async4, Who::HybridOff);
        assert!(
            off.contains(" -- /b/u run --iosqe-async=block -- /b/w ") && off.ends_with("--registered-files --async-workers=4 --via=ring"),
            "{off}"
        );
    }

    #[test]
    fn without_the_kernels_ring_the_rest_is_measured() {
        let args = parse(&["--connections=1,2", "--sizes=12", "--pause-ms=0"]).unwrap();
        let whole = plan(&args, &tools(None));
        assert_eq!((whole.jobs.0.len(), whole.notes.len()), (2 * 15, 0));
        let rest = plan(&args, &tools(Some("no ring")));
        assert_eq!((rest.jobs.0.len(), rest.notes.len()), (2 * 10, 1));
        assert!(rest.jobs.0.iter().all(|job| job.place.column != Who::Kernel.label()) && rest.notes[0].contains("no ring"));
    }

    #[test]
    fn pauses_are_for_workers() {
        let scenes = |args: &[&str]| plan(&parse(args).unwrap(), &tools(None)).scenes;
        let last = *scenes(&["--connections=1,9,2", "--sizes=16,12"]).last().unwrap();
        assert_eq!(last, Scene { size: 12, connections: 9, pause_ms: 20 });
        assert!(scenes(&["--modes=default"]).iter().all(|scene| scene.pause_ms == 0));
        let plan = plan(&parse(&["--connections=9", "--sizes=12"]).unwrap(), &tools(None));
        assert_eq!((plan.jobs.0.len(), plan.jobs.rows("9 connections, 12 bytes, pauses of 20 ms").len()), (15 + 8, 2));
        let argv = load(&tools(None), last, Mode::Async20, Who::Engine, Duration::from_secs(1));
        assert!(argv.contains(&"--pause-ms=20".into()));
    }
}
