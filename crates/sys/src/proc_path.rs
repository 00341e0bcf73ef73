//! Paths in /proc.

/// `/proc/self/fd/N`, NUL-terminated.
pub(crate) struct ProcPath([u8; 32], usize);

impl ProcPath {
    pub(crate) fn of(fd: i32) -> Self {
        const PREFIX: &[u8] = b"/proc/self/fd/";
        let mut path = Self([0; 32], PREFIX.len());
        path.0[..PREFIX.len()].copy_from_slice(PREFIX);
        let mut digits = [0_u8; 10];
        let mut n = fd as u32;
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
        path.1 += count + 1;
        path
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}
