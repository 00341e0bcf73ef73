//! Tables, plot and goals of `uringlet bench writes`.

use super::engine::WriteEngine;
use super::plan::{BLOCKS, DEPTHS, LoadGenerator, SLOW, THROTTLED, TestVolume, WritesPlan, title};
use crate::bench::goal::{Bound, Goal};
use crate::bench::job::{BenchJob, VALUE};
use crate::bench::plot::{Panel, Plot};
use crate::bench::summary::{Summary, number};
use crate::bench::table::TextTable;

const NOTHING: &str = "-";

/// All tables, the goals, the notes and the failures.
pub(super) fn text(plan: &WritesPlan, goals: &[Goal]) -> String {
    let mut text = String::new();
    for (volume, generator) in plan.combinations() {
        text += &plan.rates(volume, generator);
        text += &plan.ratios(volume, generator);
        if generator == LoadGenerator::Fio {
            text += &plan.latency_of_fio(volume);
        }
        text += &plan.blocks(volume, generator);
    }
    text += &plan.latencies(SLOW);
    text += &plan.latencies(THROTTLED);
    text.push('\n');
    text.extend(goals.iter().map(Goal::text));
    text.extend(plan.notes.iter().map(|note| format!("{note}\n")));
    text + &plan.jobs.failures()
}

fn cell(summary: Option<Summary>, unit: f64) -> String {
    summary.map_or_else(|| NOTHING.to_owned(), |s| s.divided(unit).narrow())
}

fn plain(value: Option<f64>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), number)
}

/// The median of a number of a job.
fn median(job: Option<&BenchJob>, field: &str) -> Option<f64> {
    job?.summary(field).map(|s| s.median)
}

impl WritesPlan {
    fn combinations(&self) -> impl Iterator<Item = (&TestVolume, LoadGenerator)> {
        self.volumes.iter().flat_map(|volume| self.generators.iter().map(move |&generator| (volume, generator)))
    }

    /// A table with a row per engine and a column per depth; empty without depths.
    fn by_depth(
        &self,
        what: &str,
        volume: &TestVolume,
        generator: LoadGenerator,
        cell: impl Fn(&str, &str, WriteEngine) -> String,
    ) -> String {
        let title = title(DEPTHS, volume, generator);
        let depths = self.jobs.rows(&title);
        if depths.is_empty() {
            return String::new();
        }
        let header = std::iter::once("depth".to_owned()).chain(depths.iter().map(ToString::to_string));
        let mut table = TextTable::new(format!("{title}: {what}"), header);
        for &engine in &self.engines {
            let cells = depths.iter().map(|depth| cell(&title, depth, engine));
            table.row(std::iter::once(engine.label().to_owned()).chain(cells));
        }
        table.text()
    }

    fn rates(&self, volume: &TestVolume, generator: LoadGenerator) -> String {
        self.by_depth("thousand per second, median ± half the spread", volume, generator, |title, depth, engine| {
            cell(self.jobs.summary(title, depth, engine.label(), VALUE), 1e3)
        })
    }

    fn ratios(&self, volume: &TestVolume, generator: LoadGenerator) -> String {
        self.by_depth("times psync, times the kernel's ring", volume, generator, |title, depth, engine| {
            let of = |base: WriteEngine| plain(self.jobs.ratio(title, depth, engine.label(), base.label()));
            format!("{} {:>5}", of(WriteEngine::Psync), of(WriteEngine::Kernel))
        })
    }

    fn latency_of_fio(&self, volume: &TestVolume) -> String {
        self.by_depth("latency, µs: mean, largest", volume, LoadGenerator::Fio, |title, depth, engine| {
            let job = self.jobs.find_job(title, depth, engine.label());
            let us = |field| plain(median(job, field).map(|ns| ns / 1e3));
            format!("{} {:>6}", us("latency_ns"), us("latency_ns_max"))
        })
    }

    /// The figures of document 001: a row for each pattern and engine.
    fn blocks(&self, volume: &TestVolume, generator: LoadGenerator) -> String {
        let title = title(BLOCKS, volume, generator);
        let patterns = self.jobs.rows(&title);
        // fio counts only its own thread.
        let cpu = if generator == LoadGenerator::Fio { "submitter's CPU %" } else { "CPU %" };
        let mut header = vec!["", "thousand per second", "MiB/s", cpu, "times psync", "times the kernel's ring"];
        header.extend(if generator == LoadGenerator::Fio { &["submit, ns", "complete, ns"][..] } else { &[] });
        let mut table = TextTable::new(&title, header);
        for pattern in &patterns {
            for &engine in &self.engines {
                let job = self.jobs.find_job(&title, pattern, engine.label());
                let case = job.and_then(|job| job.summary(VALUE));
                let of = |base: WriteEngine| plain(self.jobs.ratio(&title, pattern, engine.label(), base.label()));
                let mut row = vec![format!("{pattern}, {}", engine.label()), cell(case, 1e3)];
                row.extend([plain(case.map(|s| s.median * 4096.0 / 1_048_576.0)), plain(median(job, "cpu_percent"))]);
                row.extend([of(WriteEngine::Psync), of(WriteEngine::Kernel)]);
                if generator == LoadGenerator::Fio {
                    row.extend([plain(median(job, "submit_ns")), plain(median(job, "complete_ns"))]);
                }
                table.row(row);
            }
        }
        if patterns.is_empty() { String::new() } else { table.text() }
    }

