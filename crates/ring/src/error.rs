//! Why there is no ring.

use std::{fmt, io};

/// Why [`RingBuilder::build`](crate::RingBuilder::build) could not make a ring.
#[derive(Debug)]
#[non_exhaustive]
pub enum RingError {
    /// `URINGLET` is none of `kernel`, `engine`, `when-blocked`.
    Variable,
    /// No object is embedded in this program, and `URINGLET_LIB` is not set.
    NoObject,
    /// The object cannot be mapped.
    Object(io::Error),
    /// `URINGLET_LIB` names a file that is no `liburinglet.so` of this version.
    OtherObject,
    /// io_uring_setup(2) or the ring's mmap(2) has failed.
    Setup(io::Error),
}

impl RingError {
    fn cause(&self) -> Option<&io::Error> {
        match self {
            Self::Object(cause) | Self::Setup(cause) => Some(cause),
            _ => None,
        }
    }
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Variable => "URINGLET is none of kernel, engine, when-blocked",
            Self::NoObject => "this program was built without liburinglet.so: set URINGLET_LIB to its path",
            Self::Object(_) => "liburinglet.so cannot be mapped (URINGLET_LIB may name a file that can)",
            Self::OtherObject => "URINGLET_LIB names a file that is no liburinglet.so of this version",
            Self::Setup(_) => "the ring cannot be made",
        })?;
        self.cause().map_or(Ok(()), |cause| write!(f, ": {cause}"))
    }
}

impl std::error::Error for RingError {}

impl From<RingError> for io::Error {
    fn from(error: RingError) -> Self {
        let kind = error.cause().map_or(io::ErrorKind::Unsupported, io::Error::kind);
        Self::new(kind, error)
    }
}
