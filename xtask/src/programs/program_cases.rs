//! Runs one program and counts its cases.

use crate::job::{self, Ending, Job};
use crate::paths;
use crate::test_counts::{Failure, TestCounts};
use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What keeps the program from the kernel's io_uring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    Docker,
    Kill,
    /// Nothing, and no uringlet either: the program uses the kernel's own ring.
    Native,
}

impl Isolation {
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Docker => "--docker",
            Self::Kill => "--kill",
            Self::Native => "native",
        }
    }
}

/// A finished run.
#[derive(Debug)]
pub(crate) struct ProgramRun {
    pub(crate) ending: Ending,
    pub(crate) output: String,
}

impl ProgramRun {
    /// The output, if the program exited with 0.
    pub(crate) fn ok(self) -> anyhow::Result<String> {
        ensure!(self.ending == Ending::Exited(0), "ended with {:?}:\n{}", self.ending, self.tail());
        Ok(self.output)
    }

    /// The end of the output.
    pub(crate) fn tail(&self) -> String {
        tail(&self.output)
    }
}

/// The end of a long output.
fn tail(output: &str) -> String {
    // fio's terse report is one line of 1,500 characters.
    let lines: Vec<_> = output.lines().filter(|line| !line.starts_with("3;")).collect();
    let shown: Vec<_> = lines[lines.len().saturating_sub(12)..].iter().map(|line| line.chars().take(200).collect::<String>()).collect();
    shown.join("\n")
}

/// One program's folder, launcher and counts.
#[derive(Debug)]
pub(crate) struct ProgramCases {
    name: &'static str,
    /// `None`: the kernel's own ring, without isolation.
    uringlet: Option<PathBuf>,
    dir: PathBuf,
    env: Vec<(String, String)>,
    /// Whether the folder lies outside of the checkout.
    is_public: bool,
    /// The user that programs run as, if another one than ours.
    uid: Option<u32>,
    /// A run that takes longer hangs.
    timeout: Duration,
    counts: TestCounts,
}

/// What programs of this repository print at the end.
pub(crate) const ALL_WELL: &str = "all well";

/// The user `nobody`.
const ORDINARY_UID: u32 = 65534;

/// The slowest takes 5 s on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(300);

impl ProgramCases {
    pub(crate) fn new(name: &'static str, uringlet: Option<&Path>) -> anyhow::Result<Self> {
        let dir = paths::cache().join("work").join(format!("program-{name}"));
        paths::fresh_dir(&dir)?;
        let uringlet = uringlet.map(Path::to_path_buf);
        let counts = TestCounts::default();
        Ok(Self { name, uringlet, dir, is_public: false, env: Vec::new(), uid: None, timeout: TIMEOUT, counts })
    }

    /// The same as an ordinary user, in that user's folder.
    pub(crate) fn as_ordinary_user(&self) -> anyhow::Result<Self> {
        Ok(Self { uid: Some(ORDINARY_UID), ..self.in_public_folder()? })
    }

