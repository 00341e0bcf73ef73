//! `uringlet stat --openmetrics` as Prometheus' own parser reads it.

use super::program_cases::ProgramCases;
use anyhow::{Context, ensure};
use std::fs;

/// Starts fio, asks for the text while it runs, and reads it.
const CHECK: &str = r#"
import subprocess, sys, time
from prometheus_client.openmetrics.parser import text_string_to_metric_families
uringlet, folder = sys.argv[1:]
fio = subprocess.Popen([uringlet, "run", "--", "fio", "--name=x", "--ioengine=io_uring", f"--filename={folder}/fio.file",
    "--size=16m", "--bs=4k", "--rw=randrw", "--iodepth=8", "--time_based", "--runtime=20"], stdout=subprocess.DEVNULL)
time.sleep(6)
text = subprocess.run([uringlet, "stat", "--tree", "--openmetrics", "--requests=2", str(fio.pid)], check=True,
    stdout=subprocess.PIPE, text=True).stdout
fio.terminate()
families = {family.name: family for family in text_string_to_metric_families(text)}
submitted = sum(sample.value for sample in families["uringlet_submitted"].samples)
reads = [sample.value for sample in families["uringlet_sampled_opcode_requests"].samples if sample.labels["opcode"] == "READ"]
latency = families["uringlet_sampled_opcode_latency_seconds"]
assert submitted > 100 and reads[0] > 10 and latency.type == "summary", text
assert families["uringlet_throttled_seconds"].type == "counter", text
print("families", len(families))
"#;

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let uringlet = cases.uringlet().context("there are no counters on the kernel's own ring")?.to_string_lossy().into_owned();
    let dir = cases.dir().to_string_lossy().into_owned();
    let (venv, script) = (format!("{dir}/venv"), format!("{dir}/check.py"));
    fs::write(&script, CHECK)?;
    cases.run_outside(&["python3", "-m", "venv", &venv])?.ok()?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "prometheus_client"];
    let python = format!("{venv}/bin/python");
    cases.run_outside(&[&[python.as_str()][..], &pip].concat())?.ok()?;
    cases.case("Prometheus' parser reads the counters of a process tree", |cases| {
        let output = cases.run_outside(&[&python, &script, &uringlet, &dir])?.ok()?;
        ensure!(output.contains("families "), "{output}");
        Ok(())
    });
    Ok(())
}
