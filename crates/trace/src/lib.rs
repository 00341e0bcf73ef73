//! Traces of io_uring: what a request means, which ones are wanted, and how they are shown.
//!
//! ```text
//!   records of the engine --stream--> Event --expression--> text, json, perfetto, html, summary
//!                                       |
//!                                       decode: an SQE's arguments by name
//! ```
//! Nothing here knows where records come from: `uringlet trace` reads them from memory that it
//! shares with the traced processes (`uringlet_sys::trace`).
#![forbid(unsafe_code)]

mod clock;
mod decode;
mod errno;
mod expression;
mod flags;
pub mod html;
pub mod inject;
pub mod json;
mod opcodes;
pub mod perfetto;
mod request;
mod stream;
pub mod summary;
pub mod text;
mod value;

pub use clock::TickClock;
pub use expression::{FilterError, TraceFilter};
pub use request::{Call, CallKind, CqeShown, Data, Event, FileNames, LostEntries, PostedCqe, ProcessStart, SubmittedRequest};
pub use stream::Assembler;
