//! Which function an address lies in, from the object's unwind tables: every compiler writes them,
//! and they distinguish code from data.

use core::ops::Range;

use super::object::LoadedObject;

/// DW_EH_PE encodings.
const PCREL_SDATA4: u8 = 0x1b;
const DATAREL_SDATA4: u8 = 0x3b;
const UDATA4: u8 = 0x03;

/// The search table of `.eh_frame_hdr`.
pub(super) struct Functions<'a> {
    object: &'a LoadedObject,
    header: u64,
    table: u64,
    count: u64,
}

impl<'a> Functions<'a> {
    pub(super) fn of(object: &'a LoadedObject) -> Option<Self> {
        let header = object.eh_frame_hdr?;
        // Version 1 in the encodings that every linker uses.
        let wanted = [1, PCREL_SDATA4, UDATA4, DATAREL_SDATA4];
        if object.field(header)? != wanted {
            return None;
        }
        let count = u64::from(object.u32_at(header + 8)?);
        Some(Self { object, header, table: header + 12, count })
    }

    fn relative(&self, at: u64) -> Option<u64> {
        Some(self.header.wrapping_add_signed(i64::from(self.object.u32_at(at)?.cast_signed())))
    }

    /// The function that contains `address`.
    pub(super) fn containing(&self, address: u64) -> Option<Range<u64>> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.relative(self.table + 8 * middle)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let entry = self.table + 8 * low.checked_sub(1)?;
        let start = self.relative(entry)?;
        let length = self.length(self.relative(entry + 4)?)?;
        let range = start..start.checked_add(length)?;
        range.contains(&address).then_some(range)
    }

    /// The function's length, from its frame description.
    fn length(&self, fde: u64) -> Option<u64> {
        // length, CIE pointer, start, length: the last two in the CIE's encoding.
        let cie = (fde + 4).checked_sub(u64::from(self.object.u32_at(fde + 4)?))?;
        match self.encoding(cie)? & 0x0f {
            // udata4, sdata4
            0x03 | 0x0b => Some(u64::from(self.object.u32_at(fde + 12)?)),
            // absptr, udata8, sdata8
            0x00 | 0x04 | 0x0c => self.object.u64_at(fde + 16),
            _ => None,
        }
    }

    /// The pointer encoding that a CIE's augmentation "zR" names. `None`: no usual function.
    fn encoding(&self, cie: u64) -> Option<u8> {
        let byte = |at: u64| self.object.field::<1>(at).map(|[b]| b);
        let augmentation = cie + 9;
        let mut at = augmentation;
        while byte(at)? != 0 {
            // A signal's return, which the tables let start a byte before its first instruction.
            if byte(at)? == b'S' {
                return None;
            }
            at += 1;
        }
        if byte(augmentation)? != b'z' {
            return Some(0);
        }
        at += 1;
        // Code alignment, data alignment, return register, length of the augmentation data.
        for _ in 0..4 {
            while byte(at)? & 0x80 != 0 {
                at += 1;
            }
            at += 1;
        }
        for letter in augmentation + 1.. {
            match byte(letter)? {
                b'R' => return byte(at),
                b'L' => at += 1,
                b'B' => {}
                b'P' => {
                    let size = match byte(at)? & 0x0f {
                        0x03 | 0x0b => 4,
                        0x00 | 0x04 | 0x0c => 8,
                        _ => return None,
                    };
                    at += 1 + size;
                }
                0 => return Some(0),
                _ => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::object::loaded;
    use super::*;

    #[test]
    fn functions_of_this_program_and_of_libc_are_found() {
        let mine = functions_of_this_program_and_of_libc_are_found as *const () as u64;
        let objects = loaded();
        let object = objects.iter().find(|o| o.contains(mine as usize)).expect("this program");
        let functions = Functions::of(object).expect("its table");
        assert_eq!(functions.containing(mine).expect("this function").start, mine);
        assert_eq!(functions.containing(mine + 1).expect("this function").start, mine);
        assert!(functions.containing(1).is_none());
        let write = crate::arch::weak_address!("write") as u64;
        let libc = objects.iter().find(|o| o.contains(write as usize)).expect("libc");
        assert_eq!(Functions::of(libc).expect("its table").containing(write).expect("write").start, write);
    }
}
