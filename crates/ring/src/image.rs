//! Mapping and relocating `liburinglet.so`. It has no dependency, no thread-local storage and two
//! kinds of relocations, so a static program can do the dynamic linker's work for it. Its
//! constructor, which would attach the program, does not run.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use object::elf::{PF_R, PF_W, PF_X, PT_GNU_RELRO, PT_LOAD, PT_TLS, ProgramHeader64, R_X86_64_GLOB_DAT, R_X86_64_RELATIVE};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{LittleEndian, Object, ObjectSymbol, ObjectSymbolTable, Relocation, RelocationFlags, RelocationTarget};
use uringlet_sys::engine_calls::EngineCalls;
use uringlet_sys::linux::general::{MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_EXEC, PROT_NONE, PROT_READ, PROT_WRITE};
use uringlet_sys::{Errno, mm};

use crate::error::RingError;

const LITTLE: LittleEndian = LittleEndian;
const PAGE: usize = 4096;
const NO_FD: i32 = -1;
/// The symbol of libc that the object gets.
const ENVIRON: &[u8] = b"environ";

type Elf<'f> = ElfFile64<'f, LittleEndian>;
type Phdr = ProgramHeader64<LittleEndian>;

/// Maps the object in `file`, whose content is `bytes`. `environ` is the address of libc's variable
/// of that name, or 0.
pub(crate) fn load(file: &File, bytes: &[u8], environ: usize) -> Result<&'static EngineCalls, RingError> {
    let elf = Elf::parse(bytes).map_err(|_| RingError::OtherObject)?;
    let table = table_of(&elf).ok_or(RingError::OtherObject)?;
    let image = MappedObject::map(&elf, file).map_err(|errno| RingError::Object(io::Error::from_raw_os_error(errno.into_raw())))?;
    image.relocate(&elf, environ).ok_or(RingError::OtherObject)?;
    image.protect(&elf);
    let at = image.base + table.start;
    // SAFETY: the word is inside the image, which `table_of` has looked at, and is mapped.
    if unsafe { (at as *const usize).read() } != EngineCalls::LAYOUT {
        return Err(RingError::OtherObject);
    }
    std::mem::forget(image);
    // SAFETY: a table of this layout, as the object says, that stays mapped.
    Ok(unsafe { &*(at as *const EngineCalls) })
}

/// Where the object has its table. `None`: it is none of ours.
fn table_of(elf: &Elf<'_>) -> Option<Range<usize>> {
    let symbol = elf.dynamic_symbols().find(|symbol| symbol.name_bytes() == Ok(EngineCalls::SYMBOL.as_bytes()))?;
    let start = address(symbol.address());
    let range = start..start.checked_add(size_of::<EngineCalls>())?;
    let is_inside = |header: &&Phdr| place(header).is_some_and(|place| place.start <= range.start && range.end <= place.end);
    loads(elf).find(is_inside)?;
    let has_tls = elf.elf_program_headers().iter().any(|header| header.p_type(LITTLE) == PT_TLS);
    (!has_tls && start.is_multiple_of(align_of::<EngineCalls>())).then_some(range)
}

fn address(value: u64) -> usize {
    usize::from_ne_bytes(value.to_ne_bytes())
}

fn loads<'e>(elf: &'e Elf<'_>) -> impl Iterator<Item = &'e Phdr> {
    elf.elf_program_headers().iter().filter(|header| header.p_type(LITTLE) == PT_LOAD)
}

/// What a segment occupies. `None`: it is no segment of an object that can be mapped.
fn place(header: &Phdr) -> Option<Range<usize>> {
    let start = address(header.p_vaddr(LITTLE));
    let is_fit = header.p_filesz(LITTLE) <= header.p_memsz(LITTLE);
    is_fit.then_some(start..start.checked_add(address(header.p_memsz(LITTLE)))?)
}

/// The object, mapped. Unmapped when dropped.
struct MappedObject {
    base: usize,
    len: usize,
}

impl MappedObject {
    fn map(elf: &Elf<'_>, file: &File) -> Result<Self, Errno> {
        let ends = loads(elf).map(|header| place(header).map(|place| place.end));
        let end = ends.reduce(|a, b| Some(a?.max(b?))).flatten().ok_or(Errno::ENOEXEC)?;
        let len = end.checked_next_multiple_of(PAGE).ok_or(Errno::ENOEXEC)?;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base = unsafe { mm::map(0, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, NO_FD, 0) }?;
        let image = Self { base, len };
        loads(elf).try_for_each(|header| image.map_segment(header, file))?;
        Ok(image)
    }

