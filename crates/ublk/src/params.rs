//! A device's parameters: the bytes that the server gave, validated, and read as limits.

use crate::frontend::BlockLimits;
use uringlet_abi::ublk::{ParamBasic, ParamDiscard, io, param};
use uringlet_sys::Errno;

/// `sizeof(struct ublk_params)` of Linux 6.12: header, basic, discard, devt, zoned.
pub(crate) const SIZE: usize = 112;
/// Length and types.
pub(crate) const HEADER: usize = 8;
const BASIC: usize = 8;
const DISCARD: usize = 40;
const DEVT: usize = 60;
const SUPPORTED_TYPES: u32 = param::BASIC | param::DISCARD | param::DEVT | param::ZONED;
const PAGE_SECTORS: u32 = 8;
const PAGE_SHIFT: u8 = 12;

/// `struct ublk_params` in its memory layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceParams {
    bytes: [u8; SIZE],
}

impl DeviceParams {
    pub(crate) const fn empty() -> Self {
        Self { bytes: [0; SIZE] }
    }

    /// Those of a record: the device numbers of another driver mean nothing.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub(crate) fn of_record(bytes: &[u8; SIZE], max_io_bytes: u32) -> Result<Self, Errno> {
        let mut given = Self { bytes: *bytes };
        given.set_types(given.types() & !param::DEVT);
        let mut params = Self::empty();
        params.set(&given.bytes, max_io_bytes).map(|()| params)
    }

    pub(crate) fn bytes(&self) -> &[u8; SIZE] {
        &self.bytes
    }

    fn array_at<const N: usize>(&self, at: usize) -> [u8; N] {
        core::array::from_fn(|i| self.bytes[at + i])
    }

    fn types(&self) -> u32 {
        u32::from_le_bytes(self.array_at(4))
    }

    fn set_types(&mut self, types: u32) {
        self.bytes[4..8].copy_from_slice(&types.to_le_bytes());
    }

    fn basic(&self) -> ParamBasic {
        ParamBasic::from_bytes(&self.array_at(BASIC))
    }

    fn discard(&self) -> ParamDiscard {
        ParamDiscard::from_bytes(&self.array_at(DISCARD))
    }

    pub(crate) fn has(&self, kind: u32) -> bool {
        self.types() & kind != 0
    }

    /// Applies SET_PARAMS: replaces the first bytes of the structure, keeps the rest.
    ///
    /// # Errors
    /// `EINVAL`, which clears all types; `EOPNOTSUPP` zones.
    pub(crate) fn set(&mut self, bytes: &[u8], max_io_bytes: u32) -> Result<(), Errno> {
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        self.set_types(self.types() & SUPPORTED_TYPES);
        self.check(max_io_bytes).inspect_err(|_| self.set_types(0))
    }

    fn check(&self, max_io_bytes: u32) -> Result<(), Errno> {
        if !self.has(param::BASIC) {
            return Err(Errno::EINVAL);
        }
        let basic = self.basic();
        let is_block = (9..=PAGE_SHIFT).contains(&basic.logical_bs_shift) && basic.logical_bs_shift <= basic.physical_bs_shift;
        if !is_block || !(PAGE_SECTORS..=max_io_bytes >> 9).contains(&basic.max_sectors) {
            return Err(Errno::EINVAL);
        }
        if self.has(param::DISCARD) {
            let discard = self.discard();
            if discard.max_discard_sectors != 0 && discard.max_discard_segments != 1 || discard.discard_granularity == 0 {
                return Err(Errno::EINVAL);
            }
        }
        if self.has(param::DEVT) {
            return Err(Errno::EINVAL);
        }
        if self.has(param::ZONED) { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
    }

    /// Sets the device numbers: of the char device and, if it is live, of the block device.
    pub(crate) fn set_devices(&mut self, char_device: (u32, u32), disk: (u32, u32)) {
        for (i, n) in [char_device.0, char_device.1, disk.0, disk.1].into_iter().enumerate() {
            let at = DEVT + i * 4;
            self.bytes[at..at + 4].copy_from_slice(&n.to_le_bytes());
        }
        self.set_types(self.types() | param::DEVT);
    }

    /// Sets the size, sectors.
    pub(crate) fn set_size(&mut self, sectors: u64) {
        let basic = ParamBasic { dev_sectors: sectors, ..self.basic() };
        self.bytes[BASIC..BASIC + ParamBasic::SIZE].copy_from_slice(&basic.to_bytes());
    }

    pub(crate) fn limits(&self) -> BlockLimits {
        let basic = self.basic();
        let discard = if self.has(param::DISCARD) { self.discard() } else { ParamDiscard::default() };
        let attr = |bit| basic.attrs & bit != 0;
        let shift = |bits: u8| 1_u32.checked_shl(u32::from(bits)).unwrap_or(0);
        BlockLimits {
            sectors: basic.dev_sectors,
            logical_block: shift(basic.logical_bs_shift),
            physical_block: shift(basic.physical_bs_shift),
            io_opt: if basic.io_opt_shift == 0 { 0 } else { shift(basic.io_opt_shift) },
            // The size of a slot.
            max_sectors: basic.max_sectors.min(1 << (io::TAG_SHIFT - 9)),
            max_discard: discard.max_discard_sectors,
            discard_granularity: discard.discard_granularity,
            max_write_zeroes: discard.max_write_zeroes_sectors,
            chunk_sectors: basic.chunk_sectors,
            is_read_only: attr(param::ATTR_READ_ONLY),
            has_cache: attr(param::ATTR_VOLATILE_CACHE),
            has_fua: attr(param::ATTR_FUA),
            is_rotational: attr(param::ATTR_ROTATIONAL),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::vec::Vec;

    const GOOD: ParamBasic = ParamBasic {
        attrs: param::ATTR_VOLATILE_CACHE,
        logical_bs_shift: 9,
        physical_bs_shift: 12,
        io_opt_shift: 12,
        io_min_shift: 9,
        max_sectors: 1024,
        chunk_sectors: 0,
        dev_sectors: 2048,
        virt_boundary_mask: 0,
    };

    pub(crate) fn encode(types: u32, basic: &ParamBasic, discard: &ParamDiscard) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((SIZE as u32).to_le_bytes());
        bytes.extend(types.to_le_bytes());
        bytes.extend(basic.to_bytes());
        bytes.extend(discard.to_bytes());
        bytes.resize(SIZE, 0);
        bytes
    }

    fn set(types: u32, basic: ParamBasic, discard: ParamDiscard) -> Result<(), Errno> {
        let mut params = DeviceParams::empty();
        let result = params.set(&encode(types, &basic, &discard), 1 << 20);
        assert_eq!(result.is_ok(), params.has(param::BASIC));
        result
    }

    #[test]
    fn parameters_are_validated_as_by_ublk_drv() {
        let none = ParamDiscard::default();
        let discard =
            ParamDiscard { discard_granularity: 4096, max_discard_sectors: 8, max_discard_segments: 1, ..ParamDiscard::default() };
        let both = param::BASIC | param::DISCARD;
        let (good, bad) = (Ok(()), Err(Errno::EINVAL));
        let cases = [
            ("good", set(param::BASIC, GOOD, none), good),
            ("no basic", set(param::DISCARD, GOOD, discard), bad),
            ("unknown kinds are forgotten", set(param::BASIC | 1 << 20, GOOD, none), good),
            ("only unknown kinds", set(1 << 20, GOOD, none), bad),
            ("block of 256", set(param::BASIC, ParamBasic { logical_bs_shift: 8, ..GOOD }, none), bad),
            ("block of 8192", set(param::BASIC, ParamBasic { logical_bs_shift: 13, physical_bs_shift: 13, ..GOOD }, none), bad),
            ("physical below logical", set(param::BASIC, ParamBasic { logical_bs_shift: 12, physical_bs_shift: 9, ..GOOD }, none), bad),
            ("requests of a page at least", set(param::BASIC, ParamBasic { max_sectors: 7, ..GOOD }, none), bad),
            ("of the buffer at most", set(param::BASIC, ParamBasic { max_sectors: 2049, ..GOOD }, none), bad),
            ("as large as the buffer", set(param::BASIC, ParamBasic { max_sectors: 2048, ..GOOD }, none), good),
            ("discard", set(both, GOOD, discard), good),
            ("discard without granule", set(both, GOOD, ParamDiscard { discard_granularity: 0, ..discard }), bad),
            ("two segments", set(both, GOOD, ParamDiscard { max_discard_segments: 2, ..discard }), bad),
            ("only zeroes", set(both, GOOD, ParamDiscard { max_discard_sectors: 0, max_discard_segments: 0, ..discard }), good),
            ("device numbers are not to be set", set(param::BASIC | param::DEVT, GOOD, none), bad),
            ("no zones", set(param::BASIC | param::ZONED, GOOD, none), Err(Errno::EOPNOTSUPP)),
        ];
        for (what, got, want) in cases {
            assert_eq!(got, want, "{what}");
        }
    }

    #[test]
    fn a_short_structure_changes_only_its_first_fields() {
        let mut params = DeviceParams::empty();
        params.set(&encode(param::BASIC, &GOOD, &ParamDiscard::default()), 1 << 20).unwrap();
        let other = encode(param::BASIC, &ParamBasic { max_sectors: 8, dev_sectors: 1, ..GOOD }, &ParamDiscard::default());
        // Up to max_sectors, without the size.
        params.set(&other[..20], 1 << 20).unwrap();
        assert_eq!((params.limits().max_sectors, params.limits().sectors), (8, 2048));
        params.set_size(77);
        assert_eq!((params.limits().sectors, params.limits().logical_block), (77, 512));
    }
}
