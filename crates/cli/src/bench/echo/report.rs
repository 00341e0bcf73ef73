//! A table for each scene, pictures, and whether the goals are met.

use super::plan::{Plan, Scene, Who, all_of};
use super::settings::Mode;
use crate::bench::goal::{Bound, Goal};
use crate::bench::job::VALUE;
use crate::bench::plot::{Panel, Plot};
use crate::bench::stats::{Summary, number};
use crate::bench::table::Table;

const NOTHING: &str = "-";
/// Of one request, all threads of the server, µs.
const CPU: &str = "cpu_us";
/// With fewer connections for each worker, workers that wait hold nobody up.
const CROWD: u32 = 10;

fn plain(value: Option<f64>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), number)
}

impl Plan {
    /// All tables, the goals, what was not measured and why.
    pub(super) fn text(&self, goals: &[Goal]) -> String {
        let mut text: String = self.scenes.iter().map(|&scene| self.table(scene)).collect();
        text.push('\n');
        text.extend(goals.iter().map(Goal::text));
        text.extend(self.notes.iter().map(|note| format!("{note}\n")));
        text + &self.jobs.failures()
    }

    fn summary(&self, scene: Scene, mode: Mode, who: Who, field: &str) -> Option<Summary> {
        self.jobs.summary(&scene.title(), mode.label(), who.label(), field)
    }

    fn median(&self, scene: Scene, mode: Mode, who: Who, field: &str) -> Option<f64> {
        self.summary(scene, mode, who, field).map(|s| s.median)
    }

    /// How many times `base`'s this one's is: the median of the rounds' ratios, since what stands side by side was measured one after the other.
    fn ratio(&self, scene: Scene, mode: Mode, field: &str, who: Who, base: Who) -> Option<f64> {
        let job = |who: Who| self.jobs.find(&scene.title(), mode.label(), who.label());
        let pairs = job(who)?.samples.iter().zip(&job(base)?.samples);
        let ratios: Vec<f64> = pairs.filter_map(|(one, other)| Some(one.get(field)? / other.get(field)?)).collect();
        Summary::of(&ratios).map(|s| s.median)
    }

    fn table(&self, scene: Scene) -> String {
        let title = format!("{}: thousand requests/s, median ± half the spread; latency; the server's CPU time a request", scene.title());
        let header = ["", "requests", "of kernel's", "p50 µs", "p99 µs", "CPU µs", "of kernel's", "threads"];
        let mut table = Table::new(title, header);
        for &mode in &self.modes {
            for &who in all_of(mode) {
                let Some(rate) = self.summary(scene, mode, who, VALUE) else { continue };
                let of_kernel = |field| plain(self.ratio(scene, mode, field, who, Who::Kernel));
                let middle = |field| plain(self.median(scene, mode, who, field));
                table.row([
                    if who == Who::Epoll { who.label().to_owned() } else { format!("{}: {}", mode.label(), who.label()) },
                    rate.divided(1e3).narrow(),
                    of_kernel(VALUE),
                    middle("p50_us"),
                    middle("p99_us"),
                    middle(CPU),
                    of_kernel(CPU),
                    self.median(scene, mode, who, "threads").map_or_else(|| NOTHING.to_owned(), |n| format!("{n:.0}")),
                ]);
            }
        }
        table.text()
    }

    /// A ratio in these scenes and modes, each with its name.
    fn ratios(&self, modes: &[Mode], field: &str, who: Who, base: Who, is_wanted: impl Fn(Scene, Mode) -> bool) -> Vec<(String, f64)> {
        let mut found = Vec::new();
        for &scene in &self.scenes {
            for &mode in modes.iter().filter(|&&mode| is_wanted(scene, mode)) {
                let name = if modes.len() == 1 { scene.title() } else { format!("{}, {}", scene.title(), mode.label()) };
                found.extend(self.ratio(scene, mode, field, who, base).map(|ratio| (name, ratio)));
            }
        }
        found
    }

    pub(super) fn goals(&self) -> Vec<Goal> {
        use Bound::{AtLeast, AtMost};
        use Mode::{Async4, Async20, Default};
        use Who::{Engine, Epoll, HybridOff, Kernel};
        let any = |_: Scene, _: Mode| true;
        let crowded = |scene: Scene| scene.connections >= CROWD * 20;
        let hybrid = |what: &str, is_wanted: &dyn Fn(Scene) -> bool| {
            let ratios = self.ratios(&[Async20], VALUE, Engine, HybridOff, |scene, _| crowded(scene) && is_wanted(scene));
            Goal::worst(format!("IOSQE_ASYNC, 20 workers{what}, requests, of those with the hybrid step off"), AtLeast, 2.18, ratios)
        };
        let goals = [
            Goal::worst("default mode, requests, of the kernel's ring", AtLeast, 0.95, self.ratios(&[Default], VALUE, Engine, Kernel, any)),
            Goal::worst("default mode, requests, of epoll", AtLeast, 0.95, self.ratios(&[Default], VALUE, Engine, Epoll, any)),
            hybrid("", &|scene| scene.pause_ms == 0),
            hybrid(", connections that pause", &|scene| scene.pause_ms > 0),
            Goal::worst(
                "IOSQE_ASYNC, requests, of the kernel's",
                AtLeast,
                1.0,
                self.ratios(&[Async20, Async4], VALUE, Engine, Kernel, any),
            ),
            Goal::worst(
                "default mode, CPU time a request, of the kernel's",
                AtMost,
                1.1,
                self.ratios(&[Default], CPU, Engine, Kernel, any),
            ),
            Goal::worst(
                "IOSQE_ASYNC, CPU time a request, of the kernel's",
                AtMost,
                1.1,
                self.ratios(&[Async20, Async4], CPU, Engine, Kernel, any),
            ),
        ];
        goals.into_iter().flatten().collect()
    }

