//! Where a trace goes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use uringlet_trace::html::HtmlReport;
use uringlet_trace::perfetto::{self, Perfetto};
use uringlet_trace::summary::TraceSummary;
use uringlet_trace::text::LineStyle;
use uringlet_trace::{Event, TickClock, TraceFilter, json, text};

use super::args::TraceArgs;
use super::error::TraceError;

/// It could not be written. The reason was printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct SinkError;

/// What takes the events of a trace.
pub(super) trait EventSink {
    /// Takes the time, for the events that come.
    fn anchor(&mut self);

    fn take(&mut self, event: &Event) -> Result<(), SinkError>;

    /// What was taken is seen.
    fn flush(&mut self) -> Result<(), SinkError>;
}

/// A file, or standard error.
struct Output {
    name: String,
    writer: BufWriter<Box<dyn Write>>,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Output {
    fn create(path: &Path) -> Result<Self, TraceError> {
        let file = File::create(path).map_err(|error| TraceError(format!("cannot write to {}: {error}", path.display())))?;
        Ok(Self { name: path.display().to_string(), writer: BufWriter::new(Box::new(file)) })
    }

    fn standard_error() -> Self {
        Self { name: "standard error".to_owned(), writer: BufWriter::new(Box::new(io::stderr())) }
    }

    fn write(&mut self, text: &str) -> Result<(), SinkError> {
        let written = self.writer.write_all(text.as_bytes());
        self.check(&written)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        let flushed = self.writer.flush();
        self.check(&flushed)
    }

    fn check(&self, result: &io::Result<()>) -> Result<(), SinkError> {
        let Err(error) = result else { return Ok(()) };
        // Standard error itself may be what cannot be written.
        let _ = writeln!(io::stderr(), "uringlet trace: cannot write to {}: {error}; the program goes on without a trace", self.name);
        Err(SinkError)
    }
}

/// What is shown of each event.
#[derive(Debug)]
enum Form {
    Text(LineStyle),
    Json,
    Summary(Box<TraceSummary>),
    JsonSummary(Box<TraceSummary>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Sink {
    filter: TraceFilter,
    form: Form,
    clock: TickClock,
    output: Output,
    perfetto: Option<(Perfetto, Output)>,
    html: Option<(Box<HtmlReport>, Output)>,
}

impl Sink {
    pub(super) fn open(args: &TraceArgs) -> Result<Self, TraceError> {
        let mut filter = TraceFilter::default();
        for expression in &args.expressions {
            filter.add(expression).map_err(|error| TraceError(error.to_string()))?;
        }
        let form = match (args.summary, args.json) {
            (true, false) => Form::Summary(Box::default()),
            (true, true) => Form::JsonSummary(Box::default()),
            (false, true) => Form::Json,
            (false, false) => Form::Text(args.style()),
        };
        let output = args.output.as_deref().map_or_else(|| Ok(Output::standard_error()), Output::create)?;
        let mut perfetto = None;
        if let Some(path) = &args.perfetto {
            let mut output = Output::create(path)?;
            output.write(perfetto::BEGIN).map_err(|SinkError| TraceError("no trace".to_owned()))?;
            perfetto = Some((Perfetto::default(), output));
        }
        let html = args.html.as_deref().map(Output::create).transpose()?.map(|output| (Box::default(), output));
        Ok(Self { filter, form, clock: TickClock::start(), output, perfetto, html })
    }

    /// The trace is over; so many records were dropped.
    pub(super) fn finish(mut self, drops: u64) -> Result<(), SinkError> {
        match &self.form {
            Form::Text(_) | Form::Json => {}
            Form::Summary(summary) => self.output.write(&summary.tables())?,
            Form::JsonSummary(summary) => self.output.write(&summary.json())?,
        }
        if drops > 0 {
            eprintln!("uringlet trace: {drops} records were dropped: --buffer takes a larger number");
        }
        if let Some((_, output)) = &mut self.perfetto {
            output.write(perfetto::END)?;
        }
        if let Some((html, output)) = &mut self.html {
            output.write(&html.page(&self.clock))?;
            output.flush()?;
        }
        self.flush()
    }
}

impl EventSink for Sink {
    fn anchor(&mut self) {
        self.clock.anchor();
    }

    fn take(&mut self, event: &Event) -> Result<(), SinkError> {
        if !self.filter.shows(event) {
            return Ok(());
        }
        if let Some((perfetto, output)) = &mut self.perfetto {
            output.write(&perfetto.lines(event, &self.clock))?;
        }
        if let Some((html, _)) = &mut self.html {
            html.add(event, &self.clock);
        }
        match &mut self.form {
            Form::Text(style) => self.output.write(&text::line(event, &self.clock, *style)),
            Form::Json => self.output.write(&json::line(event, &self.clock)),
            Form::Summary(summary) | Form::JsonSummary(summary) => {
                summary.add(event, &self.clock);
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.output.flush()?;
        self.perfetto.as_mut().map_or(Ok(()), |(_, output)| output.flush())
    }
}
