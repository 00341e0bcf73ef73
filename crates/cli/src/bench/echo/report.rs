//! Tables, plots and goals of `uringlet bench echo`.

use super::args::EchoMode;
use super::plan::{EchoBackend, EchoPlan, EchoWorkload, backends_of};
use crate::bench::goal::{Bound, Goal};
use crate::bench::job::VALUE;
use crate::bench::plot::{Panel, Plot};
use crate::bench::summary::{Summary, number};
use crate::bench::table::TextTable;

const NOTHING: &str = "-";
/// CPU time of all server threads per request, µs.
const CPU: &str = "cpu_us";
/// With fewer connections per worker, blocked workers delay no other connection.
const CROWD_PER_WORKER: u32 = 10;

fn plain(value: Option<f64>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), number)
}

/// The modes that a panel of the plot shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PanelModes {
    Plain,
    /// With IOSQE_ASYNC.
    Async,
}

impl EchoPlan {
    /// All tables, the goals, the notes and the failures.
    pub(super) fn text(&self, goals: &[Goal]) -> String {
        let mut text: String = self.workloads.iter().map(|&workload| self.table(workload)).collect();
        text.push('\n');
        text.extend(goals.iter().map(Goal::text));
        text.extend(self.notes.iter().map(|note| format!("{note}\n")));
        text + &self.jobs.failures()
    }

    fn summary(&self, workload: EchoWorkload, mode: EchoMode, backend: EchoBackend, field: &str) -> Option<Summary> {
        self.jobs.summary(&workload.title(), mode.label(), backend.label(), field)
    }

    fn median(&self, workload: EchoWorkload, mode: EchoMode, backend: EchoBackend, field: &str) -> Option<f64> {
        self.summary(workload, mode, backend, field).map(|s| s.median)
    }

    /// `backend` divided by `base`: the median of the ratios of each round, since values of one
    /// round were measured one after the other.
    fn ratio(&self, workload: EchoWorkload, mode: EchoMode, field: &str, backend: EchoBackend, base: EchoBackend) -> Option<f64> {
        let job = |backend: EchoBackend| self.jobs.find_job(&workload.title(), mode.label(), backend.label());
        let pairs = job(backend)?.samples.iter().zip(&job(base)?.samples);
        let ratios: Vec<f64> = pairs.filter_map(|(one, other)| Some(one.get(field)? / other.get(field)?)).collect();
        Summary::of(&ratios).map(|s| s.median)
    }

    fn table(&self, workload: EchoWorkload) -> String {
        let title =
            format!("{}: thousand requests/s, median ± half the spread; latency; the server's CPU time per request", workload.title());
        let header = ["", "requests", "of kernel's", "p50 µs", "p99 µs", "CPU µs", "of kernel's", "threads"];
        let mut table = TextTable::new(title, header);
        for &mode in &self.modes {
            for &backend in backends_of(mode) {
                let Some(rate) = self.summary(workload, mode, backend, VALUE) else { continue };
                let of_kernel = |field| plain(self.ratio(workload, mode, field, backend, EchoBackend::Kernel));
                let middle = |field| plain(self.median(workload, mode, backend, field));
                table.row([
                    if backend == EchoBackend::Epoll {
                        backend.label().to_owned()
                    } else {
                        format!("{}: {}", mode.label(), backend.label())
                    },
                    rate.divided(1e3).narrow(),
                    of_kernel(VALUE),
                    middle("p50_us"),
                    middle("p99_us"),
                    middle(CPU),
                    of_kernel(CPU),
                    self.median(workload, mode, backend, "threads").map_or_else(|| NOTHING.to_owned(), |n| format!("{n:.0}")),
                ]);
            }
        }
        table.text()
    }

    /// The ratios in these workloads and modes, each with its name.
    fn ratios(
        &self,
        modes: &[EchoMode],
        field: &str,
        backend: EchoBackend,
        base: EchoBackend,
        is_requested: impl Fn(EchoWorkload, EchoMode) -> bool,
    ) -> Vec<(String, f64)> {
        let mut found = Vec::new();
        for &workload in &self.workloads {
            for &mode in modes.iter().filter(|&&mode| is_requested(workload, mode)) {
                let name = if modes.len() == 1 { workload.title() } else { format!("{}, {}", workload.title(), mode.label()) };
                found.extend(self.ratio(workload, mode, field, backend, base).map(|ratio| (name, ratio)));
            }
        }
        found
    }

    pub(super) fn goals(&self) -> Vec<Goal> {
        use Bound::{AtLeast, AtMost};
        use EchoBackend::{Engine, Epoll, HybridOff, Kernel};
        use EchoMode::{Async4, Async20, Default};
        let any = |_: EchoWorkload, _: EchoMode| true;
        let is_crowded = |workload: EchoWorkload| workload.connections >= CROWD_PER_WORKER * 20;
        let hybrid = |what: &str, is_requested: &dyn Fn(EchoWorkload) -> bool| {
            let ratios = self.ratios(&[Async20], VALUE, Engine, HybridOff, |workload, _| is_crowded(workload) && is_requested(workload));
            Goal::worst(format!("IOSQE_ASYNC, 20 workers{what}, requests, relative to the hybrid step off"), AtLeast, 2.18, ratios)
        };
        let goals = [
            Goal::worst(
                "default mode, requests, relative to the kernel's ring",
                AtLeast,
                0.95,
                self.ratios(&[Default], VALUE, Engine, Kernel, any),
            ),
            Goal::worst("default mode, requests, relative to epoll", AtLeast, 0.95, self.ratios(&[Default], VALUE, Engine, Epoll, any)),
            hybrid("", &|workload| workload.pause_ms == 0),
            hybrid(", connections that pause", &|workload| workload.pause_ms > 0),
            Goal::worst(
                "IOSQE_ASYNC, requests, relative to the kernel's ring",
                AtLeast,
                1.0,
                self.ratios(&[Async20, Async4], VALUE, Engine, Kernel, any),
            ),
            Goal::worst(
                "default mode, CPU time per request, relative to the kernel's ring",
                AtMost,
                1.1,
                self.ratios(&[Default], CPU, Engine, Kernel, any),
            ),
            Goal::worst(
                "IOSQE_ASYNC, CPU time per request, relative to the kernel's ring",
                AtMost,
                1.1,
                self.ratios(&[Async20, Async4], CPU, Engine, Kernel, any),
            ),
        ];
        goals.into_iter().flatten().collect()
    }