    /// Latencies of submit() and of other files, medians of the rounds.
    fn latencies(&self, scene: &str) -> String {
        let header =
            ["", "first submit", "submit p50", "p99", "max", "slow file's p99", "max", "other files p50", "p99", "max", "slow, MB/s"];
        let others = if scene == THROTTLED { "reads" } else { "writes" };
        let mut table = TextTable::new(format!("while {scene}, {others} of other files: µs"), header);
        let mut is_empty = true;
        for engine in &self.engines {
            let Some(job) = self.jobs.find_job("latency", scene, engine.label()) else { continue };
            is_empty = false;
            let us = |field: &str| plain(median(Some(job), field));
            let mut row = vec![engine.label().to_owned()];
            row.extend(
                ["first_submit_us", "submit_p50_us", "submit_p99_us", "submit_max_us", "slow_submit_p99_us", "slow_submit_max_us"].map(us),
            );
            row.extend(["other_p50_us", "other_p99_us", "other_max_us"].map(us));
            row.push(plain(median(Some(job), "slow_bytes_a_second").map(|bytes| bytes / 1e6)));
            table.row(row);
        }
        if is_empty { String::new() } else { table.text() }
    }

    /// `of / base` at each depth for which `is_wanted`, on the filesystems that the goals cover.
    fn depth_ratios(
        &self,
        generator: LoadGenerator,
        of: WriteEngine,
        base: WriteEngine,
        is_requested: impl Fn(u32) -> bool,
    ) -> Vec<(String, f64)> {
        let mut ratios = Vec::new();
        for volume in self.volumes.iter().filter(|volume| ["ext4", "xfs"].contains(&volume.kind.as_str())) {
            let title = title(DEPTHS, volume, generator);
            for depth in self.jobs.rows(&title) {
                let ratio = self.jobs.ratio(&title, depth, of.label(), base.label());
                if let (Some(ratio), true) = (ratio, depth.parse().is_ok_and(&is_requested)) {
                    ratios.push((format!("{}, depth {depth}", volume.label), ratio));
                }
            }
        }
        ratios
    }

    /// The goals of issue 3 that were measured.
    pub(super) fn goals(&self) -> Vec<Goal> {
        use LoadGenerator::{Fio, Own};
        use WriteEngine::{Adaptive, Kernel, Psync, Uringlet, Workers};
        let ratio = |what: &str, least, generator, of, base, is_requested: &dyn Fn(u32) -> bool| {
            Goal::worst(what, Bound::AtLeast, least, self.depth_ratios(generator, of, base, is_requested))
        };
        let late = |what: &str, most, field: &str| {
            let one = |engine: WriteEngine| {
                let value = median(self.jobs.find_job("latency", SLOW, engine.label()), field)?;
                Some((engine.label().to_owned(), value))
            };
            Goal::worst(what, Bound::AtMost, most, [Adaptive, Uringlet].into_iter().filter_map(one))
        };
        let goals = [
            ratio("adaptive, own generator, relative to pwrite at every depth", 0.95, Own, Adaptive, Psync, &|_| true),
            ratio("adaptive, fio, relative to psync at every depth", 0.8, Fio, Adaptive, Psync, &|_| true),
            ratio("adaptive, fio, relative to the kernel's ring at every depth", 1.0, Fio, Adaptive, Kernel, &|_| true),
            ratio("uringlet mode, own generator, relative to pwrite at depth 1", 0.6, Own, Uringlet, Psync, &|depth| depth == 1),
            ratio("uringlet mode, own generator, relative to the kernel's ring from depth 16", 1.0, Own, Uringlet, Kernel, &|depth| {
                depth >= 16
            }),
            ratio("adaptive, own generator, relative to worker-only at depth 1", 3.0, Own, Adaptive, Workers, &|depth| depth == 1),
            late("µs until other files' requests complete while one is slow, p99", 2000.0, "other_p99_us"),
            late("µs for submit() while a file is slow, p99 after the first miss", 200.0, "submit_p99_us"),
        ];
        goals.into_iter().flatten().collect()
    }

    /// Writes per second by depth.
    pub(super) fn plot(&self) -> Plot {
        let line = |title: &str, engine: WriteEngine| {
            let point = |depth: &str| Some((depth.parse().ok()?, self.jobs.summary(title, depth, engine.label(), VALUE)?));
            (engine.label().to_owned(), self.jobs.rows(title).into_iter().filter_map(point).collect())
        };
        let panel = |(volume, generator): (&TestVolume, LoadGenerator)| {
            let title = title(DEPTHS, volume, generator);
            let lines = self.engines.iter().map(|&engine| line(&title, engine)).collect();
            Panel { title: format!("{}, {}", volume.label, generator.name()), lines }
        };
        let panels = self.combinations().map(panel).collect();
        Plot { x_label: "queue depth".to_owned(), y_label: format!("{DEPTHS}, per second"), panels }
    }
}
