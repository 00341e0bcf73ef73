//! One request's place in the command of a client that it is a part of, packed into the device's cookie.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) key: u16,
    pub(crate) is_read: bool,
    /// From the command's beginning, sectors.
    pub(crate) at: u32,
    pub(crate) sectors: u32,
}

impl Piece {
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.key) << 49 | u64::from(self.is_read) << 48 | u64::from(self.at) << 24 | u64::from(self.sectors)
    }

    pub(crate) fn unpack(cookie: u64) -> Self {
        let low = |shift: u32| (cookie >> shift) as u32 & 0xff_ffff;
        Self { key: (cookie >> 49) as u16, is_read: cookie >> 48 & 1 == 1, at: low(24), sectors: low(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_survives_its_packing() {
        for piece in
            [Piece { key: 255, is_read: true, at: 0xff_ffff, sectors: 1 }, Piece { key: 0, is_read: false, at: 0, sectors: 0x7f_ffff }]
        {
            assert_eq!(Piece::unpack(piece.pack()), piece);
        }
    }
}
