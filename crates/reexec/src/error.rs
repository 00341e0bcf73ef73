//! Why a program could not be attached.

use core::ffi::CStr;
use core::fmt;

/// Why [`init`](crate::init) could not attach the program, whose io_uring is blocked. Numbers are
/// those of `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InitError {
    /// Other threads run. They would end without notice.
    Threads,
    /// The program has gained privileges by its start (set-uid, file capabilities).
    Privileged,
    /// The program was executed again, and its code is still not attached: the dynamic linker has
    /// not loaded the object, or the system does not let code be changed.
    NotAttached,
    /// `URINGLET` is none of `kernel`, `engine`, `when-blocked`.
    Variable,
    /// No object is embedded in this program, and `URINGLET_LIB` is not set.
    NoObject,
    /// `URINGLET_LIB` is not the absolute path of a file, or has a colon, a space or a dollar sign.
    Library,
    /// No executable file can be made in memory, by memfd_create(2). `URINGLET_LIB` may name one.
    Memory(i32),
    /// /proc is not mounted, or cannot be read.
    Proc(i32),
    /// The static program's own file cannot be read.
    Unreadable(i32),
    /// execve(2) has failed.
    Execute(i32),
    /// uringlet does not run on this system: Linux on x86-64 is needed.
    Platform,
}

impl InitError {
    const ALL: [Self; 11] = [
        Self::Threads,
        Self::Privileged,
        Self::NotAttached,
        Self::Variable,
        Self::NoObject,
        Self::Library,
        Self::Memory(0),
        Self::Proc(0),
        Self::Unreadable(0),
        Self::Execute(0),
        Self::Platform,
    ];

    /// The error as `uringlet_init` returns it, positive: each has a number of its own.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::Privileged => 1,     // EPERM
            Self::NoObject => 2,       // ENOENT
            Self::Proc(_) => 6,        // ENXIO
            Self::Execute(_) => 8,     // ENOEXEC
            Self::Memory(_) => 12,     // ENOMEM
            Self::Unreadable(_) => 13, // EACCES
            Self::Threads => 16,       // EBUSY
            Self::Variable => 22,      // EINVAL
            Self::Platform => 38,      // ENOSYS
            Self::Library => 79,       // ELIBACC
            Self::NotAttached => 95,   // EOPNOTSUPP
        }
    }

    /// The text of [`code`](Self::code). `None`: no error has it.
    #[must_use]
    pub fn text_of(code: i32) -> Option<&'static CStr> {
        Self::ALL.into_iter().find(|error| error.code() == code).map(Self::text)
    }

    /// The errno of the system call that has failed, if that was the reason.
    #[must_use]
    pub const fn errno(self) -> Option<i32> {
        match self {
            Self::Memory(errno) | Self::Proc(errno) | Self::Unreadable(errno) | Self::Execute(errno) => Some(errno),
            _ => None,
        }
    }

    const fn text(self) -> &'static CStr {
        match self {
            Self::Threads => c"other threads run already: call init first in main",
            Self::Privileged => c"the program has gained privileges by its start",
            Self::NotAttached => c"the program was executed again, and its code may not be changed here",
            Self::Variable => c"URINGLET is none of kernel, engine, when-blocked",
            Self::NoObject => c"this program was built without liburinglet.so: set URINGLET_LIB to its path",
            Self::Library => c"URINGLET_LIB must be the absolute path of a file, without colon, space and dollar sign",
            Self::Memory(_) => c"memfd_create(2) makes no executable file: set URINGLET_LIB to the path of liburinglet.so",
            Self::Proc(_) => c"/proc cannot be read",
            Self::Unreadable(_) => c"the program is static, and its own file cannot be read",
            Self::Execute(_) => c"the program cannot be executed again",
            Self::Platform => c"uringlet needs Linux on x86-64",
        }
    }
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().to_str().unwrap_or_default())?;
        match self.errno() {
            Some(errno) => write!(f, " (errno {errno})"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for InitError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_a_code_and_a_text_of_its_own() {
        for error in InitError::ALL {
            assert_eq!(InitError::text_of(error.code()), Some(error.text()));
            let same = InitError::ALL.into_iter().filter(|other| other.text() == error.text());
            assert_eq!(same.count(), 1);
        }
        assert_eq!(InitError::text_of(0), None);
    }
}