    /// Requests per second by connections: for each message length a panel without and one with
    /// IOSQE_ASYNC.
    pub(super) fn plot(&self) -> Plot {
        let mut sizes: Vec<u32> = self.workloads.iter().filter(|workload| workload.pause_ms == 0).map(|workload| workload.size).collect();
        sizes.dedup();
        let panels = sizes.iter().flat_map(|&size| [PanelModes::Plain, PanelModes::Async].map(|modes| self.panel(size, modes)));
        let panels = panels.filter(|panel| !panel.lines.is_empty()).collect();
        Plot { x_label: "connections".to_owned(), y_label: "requests/s".to_owned(), panels }
    }

    fn panel(&self, size: u32, modes: PanelModes) -> Panel {
        let mut lines = Vec::new();
        for &mode in self.modes.iter().filter(|mode| mode.is_async() == (modes == PanelModes::Async)) {
            for &backend in backends_of(mode) {
                let workloads = self.workloads.iter().filter(|workload| workload.size == size && workload.pause_ms == 0);
                let point =
                    |workload: &EchoWorkload| Some((f64::from(workload.connections), self.summary(*workload, mode, backend, VALUE)?));
                lines.push((line(mode, backend), workloads.filter_map(point).collect()));
            }
        }
        Panel { title: format!("{size} bytes{}", if modes == PanelModes::Async { ", IOSQE_ASYNC" } else { "" }), lines }
    }
}

/// A name that is short enough for the legend.
fn line(mode: EchoMode, backend: EchoBackend) -> String {
    let backend = match backend {
        EchoBackend::Epoll => return backend.label().to_owned(),
        EchoBackend::Kernel => "kernel",
        EchoBackend::Engine => "engine",
        EchoBackend::WorkerOnly => "always a worker",
        EchoBackend::HybridOff => "hybrid off",
    };
    let mode = match mode {
        EchoMode::Async20 => "20 workers",
        EchoMode::Async4 => "4 workers",
        EchoMode::RegisteredFiles => "reg. files",
        other => other.label(),
    };
    format!("{backend}, {mode}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::echo::args::tests::parse;
    use crate::bench::echo::plan::{plan, tests::tools};
    use crate::bench::job::{BenchJob, Sample};
    use crate::bench::outcome::BenchOutcome;
    use crate::bench::stop::StopFlag;
    use std::time::Duration;

    /// A complete run whose numbers depend on the column.
    fn measured(connections: &str, value: fn(&str) -> f64) -> EchoPlan {
        let mut plan = plan(&parse(&[connections, "--sizes=12"]).unwrap(), &tools(None));
        for job in &mut plan.jobs.0 {
            let value = value(&job.cell.column);
            *job = BenchJob::new(job.cell.clone(), Duration::ZERO, move |_| {
                let fields = [(VALUE, value), (CPU, 1e6 / value), ("threads", 3.0), ("p50_us", 1.0), ("p99_us", 2.0)];
                Ok(Sample::from(fields.map(|(name, value)| (name.to_owned(), value))))
            });
        }
        assert_eq!(plan.jobs.run_rounds(1, &StopFlag::default(), || Ok(())), Ok(BenchOutcome::Complete));
        plan
    }

    #[test]
    fn ratios_are_medians_of_the_rounds_ratios() {
        let mut plan = measured("--connections=1", speed);
        // The machine becomes ten times slower: for uringlet in the second round, for all in the
        // third.
        for job in &mut plan.jobs.0 {
            let first = job.samples[0].clone();
            let slow = Sample::from([(VALUE.to_owned(), first[VALUE] / 10.0)]);
            let is_engine = job.cell.column == EchoBackend::Engine.label();
            job.samples = vec![first.clone(), if is_engine { slow.clone() } else { first }, slow];
        }
        let ratio = plan.ratio(plan.workloads[0], EchoMode::Default, VALUE, EchoBackend::Engine, EchoBackend::Kernel).unwrap();
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
    fn goals_compare_ratios() {
        let goals: Vec<String> = measured("--connections=1,1000", speed).goals().iter().map(Goal::text).collect();
        assert_eq!(goals.len(), 7);
        assert!(goals[0].contains("at least 0.95: 0.90 (1 connection, 12 bytes), not met"), "{}", goals[0]);
        assert!(goals[1].contains("1.12") && goals[1].contains(", met"), "{}", goals[1]);
        assert!(goals[2].contains("at least 2.18: 3.00 (1000 connections, 12 bytes), met"), "{}", goals[2]);
        assert!(goals[3].contains("connections that pause") && goals[3].contains("3.00"), "{}", goals[3]);
        assert!(goals[5].contains("at most 1.10: 1.11") && goals[6].contains("IOSQE_ASYNC"), "{}", goals[6]);
    }

    #[test]
    fn the_hybrid_goal_needs_many_connections_per_worker() {
        assert_eq!(measured("--connections=100", speed).goals().len(), 5);
    }

    #[test]
    fn tables_and_plots_contain_all_series() {
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
