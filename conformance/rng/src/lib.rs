//! Random numbers from a seed: the same sequence for the same seed on every machine.
//!
//! Seeds name scenarios and rounds in documents and reports, so the sequence must never change.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// `salt` is the program's own, so that two programs play different sequences for one seed.
    #[must_use]
    pub const fn new(seed: u64, salt: u64) -> Self {
        Self(seed ^ salt)
    }

    /// The next number of the sequence.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// One of `0..n`.
    pub const fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % n
    }

    /// True in `chance` of a hundred cases.
    pub const fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_one_sequence() {
        let mut rng = Rng::new(1, 0);
        let sequence: [u64; 3] = std::array::from_fn(|_| rng.next_u64());
        assert_eq!(sequence, [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67, 0xf893_a2ee_fb32_555e]);
        assert_ne!(Rng::new(2, 0).next_u64(), sequence[0]);
    }
}
