//! Why no statistics can be shown.

/// See the module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StatError {
    /// There is no such process, or it has ended.
    NoProcess,
    /// The process belongs to another user, or tracing is restricted.
    PermissionDenied,
    /// No object of the process contains an engine.
    NoEngine,
    /// The layout of the engine's block is not the one this program knows.
    LayoutMismatch { object: String, layout: u32 },
    /// The statistics block holds values that no engine writes.
    Corrupt(&'static str),
    /// Requests cannot be counted.
    Trace(String),
    /// Any other error.
    Os(String),
}

impl StatError {
    pub(crate) fn message(&self, pid: i32) -> String {
        match self {
            Self::NoProcess => format!("no process {pid}"),
            Self::PermissionDenied => format!(
                "no permission to read the memory of process {pid}: it takes the right to trace it. Be root or its \
                 user; where the file /proc/sys/kernel/yama/ptrace_scope holds more than 0, root"
            ),
            Self::NoEngine => format!(
                "process {pid} has no uringlet engine in it: start the program with `uringlet run`, or with the \
                 drop-in liburing.so.2"
            ),
            Self::LayoutMismatch { object, layout } => format!(
                "the engine in process {pid} ({object}) is of another version: its counters have layout {layout}, \
                 this program knows {}. Use the `uringlet` that it came with",
                uringlet_sys::stats::LAYOUT_VERSION
            ),
            Self::Corrupt(what) => format!("the counters in process {pid} are corrupt: {what}"),
            Self::Trace(text) => text.clone(),
            Self::Os(text) => format!("process {pid}: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_names_the_process() {
        let mismatch = StatError::LayoutMismatch { object: "/x.so".into(), layout: 9 };
        for error in [
            StatError::NoProcess,
            StatError::PermissionDenied,
            StatError::NoEngine,
            mismatch,
            StatError::Corrupt("size"),
            StatError::Os("x".into()),
        ] {
            assert!(error.message(4711).contains("4711"), "{error:?}");
        }
    }
}