    /// Requests a second by connections: for each size a panel without and one with IOSQE_ASYNC.
    pub(super) fn plot(&self) -> Plot {
        let mut sizes: Vec<u32> = self.scenes.iter().filter(|scene| scene.pause_ms == 0).map(|scene| scene.size).collect();
        sizes.dedup();
        let panels = sizes.iter().flat_map(|&size| [false, true].map(|is_async| self.panel(size, is_async)));
        let panels = panels.filter(|panel| !panel.lines.is_empty()).collect();
        Plot { x_label: "connections".to_owned(), y_label: "requests/s".to_owned(), panels }
    }

    fn panel(&self, size: u32, is_async: bool) -> Panel {
        let mut lines = Vec::new();
        for &mode in self.modes.iter().filter(|mode| mode.is_async() == is_async) {
            for &who in all_of(mode) {
                let scenes = self.scenes.iter().filter(|scene| scene.size == size && scene.pause_ms == 0);
                let point = |scene: &Scene| Some((f64::from(scene.connections), self.summary(*scene, mode, who, VALUE)?));
                lines.push((line(mode, who), scenes.filter_map(point).collect()));
            }
        }
        Panel { title: format!("{size} bytes{}", if is_async { ", IOSQE_ASYNC" } else { "" }), lines }
    }
}

/// Short enough for a legend.
fn line(mode: Mode, who: Who) -> String {
    let who = match who {
        Who::Epoll => return who.label().to_owned(),
        Who::Kernel => "kernel",
        Who::Engine => "engine",
        Who::Worker => "always a worker",
        Who::HybridOff => "hybrid off",
    };
    let mode = match mode {
        Mode::Async20 => "20 workers",
        Mode::Async4 => "4 workers",
        Mode::RegisteredFiles => "reg. files",
        other => other.label(),
    };
    format!("{who}, {mode}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::echo::plan::{plan, tests::tools};
    use crate::bench::echo::settings::tests::parse;
    use crate::bench::job::{Job, Sample};
    use crate::bench::stop::Stop;
    use std::time::Duration;

    /// A whole run, its numbers by column.
    fn measured(connections: &str, value: fn(&str) -> f64) -> Plan {
        let mut plan = plan(&parse(&[connections, "--sizes=12"]).unwrap(), &tools(None));
        for job in &mut plan.jobs.0 {
            let value = value(&job.place.column);
            *job = Job::new(job.place.clone(), Duration::ZERO, move |_| {
                let fields = [(VALUE, value), (CPU, 1e6 / value), ("threads", 3.0), ("p50_us", 1.0), ("p99_us", 2.0)];
                Ok(Sample::from(fields.map(|(name, value)| (name.to_owned(), value))))
            });
        }
        assert_eq!(plan.jobs.rounds(1, &Stop::default(), || Ok(())), Ok(true));
        plan
    }

    #[test]
    fn ratios_are_of_rounds() {
        let mut plan = measured("--connections=1", speed);
        // A machine that becomes ten times slower: for the engine in the second round, for all in the third.
        for job in &mut plan.jobs.0 {
            let first = job.samples[0].clone();
            let slow = Sample::from([(VALUE.to_owned(), first[VALUE] / 10.0)]);
            let is_engine = job.place.column == Who::Engine.label();
            job.samples = vec![first.clone(), if is_engine { slow.clone() } else { first }, slow];
        }
        let ratio = plan.ratio(plan.scenes[0], Mode::Default, VALUE, Who::Engine, Who::Kernel).unwrap();
        assert!((ratio - 0.9).abs() < 1e-9, "{ratio}");
    }

    fn speed(column: &str) -> f64 {
        match column {
            "engine" => 90e3,
            "epoll" => 80e3,
            "engine, hybrid step off" => 30e3,
            _ => 100e3,
        }
    }

    #[test]
    fn goals_are_ratios() {
        let goals: Vec<String> = measured("--connections=1,1000", speed).goals().iter().map(Goal::text).collect();
        assert_eq!(goals.len(), 7);
        assert!(goals[0].contains("at least 0.95: 0.90 (1 connection, 12 bytes), not met"), "{}", goals[0]);
        assert!(goals[1].contains("1.12") && goals[1].contains(", met"), "{}", goals[1]);
        assert!(goals[2].contains("at least 2.18: 3.00 (1000 connections, 12 bytes), met"), "{}", goals[2]);
        assert!(goals[3].contains("connections that pause") && goals[3].contains("3.00"), "{}", goals[3]);
        assert!(goals[5].contains("at most 1.10: 1.11") && goals[6].contains("IOSQE_ASYNC"), "{}", goals[6]);
    }

    #[test]
    fn the_hybrid_step_counts_where_workers_are_few() {
        assert_eq!(measured("--connections=100", speed).goals().len(), 5);
    }

    #[test]
    fn tables_and_pictures_have_all() {
        let plan = measured("--connections=1,1000", speed);
        let text = plan.text(&[]);
        assert!(text.contains("\n1 connection, 12 bytes: thousand requests/s") && text.contains("\n1000 connections, 12 bytes"), "{text}");
        let row = text.lines().find(|line| line.starts_with("default: engine ")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().skip(2).collect();
        assert_eq!(cells, ["90.0", "0.90", "1.00", "2.00", "11.1", "1.11", "3"]);
        let svg = plan.plot().svg().unwrap();
        assert!(["hybrid off, 4 workers", "12 bytes, IOSQE_ASYNC", "epoll"].iter().all(|words| svg.contains(words)), "{svg}");
    }
}
