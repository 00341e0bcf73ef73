//! The engines that are compared.

use crate::bench::tools::Attachment;

/// What executes the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum WriteEngine {
    /// The kernel's io_uring
    Kernel,
    /// uringlet with its default mode
    Adaptive,
    /// uringlet, `uringlet run --mode=uringlet`
    Uringlet,
    /// uringlet, `uringlet run --mode=workers`
    Workers,
    /// Synchronous pwrite(2)
    Psync,
    /// Linux AIO
    Libaio,
    /// glibc's aio_write(3)
    Posixaio,
}

impl WriteEngine {
    pub(super) const ALL: [Self; 7] =
        [Self::Kernel, Self::Adaptive, Self::Uringlet, Self::Workers, Self::Psync, Self::Libaio, Self::Posixaio];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Kernel => "kernel's ring",
            Self::Adaptive => "adaptive (default)",
            Self::Uringlet => "uringlet mode",
            Self::Workers => "worker-only",
            Self::Psync => "psync",
            Self::Libaio => "libaio",
            Self::Posixaio => "posixaio",
        }
    }

    pub(super) fn attachment(self) -> Attachment {
        match self {
            Self::Adaptive => Attachment::Attached(&["--mode=adaptive"]),
            Self::Uringlet => Attachment::Attached(&["--mode=uringlet"]),
            Self::Workers => Attachment::Attached(&["--mode=workers"]),
            _ => Attachment::Plain,
        }
    }

    /// The worker's `--via` parameter.
    pub(super) fn via(self) -> &'static str {
        match self {
            Self::Psync => "pwrite",
            Self::Libaio => "libaio",
            Self::Posixaio => "posixaio",
            _ => "ring",
        }
    }

    /// fio's `ioengine` parameter.
    pub(super) fn ioengine(self) -> &'static str {
        match self {
            Self::Psync => "psync",
            Self::Libaio => "libaio",
            Self::Posixaio => "posixaio",
            _ => "io_uring",
        }
    }

    pub(super) fn has_ring(self) -> bool {
        self.via() == "ring"
    }
}
