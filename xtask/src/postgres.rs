//! PostgreSQL 18 of Debian testing with `io_method=io_uring`, in containers of crun: blocked by
//! Docker's profile, checked with uringlet, and timed.

use crate::containers::container::ContainerSpec;
use crate::containers::images::{Layer, Root, Tarball};
use crate::containers::profile::ProfileOf;
use crate::containers::ways::{RIGHTS, WayIn, Yard, silent};
use crate::job::Ending;
use crate::programs::program_cases::{ALL_WELL, ProgramCases, ProgramRun};
use anyhow::{Context, ensure};

/// A server's way to its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IoMethod {
    /// PostgreSQL's own processes, which read for the others: its default.
    Worker,
    /// The ring of uringlet, behind the filter.
    Uringlet,
    /// The kernel's ring, in a container without a filter.
    Kernel,
}

pub(crate) const IO_METHODS: [IoMethod; 3] = [IoMethod::Worker, IoMethod::Uringlet, IoMethod::Kernel];

/// An ordinary user without new privileges, as the server's image has it.
const USER: usize = 4;

/// Containers of PostgreSQL.
pub(crate) struct Postgres {
    yard: Yard,
    image: Vec<Layer>,
}

impl Postgres {
    /// Makes the root if it is not there, and looks whether a container can be started here.
    pub(crate) fn prepare(cases: &ProgramCases, root: Root, tarball: Tarball) -> anyhow::Result<Self> {
        let yard = Yard::prepare(tarball)?;
        let layer = root.layer()?;
        let docker = yard.profiles.docker();
        yard.probe(cases, &layer, docker)?;
        if docker == ProfileOf::Sandbox {
            println!("There is no Go compiler: Docker's profile is that of `cargo xtask sandbox --docker`.");
        }
        Ok(Self { yard, image: vec![layer] })
    }

    /// A container that runs a script with this server's command.
    pub(crate) fn container(&self, script: &str, method: IoMethod) -> anyhow::Result<ContainerSpec> {
        let name = if method == IoMethod::Worker { "worker" } else { "io_uring" };
        let args = [&format!("/check/{script}"), "postgres", "-c", &format!("io_method={name}")].map(str::to_owned);
        let way = if method == IoMethod::Uringlet { WayIn::Preload } else { WayIn::None };
        let mut container = self.yard.container(&self.image, way, RIGHTS[USER], &args)?;
        container.profile = if method == IoMethod::Kernel { ProfileOf::Nobody } else { self.yard.profiles.docker() };
        Ok(container)
    }

    /// A container with another command in the server's place.
    pub(crate) fn container_of(&self, command: &[&str], method: IoMethod) -> anyhow::Result<ContainerSpec> {
        let mut container = self.container("", method)?;
        container.args = command.iter().map(|word| (*word).to_owned()).collect();
        Ok(container)
    }

    /// Runs a container.
    pub(crate) fn run(&self, cases: &ProgramCases, container: &ContainerSpec) -> anyhow::Result<ProgramRun> {
        self.yard.run(cases, container)
    }

    /// Runs a container and returns what its programs print, if it ends well.
    pub(crate) fn output(&self, cases: &ProgramCases, container: &ContainerSpec) -> anyhow::Result<String> {
        silent(self.yard.run(cases, container)?)
    }

    /// Without uringlet the server does not start, and says why.
    pub(crate) fn is_refused(&self, cases: &mut ProgramCases) {
        cases.case("without uringlet: it does not start", |cases| {
            let mut container = self.container("postgres.sh", IoMethod::Uringlet)?;
            container.env.retain(|(name, _)| name != "LD_PRELOAD");
            let run = self.yard.run(cases, &container)?;
            ensure!(matches!(run.ending, Ending::Exited(code) if code != 0), "it ended with {:?}", run.ending);
            let said = run.output.lines().find_map(|line| line.split_once("FATAL:"));
            let (_, message) = said.with_context(|| format!("the server says nothing:\n{}", run.tail()))?;
            ensure!(message.contains("could not setup io_uring queue"), "it does not miss its ring: {message}");
            println!("    FATAL:{message}");
            Ok(())
        });
    }

    /// With uringlet its rows are right, also after a process and the server have been killed.
    pub(crate) fn is_right(&self, cases: &mut ProgramCases) {
        cases.case("LD_PRELOAD=…/liburinglet.so: rows, kill -9, recovery, amcheck", |cases| {
            let output = self.output(cases, &self.container("postgres.sh", IoMethod::Uringlet)?)?;
            ensure!(output.trim().ends_with(ALL_WELL), "it does not say that all is well:\n{output}");
            output.lines().filter_map(|line| line.strip_prefix("postgres: ")).for_each(|line| println!("    {line}"));
            Ok(())
        });
    }

    /// What a script measures with each method, in turns, sorted. Where the kernel has no ring for
    /// anybody there is none.
    pub(crate) fn figures(&self, cases: &ProgramCases, script: &str, rounds: u32) -> anyhow::Result<[Vec<f64>; 3]> {
        let containers = IO_METHODS.map(|method| self.container(script, method));
        let mut figures = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            for ((container, method), figures) in containers.iter().zip(IO_METHODS).zip(&mut figures) {
                let container = container.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
                match self.output(cases, container) {
                    Ok(output) => figures.extend(output.lines().filter_map(|line| line.strip_prefix("figure ")?.parse::<f64>().ok())),
                    Err(error) if method == IoMethod::Kernel && format!("{error:#}").contains("could not setup io_uring queue") => {}
                    Err(error) => return Err(error),
                }
            }
        }
        figures.iter_mut().for_each(|figures| figures.sort_by(f64::total_cmp));
        ensure!(!figures[0].is_empty() && !figures[1].is_empty(), "the script measured nothing");
        Ok(figures)
    }

    pub(crate) fn remove(self) -> anyhow::Result<()> {
        self.yard.remove()
    }
}

/// The figure in the middle.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len() / 2).copied()
}
