//! Programs in containers: what they do, and how it is checked.

use super::images::{self, Layer, Root};
use super::profile::ProfileOf;
use super::ways::{ContainerRights, RIGHTS, WayIn, Yard, silent};
use crate::fio;
use crate::job::Ending;
use crate::programs::program_cases::{ALL_WELL, ProgramCases, ProgramRun};
use anyhow::{Context, ensure};
use std::fs;
use std::path::Path;

/// A program in containers.
pub(super) struct Contained {
    pub(super) name: &'static str,
    root: Root,
    /// What the root lacks.
    layer: Option<fn() -> anyhow::Result<Layer>>,
    /// Fewer containers are enough for a test of each change.
    is_slow: bool,
    /// The drop-in library serves it, too.
    is_linked: bool,
    env: &'static [(&'static str, &'static str)],
    args: fn() -> Vec<String>,
    /// Whether a run without its ring is one.
    is_blocked: fn(&ProgramRun) -> anyhow::Result<()>,
    /// Whether a run is right: its output, and what it left in /data.
    check: fn(&str, &Path) -> anyhow::Result<()>,
}

pub(super) const SUBJECTS: [Contained; 4] = [
    Contained {
        name: "fio",
        root: Root::STABLE,
        layer: None,
        is_slow: false,
        is_linked: false,
        env: &[],
        args: fio_args,
        is_blocked: |run| fails(run, "io_uring"),
        check: |output, _| {
            let report = fio::parse(output)?;
            ensure!(report.written_kib > 0 && report.read_kib > report.written_kib, "written data was not read back: {report:?}");
            Ok(())
        },
    },
    Contained {
        name: "qemu-img",
        root: Root::STABLE,
        layer: None,
        is_slow: false,
        is_linked: true,
        env: &[],
        args: || shell(QEMU),
        is_blocked: |run| fails(run, "io_uring"),
        check: check_image,
    },
    Contained {
        name: "node",
        root: Root::STABLE,
        layer: Some(images::node_layer),
        is_slow: false,
        is_linked: false,
        env: &[("UV_USE_IO_URING", "1")],
        args: || ["node", "/check/node-fs.mjs"].map(str::to_owned).to_vec(),
        is_blocked: |run| fails(run, "no thread of a ring"),
        check: is_well,
    },
    Contained {
        name: "postgres",
        root: Root::TESTING,
        layer: None,
        is_slow: true,
        is_linked: true,
        env: &[],
        args: || ["/check/postgres.sh", "postgres", "-c", "io_method=io_uring"].map(str::to_owned).to_vec(),
        is_blocked: |run| fails(run, "could not setup io_uring queue"),
        check: is_well,
    },
];

/// 4,000 blocks of 4 KiB, one after the other, written and read again.
const QEMU: &str = "truncate -s 16M /data/disk.raw && for how in '-w --pattern=0x5a --flush-interval=512' '-t none'; do
    qemu-img bench -f raw -i io_uring -c 4000 -d 16 $how /data/disk.raw || exit 1; done";

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coverage {
    /// Each pair of properties of a container for LD_PRELOAD, one container for other ways in.
    Short,
    /// Each way in, each container.
    Whole,
}

/// All cases of a program.
pub(super) fn check(cases: &mut ProgramCases, yard: &mut Yard, subject: &Contained, coverage: Coverage) -> anyhow::Result<()> {
    let mut layers = vec![yard.root(subject.root)?];
    if let Some(make) = subject.layer {
        layers.push(make()?);
    }
    let run = |cases: &ProgramCases, profile: ProfileOf, way: WayIn, rights: ContainerRights| {
        let mut container = yard.container(&layers, way, rights, &(subject.args)())?;
        container.profile = profile;
        subject.env.iter().for_each(|(name, value)| container.set_env(name, value));
        yard.run(cases, &container)
    };
    for (profile, whose) in [(ProfileOf::Docker, "Docker"), (ProfileOf::Podman, "podman")] {
        cases.case(&format!("{}, {whose}: without uringlet it has no ring", subject.name), |cases| {
            (subject.is_blocked)(&run(cases, profile, WayIn::None, RIGHTS[5])?)
        });
        for (way, rights) in plan(subject, profile, coverage) {
            let who = yard.container(&layers, way, rights, &[])?.describe();
            cases.case(&format!("{}, {whose}: {}, {who}", subject.name, way.name()), |cases| {
                let output = silent(run(cases, profile, way, rights)?)?;
                (subject.check)(&output, &yard.data()).with_context(|| output.clone())
            });
        }
    }
    Ok(())
}

/// The containers of a program.
fn plan(subject: &Contained, profile: ProfileOf, coverage: Coverage) -> Vec<(WayIn, ContainerRights)> {
    let ways = [WayIn::Preload, WayIn::Run, WayIn::DropIn, WayIn::WholeImage];
    let mut containers = Vec::new();
    for (at, way) in ways.into_iter().filter(|way| *way != WayIn::DropIn || subject.is_linked).enumerate() {
        let is_all_pairs = way == WayIn::Preload && profile == ProfileOf::Docker;
        let rights = match coverage {
            Coverage::Whole => &RIGHTS[..],
            Coverage::Short if is_all_pairs && subject.is_slow => &RIGHTS[..2],
            Coverage::Short if is_all_pairs => &RIGHTS[..4],
            Coverage::Short if profile == ProfileOf::Podman && at > usize::from(!subject.is_slow) => &[],
            Coverage::Short => &RIGHTS[at..=at],
        };
        containers.extend(rights.iter().map(|rights| (way, *rights)));
    }
    containers
}

fn fio_args() -> Vec<String> {
    let options = ["--directory=/data", "--iodepth=32", "--registerfiles=1", "--fixedbufs=1", "--numjobs=2", "--size=8m"];
    let options: Vec<&str> = fio::VERIFIED.iter().chain(&options).copied().collect();
    fio::command("io_uring", &options)
}

fn shell(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).to_vec()
}

fn fails(run: &ProgramRun, words: &str) -> anyhow::Result<()> {
    ensure!(matches!(run.ending, Ending::Exited(code) if code != 0), "it ended with {:?}:\n{}", run.ending, run.tail());
    ensure!(run.output.contains(words), "it does not miss its ring:\n{}", run.tail());
    Ok(())
}

fn is_well(output: &str, _: &Path) -> anyhow::Result<()> {
    ensure!(output.trim().ends_with(ALL_WELL), "it does not say that all is well");
    Ok(())
}

fn check_image(output: &str, data: &Path) -> anyhow::Result<()> {
    ensure!(output.matches("Run completed").count() == 2, "not both runs were completed");
    let image = fs::read(data.join("disk.raw"))?;
    let written = &image[..4000 * 4096];
    ensure!(written.iter().all(|byte| *byte == 0x5a), "the image lacks the pattern");
    ensure!(image[written.len()..].iter().all(|byte| *byte == 0), "the image has more than was written");
    Ok(())
}
