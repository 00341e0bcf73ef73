//! A hash of one number.

/// Multiplies by the fraction of the golden ratio: the upper bits are well mixed.
pub(crate) const fn multiplicative_hash(value: u64) -> u64 {
    value.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
