//! What the program's file says.

use std::path::{Path, PathBuf};

use object::elf::{ET_DYN, FileHeader64, PT_INTERP, SHT_SYMTAB, STT_FUNC};
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use object::{LittleEndian, SymbolIndex};

/// The program that is executed.
#[derive(Debug, Default)]
pub(super) struct ProgramFile {
    /// The dynamic linker that starts it.
    pub(super) linker: Option<PathBuf>,
    /// In words.
    pub(super) kind: &'static str,
}

/// Reads the headers. A file that cannot be read is only named so.
pub(super) fn inspect(path: &Path) -> ProgramFile {
    let unknown = ProgramFile { linker: None, kind: "unreadable" };
    std::fs::read(path).ok().and_then(|data| headers(&data)).unwrap_or(unknown)
}

fn headers(data: &[u8]) -> Option<ProgramFile> {
    const ENDIAN: LittleEndian = LittleEndian;
    let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
    let segments = header.program_headers(ENDIAN, data).ok()?;
    let interp = segments.iter().find(|segment| segment.p_type(ENDIAN) == PT_INTERP);
    let linker = interp.and_then(|segment| segment.interpreter(ENDIAN, data).ok().flatten());
    let sections = header.sections(ENDIAN, data).ok();
    let is_go = sections.is_some_and(|sections| sections.section_by_name(ENDIAN, b".go.buildinfo").is_some());
    let kind = match (linker.is_some(), is_go, header.e_type(ENDIAN) == ET_DYN) {
        (true, true, _) => "dynamic, Go with cgo",
        (true, false, _) => "dynamic",
        (false, true, _) => "static, Go",
        (false, false, true) => "static-PIE",
        (false, false, false) => "static",
    };
    let linker = linker.map(|name| PathBuf::from(String::from_utf8_lossy(name).into_owned()));
    Some(ProgramFile { linker, kind })
}

/// A function of an object's file: its address range, and its name.
pub(super) struct Function {
    start: u64,
    end: u64,
    name: String,
}

/// The functions of an object, if its file has a symbol table.
pub(super) fn functions(path: &Path) -> Vec<Function> {
    std::fs::read(path).ok().and_then(|data| read_functions(&data)).unwrap_or_default()
}

fn read_functions(data: &[u8]) -> Option<Vec<Function>> {
    const ENDIAN: LittleEndian = LittleEndian;
    let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
    let table = header.sections(ENDIAN, data).ok()?.symbols(ENDIAN, data, SHT_SYMTAB).ok()?;
    let indices = (0..table.len()).map(SymbolIndex);
    let function = |index| {
        let symbol = table.symbol(index).ok().filter(|symbol| symbol.st_type() == STT_FUNC)?;
        let name = String::from_utf8_lossy(table.symbol_name(ENDIAN, symbol).ok()?).into_owned();
        let start = symbol.st_value(ENDIAN);
        Some(Function { start, end: start.saturating_add(symbol.st_size(ENDIAN)), name })
    };
    Some(indices.filter_map(function).collect())
}

/// The name of the function that an address lies in.
pub(super) fn name_at(functions: &[Function], address: u64) -> Option<&str> {
    functions.iter().find(|function| (function.start..function.end).contains(&address)).map(|function| function.name.as_str())
}
