//! The expected content of a file, byte by byte.

use crate::op::{FileOp, MAX_SIZE};

/// A file as it must be once every submitted operation is done. Bytes behind its end are zero, so
/// that growing needs no extra step.
#[derive(Debug)]
pub(crate) struct FileModel {
    bytes: Box<[u8]>,
    pub(crate) size: u64,
    /// The position of the plain descriptor.
    pub(crate) position: u64,
}

impl FileModel {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; MAX_SIZE as usize].into(), size: 0, position: 0 }
    }

    pub(crate) fn content(&self) -> &[u8] {
        &self.bytes[..self.size as usize]
    }

    /// The bytes that a read must return.
    pub(crate) fn expected(&self, off: u64, len: u64) -> &[u8] {
        let from = off.min(self.size);
        &self.bytes[from as usize..(off + len).min(self.size) as usize]
    }

    pub(crate) fn write(&mut self, off: u64, data: &[u8]) {
        let end = off + data.len() as u64;
        self.bytes[off as usize..end as usize].copy_from_slice(data);
        self.size = self.size.max(end);
    }

    pub(crate) fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.bytes[size as usize..self.size as usize].fill(0);
        }
        self.size = size;
    }

    pub(crate) fn allocate(&mut self, off: u64, len: u64, mode: i32) {
        let (from, to, size) = (off as usize, (off + len) as usize, self.size as usize);
        if mode & libc::FALLOC_FL_COLLAPSE_RANGE != 0 {
            self.bytes.copy_within(to..size, from);
            self.truncate(self.size - len);
            return;
        }
        if mode & libc::FALLOC_FL_INSERT_RANGE != 0 {
            self.bytes.copy_within(from..size, to);
            self.bytes[from..to].fill(0);
            self.size += len;
            return;
        }
        if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0 {
            self.bytes[from..to].fill(0);
        }
        if mode & libc::FALLOC_FL_KEEP_SIZE == 0 {
            self.size = self.size.max(off + len);
        }
    }

    /// The range that an operation writes, if it writes.
    pub(crate) fn write_range(&self, op: &FileOp) -> Option<(u64, u64)> {
        match *op {
            FileOp::Write { off, len, .. } | FileOp::DirectWrite { off, len } | FileOp::MapWrite { off, len } => Some((off, len)),
            FileOp::WriteAtPosition { len } => Some((self.position, len)),
            FileOp::Append { len, .. } => Some((self.size, len)),
            _ => None,
        }
    }

    /// The range that an operation reads, if it reads.
    pub(crate) fn read_range(&self, op: &FileOp) -> Option<(u64, u64)> {
        match *op {
            FileOp::Read { off, len, .. } | FileOp::DirectRead { off, len } | FileOp::MapRead { off, len } => Some((off, len)),
            FileOp::ReadAtPosition { len } => Some((self.position, len)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(text: &[u8]) -> FileModel {
        let mut model = FileModel::new();
        model.write(0, text);
        model
    }

    #[test]
    fn truncated_bytes_read_as_zero_after_growing() {
        let mut m = model(b"abcdef");
        m.truncate(2);
        m.truncate(4);
        assert_eq!(m.content(), b"ab\0\0");
        m.write(6, b"x");
        assert_eq!(m.content(), b"ab\0\0\0\0x");
    }

    #[test]
    fn collapse_and_insert_move_the_bytes_behind() {
        let mut m = model(b"abcdef");
        m.allocate(1, 2, libc::FALLOC_FL_COLLAPSE_RANGE);
        assert_eq!(m.content(), b"adef");
        m.allocate(1, 2, libc::FALLOC_FL_INSERT_RANGE);
        assert_eq!(m.content(), b"a\0\0def");
        m.allocate(4, 4, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE);
        assert_eq!(m.content(), b"a\0\0d\0\0");
        m.allocate(4, 4, 0);
        assert_eq!(m.size, 8);
    }

    #[test]
    fn reads_end_with_the_file() {
        let m = model(b"abcdef");
        assert_eq!(m.expected(4, 100), b"ef");
        assert_eq!(m.expected(40, 100), b"");
    }
}
