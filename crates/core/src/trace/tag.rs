//! What a request keeps for a tracer.

use uringlet_sys::trace::road;

/// The request's number in its ring, and the ways it went (`road`): one word, for a request has no
/// room for more.
///
/// Numbers come again after 2^24 requests of a ring. The tracer tells an older request that is
/// still in flight from a newer one by opcode and user_data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TraceTag(u32);

const ROAD_BITS: u32 = 8;

impl TraceTag {
    /// Of a request that was submitted without a tracer.
    pub(crate) const NONE: Self = Self(0);

    /// The tag of this number, which is never 0.
    pub(super) const fn numbered(number: u32) -> Self {
        let number = number << ROAD_BITS;
        Self(if number == 0 { 1 << ROAD_BITS } else { number })
    }

    pub(super) const fn number(self) -> u32 {
        self.0 >> ROAD_BITS
    }

    pub(super) const fn road(self) -> u8 {
        self.0 as u8
    }

    /// The request's number and the ways it went.
    #[inline(always)]
    pub(crate) const fn parts(self) -> (u32, u8) {
        (self.number(), self.road())
    }

    /// Whether something is done to the request on purpose.
    #[inline(always)]
    pub(crate) const fn is_injected(self) -> bool {
        self.0 & road::INJECTED as u32 != 0
    }

    /// The request goes this way, too.
    #[inline]
    pub(crate) const fn by(self, road: u8) -> Self {
        Self(self.0 | road as u32)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_around_none() {
        let last = TraceTag::numbered((1 << 24) - 1);
        assert!(last.number() != 0 && TraceTag::NONE.by(road::COMMAND).number() == 0);
        assert_eq!(TraceTag::numbered(last.number() + 1).number(), 1);
        let both = last.by(road::POLL).by(road::IO_WQ);
        assert_eq!((both.number(), both.road()), (last.number(), road::POLL | road::IO_WQ));
    }
}
