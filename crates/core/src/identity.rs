//! With whose rights a request runs.

/// The threads that have another identity now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityScope {
    /// Only the calling thread's: a system call.
    Thread,
    /// That of all threads of the process: libc's setuid(3) and its kin, a filter with TSYNC.
    Process,
}