    /// The same in a folder of an ordinary user, with a copy of uringlet: the checkout may be
    /// readable by root only.
    pub(crate) fn in_public_folder(&self) -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(format!("xtask-{}-{}", std::process::id(), self.name));
        paths::fresh_dir(&dir)?;
        std::os::unix::fs::chown(&dir, Some(ORDINARY_UID), Some(ORDINARY_UID))?;
        let mut uringlet = None;
        if let Some(built) = &self.uringlet {
            let bin = dir.join("bin");
            std::fs::create_dir(&bin)?;
            for file in [built.clone(), built.with_file_name("liburinglet_attach.so")] {
                let name = file.file_name().context("a program without a name")?;
                std::fs::copy(&file, bin.join(name)).with_context(|| format!("copying {}", file.display()))?;
            }
            uringlet = Some(bin.join("uringlet"));
        }
        let (env, timeout) = (self.env.clone(), self.timeout);
        let counts = TestCounts::default();
        Ok(Self { name: self.name, uringlet, dir, is_public: true, env, uid: self.uid, timeout, counts })
    }

    /// The launcher; `None` on the kernel's own ring.
    pub(crate) fn uringlet(&self) -> Option<&Path> {
        self.uringlet.as_deref()
    }

    /// The folder that programs run in: on the checkout's filesystem, empty at first.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn set_env(&mut self, key: &str, value: &str) {
        self.env.push((key.to_owned(), value.to_owned()));
    }

    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    pub(crate) fn is_native(&self) -> bool {
        self.uringlet.is_none()
    }

    /// The kinds of isolation that each case is run in.
    pub(crate) fn isolations(&self) -> &'static [Isolation] {
        if self.is_native() { &[Isolation::Native] } else { &[Isolation::Docker, Isolation::Kill] }
    }

    /// Runs under uringlet, isolated.
    pub(crate) fn run<S: AsRef<str>>(&self, isolation: Isolation, argv: &[S]) -> anyhow::Result<ProgramRun> {
        self.run_in_mode(isolation, "adaptive", argv)
    }

    /// Runs under `uringlet run --mode`, isolated.
    pub(crate) fn run_in_mode<S: AsRef<str>>(&self, isolation: Isolation, mode: &str, argv: &[S]) -> anyhow::Result<ProgramRun> {
        let Some(uringlet) = &self.uringlet else {
            return self.run_outside(argv);
        };
        let uringlet = uringlet.to_str().context("the path of uringlet is not UTF-8")?;
        self.launch(&[isolation.option()], &[uringlet, "run", &format!("--mode={mode}"), "--"], argv)
    }

    /// Runs under uringlet, not isolated.
    pub(crate) fn run_open<S: AsRef<str>>(&self, argv: &[S]) -> anyhow::Result<ProgramRun> {
        let Some(uringlet) = &self.uringlet else {
            return self.run_outside(argv);
        };
        let uringlet = uringlet.to_str().context("the path of uringlet is not UTF-8")?;
        self.launch(&[], &[uringlet, "run", "--"], argv)
    }

    /// Runs without uringlet, isolated.
    pub(crate) fn run_bare<S: AsRef<str>>(&self, isolation: Isolation, argv: &[S]) -> anyhow::Result<ProgramRun> {
        self.launch(&[isolation.option()], &[], argv)
    }

    /// Runs without uringlet and without isolation.
    pub(crate) fn run_outside<S: AsRef<str>>(&self, argv: &[S]) -> anyhow::Result<ProgramRun> {
        self.launch(&[], &[], argv)
    }

    fn launch<S: AsRef<str>>(&self, isolation: &[&str], launcher: &[&str], argv: &[S]) -> anyhow::Result<ProgramRun> {
        let uid = self.uid.map(|uid| format!("--uid={uid}"));
        let words = [paths::SELF_EXE, "sandbox", "--die-with-parent"].into_iter().chain(isolation.iter().copied()).chain(uid.as_deref());
        let words = words.chain(["--"]).chain(launcher.iter().copied()).chain(argv.iter().map(AsRef::as_ref));
        let words = words.map(OsString::from).collect();
        let log = self.dir.with_extension("log");
        let job = Job { argv: words, env: self.env.clone(), cwd: self.dir.clone(), log: log.clone(), timeout: self.timeout };
        let outcome = job::run(&job)?;
        let output = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
        Ok(ProgramRun { ending: outcome.ending, output })
    }

    /// Counts one case. Its error is printed and not returned.
    pub(crate) fn case(&mut self, name: &str, body: impl FnOnce(&Self) -> anyhow::Result<()>) {
        let started = Instant::now();
        let result = body(self);
        let word = if result.is_ok() { "pass" } else { "FAIL" };
        println!("{:<10} {name:<66} {word} {:>5.1} s", self.name, started.elapsed().as_secs_f64());
        match result {
            Ok(()) => self.counts.passed += 1,
            Err(error) => {
                let why = format!("{error:#}");
                println!("    {}", why.replace('\n', "\n    "));
                self.counts.add(TestCounts::failure(Failure::new(format!("{} {name}", self.name), "FAIL", &why)));
            }
        }
    }

    /// A case that passed, but not at the first attempt.
    pub(crate) fn note_repeated(&mut self, what: &str) {
        println!("{:<10} {what}", self.name);
        self.counts.repeated.push(format!("{} {what}", self.name));
    }

    /// Adds the counts of finished cases.
    pub(crate) fn include(&mut self, other: Self) -> anyhow::Result<()> {
        self.counts.add(other.finish()?);
        Ok(())
    }

    /// A case that cannot be run here.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        println!("{:<10} {name:<66} skip ({why})", self.name);
        self.counts.skipped += 1;
    }

    /// A case that passes if the command fails without uringlet: the control of the other cases.
    pub(crate) fn needs_uringlet<S: AsRef<str>>(&mut self, isolation: Isolation, argv: &[S]) {
        if self.is_native() {
            return;
        }
        self.case(&format!("{} without uringlet: fails", isolation.option()), |cases| {
            let ran = cases.run_bare(isolation, argv)?;
            ensure!(ran.ending != Ending::Exited(0), "it got along without io_uring:\n{}", ran.tail());
            ensure!(ran.ending != Ending::Hung, "it hung");
            Ok(())
        });
    }

    /// Cases of a program that prints [`ALL_WELL`] if every result of its ring is right, and fails
    /// without one: as this user and, where that is root, as an ordinary one.
    pub(crate) fn needs_its_ring(&mut self, what: &str, program: &str) -> anyhow::Result<()> {
        self.runs_well(what, program);
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let mut user = self.as_ordinary_user()?;
        let copy = user.dir().join("program");
        std::fs::copy(program, &copy).with_context(|| format!("copying {program}"))?;
        user.runs_well(&format!("{what}as user, "), copy.to_str().context("the folder's path is not UTF-8")?);
        self.include(user)
    }

    fn runs_well(&mut self, what: &str, program: &str) {
        for &isolation in self.isolations() {
            self.needs_uringlet(isolation, &[program]);
            self.case(&format!("{} {what}files, timeouts, links", isolation.option()), |cases| {
                let output = cases.run(isolation, &[program])?.ok()?;
                ensure!(output.trim().ends_with(ALL_WELL), "{output}");
                Ok(())
            });
        }
    }

    pub(crate) fn finish(self) -> anyhow::Result<TestCounts> {
        std::fs::remove_dir_all(&self.dir)?;
        if self.is_public {
            // Logs stay in the checkout's cache, but not in the folder for temporary files.
            std::fs::remove_file(self.dir.with_extension("log"))?;
        }
        Ok(self.counts)
    }
}
