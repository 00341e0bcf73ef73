//! Checks before the start that a program can be attached: otherwise it would run without io_uring.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf::{EM_X86_64, FileHeader64, PT_INTERP};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use rustix::fs::getxattr;
use rustix::process::{getegid, geteuid, getuid};

use super::error::RunError;
use super::lookup::is_executable;

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o0010;
/// The kernel follows this many interpreters in a row.
const MAX_INTERPRETERS: usize = 5;

/// Checks `program` and, for a script, its interpreter.
pub(super) fn check(program: &Path) -> Result<(), RunError> {
    let mut file = program.to_path_buf();
    for _ in 0..MAX_INTERPRETERS {
        match check_file(&file)? {
            Some(interpreter) => file = interpreter,
            None => return Ok(()),
        }
    }
    Err(RunError::not_runnable(format_args!("{}: too many levels of script interpreters", program.display())))
}

/// Checks one file. Returns the interpreter of a script, which is to be checked next.
fn check_file(path: &Path) -> Result<Option<PathBuf>, RunError> {
    let refuse = |what: &str| RunError::not_runnable(format_args!("{}: {what}", path.display()));
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(RunError::not_found(format_args!("{}: no such file", path.display())));
        }
        Err(error) => return Err(refuse(&format!("cannot be inspected: {error}"))),
    };
    if metadata.is_dir() {
        return Err(refuse("is a directory"));
    }
    if !metadata.is_file() || !is_executable(path) {
        return Err(refuse("is not executable; if it is a program, run chmod +x on it"));
    }
    // A program that can be executed but not read is left to the kernel's checks.
    let Ok(mut file) = File::open(path) else { return Ok(None) };
    let mut head = Vec::new();
    if (&mut file).take(256).read_to_end(&mut head).is_err() {
        return Ok(None);
    }
    if head.starts_with(b"#!") {
        return Ok(interpreter(&head));
    }
    if head.starts_with(b"\x7fELF") {
        check_elf(path, file, &head).map_err(refuse)?;
        check_privileges(path, &metadata).map_err(refuse)?;
    }
    Ok(None)
}

/// The interpreter of a script, from its first line.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head[2..].split(|&b| b == b'\n').next()?;
    let name = line.trim_ascii().split(|b| b" \t".contains(b)).next()?;
    (!name.is_empty()).then(|| PathBuf::from(std::ffi::OsStr::from_bytes(name)))
}

/// The dynamic linker preloads nothing into a program that gains privileges.
fn check_privileges(path: &Path, metadata: &Metadata) -> Result<(), &'static str> {
    let mode = metadata.mode();
    if mode & SET_USER != 0 && metadata.uid() != geteuid().as_raw() {
        return Err(
            "is set-uid: the dynamic linker preloads nothing into it. Run it without uringlet, or run uringlet as the user that owns it",
        );
    }
    let set_group = mode & SET_GROUP != 0 && mode & GROUP_EXECUTE != 0;
    if set_group && metadata.gid() != getegid().as_raw() {
        return Err(
            "is set-gid: the dynamic linker preloads nothing into it. Run it without uringlet, or run a copy without the set-gid bit",
        );
    }
    let has_capabilities = || getxattr(path, "security.capability", &mut [0_u8; 64]).is_ok();
    if !getuid().is_root() && has_capabilities() {
        return Err(
            "has file capabilities: the dynamic linker preloads nothing into it. Run it without uringlet, or run a copy (cp does not copy them)",
        );
    }
    Ok(())
}

/// Only a dynamically linked x86-64 program has a dynamic linker that preloads.
fn check_elf(path: &Path, file: File, head: &[u8]) -> Result<(), &'static str> {
    const TRUNCATED: &str = "is a truncated ELF file; install it again";
    const FOREIGN: &str = "is built for another architecture; uringlet attaches to 64-bit x86 programs";
    if head.len() < size_of::<FileHeader64<LittleEndian>>() {
        return Err(TRUNCATED);
    }
    let data = ReadCache::new(file);
    let header = FileHeader64::<LittleEndian>::parse(&data).map_err(|_| FOREIGN)?;
    if header.e_machine(LittleEndian) != EM_X86_64 {
        return Err(FOREIGN);
    }
    let segments = header.program_headers(LittleEndian, &data).map_err(|_| TRUNCATED)?;
    let is_dynamic = segments.iter().any(|segment| segment.p_type(LittleEndian) == PT_INTERP);
    if is_dynamic || is_dynamic_linker(path) {
        Ok(())
    } else {
        Err("is statically linked: there is no dynamic linker to preload into it. Use a dynamically linked build of it")
    }
}

/// The dynamic linker itself preloads when it is run as a program.
fn is_dynamic_linker(path: &Path) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.starts_with(b"ld-linux") || name.starts_with(b"ld-musl") || name.starts_with(b"ld-2.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_read_from_the_first_line() {
        let read = |text: &str| interpreter(text.as_bytes()).map(|p| p.display().to_string());
        assert_eq!(read("#!/bin/sh\nexit"), Some("/bin/sh".into()));
        assert_eq!(read("#! /usr/bin/env -S x\n"), Some("/usr/bin/env".into()));
        assert_eq!(read("#!\t/bin/sh"), Some("/bin/sh".into()));
        assert_eq!(read("#!\n/bin/sh"), None);
    }
}
