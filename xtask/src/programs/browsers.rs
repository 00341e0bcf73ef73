//! Browsers: they use no ring, and confine their processes to few system calls. They run as without
//! uringlet, or hang.

use super::program_cases::ProgramCases;
use anyhow::ensure;
use std::fs;

/// A page that a script writes.
const PAGE: &str = "<html><body><script>document.body.innerHTML = 'sum ' + (40 + 2)</script></body></html>";

/// The page's address for a browser that runs as an ordinary user.
fn page(cases: &ProgramCases) -> anyhow::Result<String> {
    let page = cases.dir().join("page.html");
    fs::write(&page, PAGE)?;
    Ok(format!("file://{}", page.display()))
}

pub(super) fn check_chromium(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let mut cases_of_user = cases.as_ordinary_user()?;
    let home = cases_of_user.dir().to_string_lossy().into_owned();
    cases_of_user.set_env("HOME", &home);
    let page = page(&cases_of_user)?;
    let profile = format!("--user-data-dir={home}/profile");
    cases_of_user.case("runs a script, headless", |cases| {
        let output = cases.run_open(&["chromium", "--headless", "--disable-gpu", &profile, "--dump-dom", &page])?.ok()?;
        ensure!(output.contains("sum 42"), "{output}");
        ensure!(!output.contains("seccomp-bpf failure"), "{output}");
        Ok(())
    });
    cases.include(cases_of_user)
}

pub(super) fn check_firefox(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let mut cases_of_user = cases.as_ordinary_user()?;
    let home = cases_of_user.dir().to_string_lossy().into_owned();
    cases_of_user.set_env("HOME", &home);
    let page = page(&cases_of_user)?;
    let picture = format!("{home}/page.png");
    cases_of_user.case("renders a page, headless", |cases| {
        cases.run_open(&["firefox-esr", "--headless", "--screenshot", &picture, &page])?.ok()?;
        ensure!(fs::metadata(&picture)?.len() > 1000, "there is no picture of the page");
        Ok(())
    });
    cases.include(cases_of_user)
}
