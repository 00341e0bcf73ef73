//! Programs of Debian testing that make a ring, each with a script that checks it: what they do
//! where io_uring is blocked, whether they are right with uringlet, and how fast.

use super::program_cases::{ALL_WELL, ProgramCases};
use crate::containers::container::ContainerSpec;
use crate::containers::images::{Root, Tarball};
use crate::containers::ways::silent;
use crate::job::Ending;
use crate::postgres::{IoMethod, Postgres, median};
use anyhow::{Context, ensure};

/// What a program does without a ring.
#[derive(Debug, Clone, Copy)]
enum Blocked {
    /// It fails, with these words.
    Fails(&'static str),
    /// It works, and says this.
    FallsBack(&'static str),
}

/// A program and its script.
#[derive(Debug, Clone, Copy)]
pub(super) struct RingProgram {
    pub(super) name: &'static str,
    root: Root,
    command: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    /// Server programs that are made for it.
    is_root: bool,
    blocked: Blocked,
    /// What the script says with a ring.
    with_ring: &'static str,
    /// What is measured, by which command, and by which one without a ring.
    unit: &'static str,
    bench: &'static [&'static str],
    own_way: &'static [&'static str],
}

const SERVERS: Root = Root::testing(
    "container-servers",
    "nodejs,pgagroal,postgresql-18,samba,smbclient,rtpengine-daemon,osmo-mgw,liburing-ocaml-dev,ocaml-interp,liburing2,procps,diffutils",
);
const RTPENGINE: &[&str] = &["/check/relay.sh", "rtpengine", "--io-uring"];
const MGCP: &[&str] = &["/check/relay.sh", "mgcp"];
const NODE: &[&str] = &["node", "/check/node-net.mjs"];
const QEMU: &[&str] = &["/check/qemu.sh"];
const SAMBA: &[&str] = &["/check/samba.sh", "io_uring"];
const PGAGROAL: &[&str] = &["/check/pgagroal.sh", "auto"];
const BLUEFS: &[&str] = &["/check/bluefs.sh", "true"];
const OCAML: &[&str] = &["/check/ocaml.sh"];
const MARIADB_BENCH: &[&str] = &["/check/mariadb-bench.sh", "mariadbd"];

pub(super) const RING_PROGRAMS: &[RingProgram] = &[
    RingProgram {
        name: "mariadb",
        root: Root::testing("container-mariadb", "mariadb-server,liburing2,sysbench"),
        command: &["/check/mariadb.sh", "mariadbd"],
        env: &[],
        is_root: false,
        blocked: Blocked::FallsBack("falling back to libaio"),
        with_ring: "Using io_uring",
        unit: "updates/s of sysbench",
        bench: MARIADB_BENCH,
        own_way: MARIADB_BENCH,
    },
    RingProgram {
        name: "qemu",
        root: Root::testing("container-qemu", "qemu-utils,liburing2"),
        command: QEMU,
        env: &[],
        is_root: false,
        blocked: Blocked::Fails("aio=io_uring was specified, but is not available"),
        with_ring: "Run completed",
        unit: "",
        bench: &[],
        own_way: &[],
    },
    RingProgram {
        name: "node24",
        root: SERVERS,
        command: NODE,
        env: &[("UV_USE_IO_URING", "1")],
        is_root: false,
        blocked: Blocked::FallsBack("Node 24"),
        with_ring: "Node 24",
        unit: "requests/s",
        bench: NODE,
        own_way: NODE,
    },
    RingProgram {
        name: "pgagroal",
        root: SERVERS,
        command: PGAGROAL,
        env: &[],
        is_root: false,
        blocked: Blocked::Fails("io_uring_queue_init_params"),
        with_ring: ALL_WELL,
        unit: "transactions/s of pgbench -S",
        bench: PGAGROAL,
        own_way: &["/check/pgagroal.sh", "epoll"],
    },
    RingProgram {
        name: "samba",
        root: SERVERS,
        command: SAMBA,
        env: &[],
        is_root: true,
        blocked: Blocked::Fails("NT_STATUS_UNSUCCESSFUL"),
        with_ring: ALL_WELL,
        unit: "MB/s of smbclient",
        bench: SAMBA,
        own_way: &["/check/samba.sh", ""],
    },
    RingProgram {
        name: "rtpengine",
        root: SERVERS,
        command: RTPENGINE,
        env: &[],
        is_root: true,
        blocked: Blocked::Fails("io_uring init failed"),
        with_ring: ALL_WELL,
        unit: "packets/s",
        bench: RTPENGINE,
        own_way: &["/check/relay.sh", "rtpengine"],
    },
    RingProgram {
        name: "libosmocore",
        root: SERVERS,
        command: MGCP,
        env: &[("LIBOSMO_IO_BACKEND", "IO_URING")],
        is_root: false,
        blocked: Blocked::Fails("failure during io_uring_queue_init()"),
        with_ring: ALL_WELL,
        unit: "packets/s",
        bench: MGCP,
        own_way: &["env", "LIBOSMO_IO_BACKEND=POLL", "/check/relay.sh", "mgcp"],
    },
    RingProgram {
        name: "ocaml",
        root: SERVERS,
        command: OCAML,
        env: &[],
        is_root: false,
        blocked: Blocked::Fails("io_uring_queue_init"),
        with_ring: ALL_WELL,
        unit: "blocks/s",
        bench: OCAML,
        own_way: &[],
    },
    RingProgram {
        name: "ceph",
        root: Root::testing("container-ceph", "ceph-osd,liburing2,procps,diffutils"),
        command: BLUEFS,
        env: &[],
        is_root: true,
        blocked: Blocked::FallsBack("Fallback to libaio"),
        with_ring: ALL_WELL,
        unit: "MB/s into BlueFS and out",
        bench: BLUEFS,
        own_way: &["/check/bluefs.sh", "false"],
    },
];

