//! `uringlet trace`: what programs ask of their rings, a line a request.
//!
//! ```text
//!   this process                                             traced processes
//!     makes the buffer; URINGLET_TRACE, or `remote` (-p)  ->   map it
//!     reader: records -> events                           <-   engine: records
//!     sink: filter -> text, JSON, summary, Perfetto
//! ```
//! `docs/decisions/0038` has the design.

mod args;
mod error;
mod processes;
mod program;
mod reader;
mod remote;
mod sample;
mod sink;

use std::ffi::OsString;

use crate::status::Status;
pub(crate) use args::TraceArgs;
use error::{FAILED, TraceError};
use program::TracedProgram;
use reader::TraceReader;
use remote::Attached;
pub(crate) use sample::sample;
use sink::Sink;
use uringlet_sys::kernel_ring::{self, AskIn};
use uringlet_sys::trace::TraceBuffer;

pub(crate) fn trace(args: &TraceArgs) -> Status {
    match run(args) {
        Ok(status) => status,
        Err(TraceError(message)) => {
            eprintln!("uringlet trace: {message}");
            FAILED
        }
    }
}

fn run(args: &TraceArgs) -> Result<Status, TraceError> {
    if args.kernel && !kernel_ring::works(AskIn::Copy) {
        let why = "--kernel: the kernel's io_uring is blocked here (`uringlet doctor` says by what). Without --kernel the engine's rings are traced";
        return Err(TraceError(why.to_owned()));
    }
    let mut sink = Sink::open(args)?;
    let buffer = TraceBuffer::create(args.slots(), args.policy())
        .map_err(|errno| TraceError(format!("no memory for the trace: {errno}; --buffer takes less")))?;
    let _owner = buffer.own();
    let path = path_of(&buffer);
    let mut reader = TraceReader::new(&buffer);
    let status = if args.pids.is_empty() {
        let mut program = TracedProgram::start(&args.command, &path, args.kernel)?;
        let traced = reader.read(&mut sink, || program.state());
        if traced.is_err() {
            // The program goes on without a trace.
            buffer.leave();
        }
        program.wait()
    } else {
        let mut attached = Attached::new(&args.pids, &path)?;
        let _ = reader.read(&mut sink, || attached.state());
        attached.leave();
        0
    };
    let drops = reader.drops();
    buffer.leave();
    let ended = sink.finish(drops);
    Ok(if ended.is_err() && status == 0 { FAILED } else { status })
}

/// Where other processes find the buffer.
fn path_of(buffer: &TraceBuffer) -> OsString {
    format!("/proc/{}/fd/{}", std::process::id(), buffer.number().unwrap_or(-1)).into()
}
