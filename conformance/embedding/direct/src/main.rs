//! Uses rings without being attached. The first argument says what for; it prints who answers.

mod cases;

use std::process::ExitCode;
use uringlet::{Ring, RingBackend};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("init") => println!("init: {:?}", uringlet::init()),
        Some("plugin") => cases::plugin(&arguments.next().expect("the library's path")),
        Some("refused") => return refused(),
        Some("no-new-code") => cases::forbid_new_code(),
        Some("kernel") => return forced(RingBackend::Kernel),
        Some("engine") => return forced(RingBackend::Engine),
        _ => {}
    }
    let ring = match Ring::new(8) {
        Ok(ring) => ring,
        Err(error) => {
            println!("no ring: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{:?}: {}", ring.backend(), cases::answered_by(&ring));
    drop(ring);
    cases::all();
    println!("all well");
    ExitCode::SUCCESS
}

/// One ring of this backend.
fn forced(backend: RingBackend) -> ExitCode {
    match Ring::builder().backend(backend).build(8) {
        Ok(ring) => println!("{:?}: {}", ring.backend(), cases::answered_by(&ring)),
        Err(error) => println!("no ring: {error}"),
    }
    ExitCode::SUCCESS
}

/// Errors of `build`, by the environment that the starter has made.
fn refused() -> ExitCode {
    match Ring::new(8) {
        Ok(ring) => println!("{:?}", ring.backend()),
        Err(error) => println!("no ring: {error}"),
    }
    // An error is not kept: the next attempt may succeed.
    match Ring::builder().backend(RingBackend::Engine).build(0) {
        Ok(_) => println!("a ring of no entries"),
        Err(error) => println!("no ring: {error}"),
    }
    ExitCode::SUCCESS
}
