//! fio: its command line and its report.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::job::{Sample, VALUE};
use super::launch::Launch;
use super::stop::StopFlag;

/// A job of buffered writes in one thread for a fixed time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writes<'a> {
    pub(super) engine: &'a str,
    /// fio's `rw` parameter: `randwrite` or `write`.
    pub(super) pattern: &'a str,
    pub(super) block: &'a str,
    pub(super) size: &'a str,
    pub(super) depth: u32,
    pub(super) time: Duration,
    pub(super) file: &'a Path,
}

/// Time beyond the measured one: starting, filling the file, ramp time.
pub(super) const OVERHEAD: Duration = Duration::from_millis(800);

impl Writes<'_> {
    pub(super) fn argv(&self) -> Vec<OsString> {
        let mut argv: Vec<OsString> =
            ["fio", "--output-format=json", "--name=bench", "--time_based", "--ramp_time=200ms"].map(Into::into).to_vec();
        argv.extend(["--norandommap", "--thread", "--buffered=1"].map(Into::into));
        let options = [
            ("rw", self.pattern.to_owned()),
            ("bs", self.block.to_owned()),
            ("size", self.size.to_owned()),
            ("runtime", format!("{}ms", self.time.as_millis())),
            ("ioengine", self.engine.to_owned()),
            ("iodepth", self.depth.to_string()),
        ];
        argv.extend(options.map(|(name, value)| format!("--{name}={value}").into()));
        let mut name = OsString::from("--filename=");
        name.push(self.file);
        argv.push(name);
        argv
    }
}

/// Why fio cannot be used, or `None`.
pub(super) fn missing() -> Option<String> {
    Launch::new(["fio", "--version"]).output(&StopFlag::default()).err()
}

/// The results of a job: writes per second, and fio's latencies in ns.
pub(super) fn sample(text: &str) -> Result<Sample, String> {
    // Notes precede the object.
    let report = text.find("{\n").and_then(|at| serde_json::from_str::<Value>(&text[at..]).ok());
    let report = report.ok_or_else(|| format!("fio printed no report: {}", text.lines().next().unwrap_or("nothing")))?;
    let job = &report["jobs"][0];
    let number = |path: &str| job.pointer(path).and_then(Value::as_f64).ok_or_else(|| format!("fio's report has no {path}"));
    if number("/error")? != 0.0 {
        return Err(format!("fio reports error {}", number("/error")?));
    }
    let mut sample = Sample::from([(VALUE.to_owned(), number("/write/iops")?)]);
    for (name, path) in [
        ("submit_ns", "/write/slat_ns/mean"),
        ("complete_ns", "/write/clat_ns/mean"),
        ("latency_ns", "/write/lat_ns/mean"),
        ("latency_ns_max", "/write/lat_ns/max"),
        ("latency_ns_stddev", "/write/lat_ns/stddev"),
    ] {
        sample.insert(name.to_owned(), number(path)?);
    }
    sample.insert("cpu_percent".to_owned(), number("/usr_cpu")? + number("/sys_cpu")?);
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_parsed() {
        let text = r#"note: something
{
  "jobs": [ { "error": 0, "usr_cpu": 10.5, "sys_cpu": 60.0, "write": { "iops": 5000.5,
    "slat_ns": { "mean": 1 }, "clat_ns": { "mean": 2 }, "lat_ns": { "mean": 3, "max": 9, "stddev": 4 } } } ]
}"#;
        let read = sample(text).unwrap();
        assert_eq!((read[VALUE], read["cpu_percent"], read["latency_ns"]), (5000.5, 70.5, 3.0));
        assert_eq!(sample(&text.replace("\"error\": 0", "\"error\": 5")), Err("fio reports error 5".to_owned()));
        assert_eq!(sample("fio: failed\n"), Err("fio printed no report: fio: failed".to_owned()));
    }
}