    fn map_segment(&self, header: &Phdr, file: &File) -> Result<(), Errno> {
        let place = place(header).ok_or(Errno::ENOEXEC)?;
        let first = place.start / PAGE * PAGE;
        let file_end = place.start + address(header.p_filesz(LITTLE));
        let offset = header.p_offset(LITTLE).checked_sub((place.start - first) as u64).ok_or(Errno::ENOEXEC)?;
        let protection = protection(header);
        let flags = MAP_PRIVATE | MAP_FIXED;
        let file_pages = file_end.next_multiple_of(PAGE);
        // SAFETY: inside the reserved addresses.
        unsafe { mm::map(self.base + first, file_end - first, protection, flags, file.as_raw_fd(), offset) }?;
        if place.end > file_end && protection & PROT_WRITE != 0 {
            let zeros = file_pages.min(place.end) - file_end;
            // SAFETY: the rest of the last page, which is mapped writable.
            unsafe { ((self.base + file_end) as *mut u8).write_bytes(0, zeros) };
        }
        if place.end > file_pages {
            // SAFETY: as above.
            unsafe { mm::map(self.base + file_pages, place.end - file_pages, protection, flags | MAP_ANONYMOUS, NO_FD, 0) }?;
        }
        Ok(())
    }

    /// `None`: the object has relocations that ours has not.
    fn relocate(&self, elf: &Elf<'_>, environ: usize) -> Option<()> {
        for (offset, relocation) in elf.dynamic_relocations()? {
            let at = address(offset);
            let is_writable = |header: &Phdr| {
                protection(header) & PROT_WRITE != 0
                    && place(header).is_some_and(|place| place.contains(&at) && place.end - at >= size_of::<usize>())
            };
            if !loads(elf).any(is_writable) {
                return None;
            }
            let value = self.value(elf, &relocation, environ)?;
            // SAFETY: a word of a writable segment of the image, which nobody uses yet.
            unsafe { ((self.base + at) as *mut usize).write_unaligned(value) };
        }
        Some(())
    }

    /// What a relocation puts into its word.
    fn value(&self, elf: &Elf<'_>, relocation: &Relocation, environ: usize) -> Option<usize> {
        let RelocationFlags::Elf { r_type } = relocation.flags() else { return None };
        match (r_type, relocation.target()) {
            (R_X86_64_RELATIVE, _) => Some(self.base.wrapping_add_signed(isize::try_from(relocation.addend()).ok()?)),
            (R_X86_64_GLOB_DAT, RelocationTarget::Symbol(index)) => {
                let symbol = elf.dynamic_symbol_table()?.symbol_by_index(index).ok()?;
                Some(match symbol.name_bytes() {
                    _ if symbol.is_definition() => self.base + address(symbol.address()),
                    Ok(ENVIRON) => environ,
                    // A function of libc for attached programs: there is none.
                    _ => 0,
                })
            }
            _ => None,
        }
    }

    /// What was written once becomes read-only. Where that is denied it stays as it is.
    fn protect(&self, elf: &Elf<'_>) {
        for header in elf.elf_program_headers().iter().filter(|header| header.p_type(LITTLE) == PT_GNU_RELRO) {
            let Some(place) = place(header).filter(|place| place.end <= self.len) else { continue };
            let first = place.start / PAGE * PAGE;
            // SAFETY: the linker has put nothing else into these pages.
            let _ = unsafe { mm::protect(self.base + first, place.end / PAGE * PAGE - first, PROT_READ) };
        }
    }
}

impl Drop for MappedObject {
    fn drop(&mut self) {
        // SAFETY: nobody has learned of this mapping.
        let _ = unsafe { mm::unmap(self.base, self.len) };
    }
}

fn protection(header: &Phdr) -> u32 {
    let flags = header.p_flags(LITTLE);
    [(PF_R, PROT_READ), (PF_W, PROT_WRITE), (PF_X, PROT_EXEC)]
        .into_iter()
        .filter(|&(flag, _)| flags.contains(flag))
        .map(|(_, bit)| bit)
        .sum()
}