impl RingProgram {
    /// All cases of the program; what is measured is measured so many times.
    pub(super) fn check(&self, cases: &mut ProgramCases, rounds: u32) -> anyhow::Result<()> {
        let containers = Postgres::prepare(cases, self.root, Tarball::Release)?;
        match self.blocked {
            Blocked::Fails(words) => cases.case("without uringlet: fails", |cases| self.fails(cases, &containers, words)),
            Blocked::FallsBack(words) => cases.case("without uringlet: does without a ring", |cases| {
                ends_well(&self.output(cases, &containers, self.command, IoMethod::Worker)?, words)
            }),
        }
        cases.case("LD_PRELOAD=…/liburinglet.so: works, each result is right", |cases| {
            ends_well(&self.output(cases, &containers, self.command, IoMethod::Uringlet)?, self.with_ring)
        });
        if !self.bench.is_empty() {
            cases.case(&format!("measured: {}", self.unit), |cases| self.measure(cases, &containers, rounds));
        }
        containers.remove()
    }

    fn container(&self, containers: &Postgres, command: &[&str], method: IoMethod) -> anyhow::Result<ContainerSpec> {
        let mut container = containers.container_of(command, method)?;
        self.env.iter().for_each(|(name, value)| container.set_env(name, value));
        if self.is_root {
            container.uid = 0;
        }
        Ok(container)
    }

    /// What the script prints, if it ends well.
    fn output(&self, cases: &ProgramCases, containers: &Postgres, command: &[&str], method: IoMethod) -> anyhow::Result<String> {
        silent(containers.run(cases, &self.container(containers, command, method)?)?)
    }

    fn fails(&self, cases: &ProgramCases, containers: &Postgres, words: &str) -> anyhow::Result<()> {
        let run = containers.run(cases, &self.container(containers, self.command, IoMethod::Worker)?)?;
        ensure!(matches!(run.ending, Ending::Exited(code) if code != 0), "it ended with {:?}", run.ending);
        let said = run.output.lines().find(|line| line.contains(words));
        println!("    {}", said.with_context(|| run.tail())?);
        Ok(())
    }

    /// Speeds in turns: without a ring, with uringlet's, with the kernel's. The kernel's ring is
    /// not there on every machine, and a program may fail with it, or without a ring.
    fn measure(&self, cases: &ProgramCases, containers: &Postgres, rounds: u32) -> anyhow::Result<()> {
        let ways = [
            ("without a ring", self.own_way, IoMethod::Worker),
            ("uringlet", self.bench, IoMethod::Uringlet),
            ("kernel", self.bench, IoMethod::Kernel),
        ];
        let mut figures = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            for ((name, command, method), figures) in ways.iter().zip(&mut figures).filter(|((_, command, _), _)| !command.is_empty()) {
                match self.output(cases, containers, command, *method) {
                    Ok(output) => figures.extend(output.lines().filter_map(|line| line.strip_prefix("figure ")?.parse::<f64>().ok())),
                    Err(error) if *method == IoMethod::Uringlet => return Err(error),
                    Err(error) => println!("    {name}: {}", complaint(&format!("{error:#}"))),
                }
            }
        }
        ensure!(!figures[1].is_empty(), "the script measured nothing");
        for ((name, ..), figures) in ways.iter().zip(&mut figures) {
            figures.sort_by(f64::total_cmp);
            if let Some(middle) = median(figures) {
                println!("    {name}: {middle:.0} of {figures:.0?}");
            }
        }
        Ok(())
    }
}

/// The line that names an error, or the last one.
fn complaint(text: &str) -> &str {
    let lines = || text.trim().lines();
    lines().find(|line| line.contains("Error:")).or_else(|| lines().last()).unwrap_or_default().trim()
}

/// All is well, and the program says these words, which are shown.
fn ends_well(output: &str, words: &str) -> anyhow::Result<()> {
    ensure!(output.contains(words) && output.trim().ends_with(ALL_WELL), "{output}");
    output.lines().filter(|line| line.contains(words) && *line != ALL_WELL).take(1).for_each(|line| println!("    {line}"));
    Ok(())
}
