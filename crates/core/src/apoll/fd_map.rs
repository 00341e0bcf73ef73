//! Values by descriptor number.

use crate::hash::multiplicative_hash;
use core::hash::{BuildHasherDefault, Hasher};
use hashbrown::HashMap;

/// See the module.
pub(crate) type FdMap<T> = HashMap<i32, T, BuildHasherDefault<FdHasher>>;

/// Multiplicative: consecutive numbers fall into different buckets.
#[derive(Debug, Default)]
pub(crate) struct FdHasher(u64);

impl Hasher for FdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = multiplicative_hash(self.0 ^ u64::from(byte)));
    }

    #[inline]
    fn write_i32(&mut self, fd: i32) {
        self.0 = multiplicative_hash(fd.cast_unsigned().into());
    }
}
