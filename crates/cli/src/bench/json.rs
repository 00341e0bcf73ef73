//! The JSON document of a run, and the JSON output of the worker.

use serde_json::{Value, json};

use super::goal::Goal;
use super::host::HostInfo;
use super::job::{Jobs, Sample};

/// One object: the machine, the notes, the series, the goals.
pub(super) fn document(host: &HostInfo, rounds: u32, notes: &[String], jobs: &Jobs, goals: &[Goal]) -> String {
    let document = json!({
        "uringlet": env!("CARGO_PKG_VERSION"),
        "kernel": host.kernel,
        "filesystem": host.filesystem,
        "cpu": host.cpu,
        "cpus": host.cpus,
        "rounds": rounds,
        "notes": notes,
        "series": jobs.0.iter().map(super::job::BenchJob::json).collect::<Vec<_>>(),
        "goals": goals.iter().map(Goal::json).collect::<Vec<_>>(),
    });
    format!("{document:#}\n")
}

/// Parses the last line of the worker's output: an object of numbers, or its `error`.
pub(super) fn sample(text: &str) -> Result<Sample, String> {
    let line = text.lines().next_back().unwrap_or_default();
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else {
        return Err(format!("the worker printed no numbers{}{text}", if text.is_empty() { "" } else { ": " }));
    };
    if let Some(error) = fields.get("error") {
        return Err(error.as_str().unwrap_or("an unknown error").to_owned());
    }
    Ok(fields.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_output_is_numbers_or_an_error() {
        assert_eq!(sample("{\"value\": 1.5}\n"), Ok(Sample::from([("value".to_owned(), 1.5)])));
        assert_eq!(sample("{\"error\": \"no ring\"}"), Err("no ring".to_owned()));
        assert_eq!(sample("junk"), Err("the worker printed no numbers: junk".to_owned()));
        assert_eq!(sample(""), Err("the worker printed no numbers".to_owned()));
    }
}
