//! The second half of the demo: a database.

use crate::containers::images::{Layer, Root, Tarball};
use crate::postgres::{IO_METHODS, IoMethod, Postgres, median};
use crate::programs::program_cases::ProgramCases;
use std::thread::JoinHandle;

/// Rounds of one server each with its scans.
const ROUNDS: u32 = 3;

/// Shows all of it. The root has been begun before, because its packages come from far away.
pub(super) fn show(cases: &mut ProgramCases, root: JoinHandle<anyhow::Result<Layer>>) {
    let root = root.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that makes the root ended")));
    let prepared = match root {
        Ok(_) => Postgres::prepare(cases, Root::TESTING, Tarball::Release),
        Err(error) => Err(error.context("PostgreSQL 18 is Debian testing's, which cannot be reached from here")),
    };
    let postgres = match prepared {
        Ok(postgres) => postgres,
        Err(error) => return cases.case("cannot be shown here", |_| Err(error)),
    };
    println!("\n4. PostgreSQL 18, io_method=io_uring, in a container (crun) with Docker's seccomp profile");
    postgres.is_refused(cases);
    postgres.is_right(cases);
    println!("\n5. scans of 300,000 rows, 250 MB, from the page cache: the median of {ROUNDS} rounds, in milliseconds");
    cases.case("timed", |cases| {
        let times = postgres.figures(cases, "postgres-scan.sh", ROUNDS)?;
        for (method, times) in IO_METHODS.iter().zip(&times) {
            let median = median(times).map_or_else(|| "refused".to_owned(), |time| format!("{time:.0}"));
            println!("   {:<66} {median:>7}", name(*method));
        }
        Ok(())
    });
    if let Err(error) = postgres.remove() {
        cases.case("leaves nothing", |_| Err(error));
    }
}

fn name(method: IoMethod) -> &'static str {
    match method {
        IoMethod::Worker => "io_method=worker, PostgreSQL's own processes, in the container",
        IoMethod::Uringlet => "io_method=io_uring, uringlet's ring, in the container",
        IoMethod::Kernel => "io_method=io_uring, the kernel's ring, no seccomp profile",
    }
}
