//! Paths in /proc.

/// `/proc/self/fd/N`, NUL-terminated.
pub(crate) struct ProcPath([u8; BYTES], usize);

const BYTES: usize = 48;

impl ProcPath {
    pub(crate) fn of(fd: i32) -> Self {
        Self::with(b"/proc/self/fd/", fd.cast_unsigned(), b"")
    }

    /// `/proc/self/task/N/syscall`, NUL-terminated.
    #[cfg(not(loom))]
    pub(crate) fn of_task(tid: u32) -> Self {
        Self::with(b"/proc/self/task/", tid, b"/syscall")
    }

    fn with(prefix: &[u8], number: u32, suffix: &[u8]) -> Self {
        let mut path = Self([0; BYTES], prefix.len());
        path.0[..prefix.len()].copy_from_slice(prefix);
        let mut digits = [0_u8; 10];
        let mut n = number;
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        let count = digits.len() - first;
        path.0[path.1..path.1 + count].copy_from_slice(&digits[first..]);
        path.1 += count;
        path.0[path.1..path.1 + suffix.len()].copy_from_slice(suffix);
        path.1 += suffix.len() + 1;
        path
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}
