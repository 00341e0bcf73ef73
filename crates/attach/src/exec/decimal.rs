//! Numbers in paths and variables, without the heap.

/// The digits of a number.
pub(super) struct Decimal {
    digits: [u8; 20],
    first: usize,
}

impl Decimal {
    /// Of a descriptor; negative ones count as 0.
    pub(super) fn of(fd: i32) -> Self {
        Self::of_index(usize::try_from(fd).unwrap_or(0))
    }

    pub(super) fn of_index(mut number: usize) -> Self {
        let mut decimal = Self { digits: [b'0'; 20], first: 20 };
        loop {
            decimal.first -= 1;
            decimal.digits[decimal.first] = b"0123456789"[number % 10];
            number /= 10;
            if number == 0 {
                return decimal;
            }
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.digits[self.first..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_digits_are_there() {
        assert_eq!(Decimal::of(0).bytes(), b"0");
        assert_eq!(Decimal::of(-3).bytes(), b"0");
        assert_eq!(Decimal::of(1_203).bytes(), b"1203");
        assert_eq!(Decimal::of_index(usize::MAX).bytes(), b"18446744073709551615");
    }
}
