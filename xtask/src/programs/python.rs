//! Python on rings: the package `liburing` of PyPI, in a process, its forked and started children,
//! and gunicorn's workers (`conformance/python_rings.py`).

use super::program_cases::{ALL_WELL, ProgramCases};
use crate::{paths, stream};
use anyhow::{Context, ensure};

const PACKAGES: [&str; 2] = ["liburing==2026.3.30", "gunicorn==27.0.1"];

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let python = environment()?;
    let program = paths::root().join("conformance/python_rings.py");
    let argv = [python.as_str(), program.to_str().context("the checkout's path is not UTF-8")?];
    for &isolation in cases.isolations() {
        cases.needs_uringlet(isolation, &argv);
        cases.case(&format!("{} liburing of PyPI, children, gunicorn", isolation.option()), |cases| {
            let output = cases.run(isolation, &argv)?.ok()?;
            ensure!(output.trim_end().ends_with(ALL_WELL), "{output}");
            Ok(())
        });
    }
    Ok(())
}

/// Makes a virtual environment with the packages. Returns the path of its Python.
fn environment() -> anyhow::Result<String> {
    let folder = paths::cache().join("python");
    let folder = folder.to_str().context("the cache's path is not UTF-8")?;
    let python = format!("{folder}/bin/python");
    stream::sh("python3", &["-m", "venv", folder])?;
    stream::sh(&python, &[&["-m", "pip", "install", "--quiet", "--disable-pip-version-check"][..], &PACKAGES].concat())?;
    Ok(python)
}
