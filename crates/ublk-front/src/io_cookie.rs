//! The place of one device request in its client's command, packed into the request's cookie.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IoCookie {
    pub(crate) command: u16,
    pub(crate) is_read: bool,
    /// Offset from the command's first sector.
    pub(crate) start: u32,
    pub(crate) sectors: u32,
}

impl IoCookie {
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.command) << 49 | u64::from(self.is_read) << 48 | u64::from(self.start) << 24 | u64::from(self.sectors)
    }

    pub(crate) fn unpack(cookie: u64) -> Self {
        let low = |shift: u32| (cookie >> shift) as u32 & 0xff_ffff;
        Self { command: (cookie >> 49) as u16, is_read: cookie >> 48 & 1 == 1, start: low(24), sectors: low(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_survives_packing() {
        for io_cookie in [
            IoCookie { command: 255, is_read: true, start: 0xff_ffff, sectors: 1 },
            IoCookie { command: 0, is_read: false, start: 0, sectors: 0x7f_ffff },
        ] {
            assert_eq!(IoCookie::unpack(io_cookie.pack()), io_cookie);
        }
    }
}
