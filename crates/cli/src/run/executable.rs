//! Whether a program can be attached to, and if not, why not: said before it runs, because afterwards it would run without io_uring.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::getxattr;
use rustix::process::{getegid, geteuid, getuid};

use super::RunError;
use super::lookup::is_executable;

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o0010;
/// The kernel follows this many interpreters.
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
    Err(RunError::not_runnable(format_args!("{}: too many scripts interpret each other", program.display())))
}

/// Checks one file. A script's interpreter is what remains to be checked.
fn check_file(path: &Path) -> Result<Option<PathBuf>, RunError> {
    let refuse = |what: &str| RunError::not_runnable(format_args!("{}: {what}", path.display()));
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(RunError::not_found(format_args!("{}: no such file", path.display())));
        }
        Err(error) => return Err(refuse(&format!("cannot be looked at: {error}"))),
    };
    if metadata.is_dir() {
        return Err(refuse("is a directory"));
    }
    if !metadata.is_file() || !is_executable(path) {
        return Err(refuse("is not executable; chmod +x makes it so, if it is a program"));
    }
    // A program that may be executed but not read is checked by the kernel alone.
    let Ok(mut file) = File::open(path) else { return Ok(None) };
    let mut head = Vec::new();
    if (&mut file).take(256).read_to_end(&mut head).is_err() {
        return Ok(None);
    }
    if head.starts_with(b"#!") {
        return Ok(interpreter(&head));
    }
    if head.starts_with(b"\x7fELF") {
        check_elf(path, &file, &head).map_err(refuse)?;
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

/// One little-endian field of an ELF structure.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut value = [0; 8];
    value[..N].copy_from_slice(bytes.get(at..at + N)?);
    Some(u64::from_le_bytes(value))
}

/// Only a dynamically linked x86-64 program has a dynamic linker that preloads.
fn check_elf(path: &Path, file: &File, head: &[u8]) -> Result<(), &'static str> {
    const CLASS_64: u8 = 2;
    const LITTLE_ENDIAN: u8 = 1;
    const X86_64: u64 = 62;
    const TRUNCATED: &str = "is a truncated ELF file; install it again";
    if head.get(4..6) != Some(&[CLASS_64, LITTLE_ENDIAN]) || field::<2>(head, 18) != Some(X86_64) {
        return Err("is built for another architecture; uringlet attaches to 64-bit x86 programs");
    }
    let (Some(table), Some(size), Some(count)) = (field::<8>(head, 32), field::<2>(head, 54), field::<2>(head, 56)) else {
        return Err(TRUNCATED);
    };
    let mut headers = vec![0; (size * count) as usize];
    file.read_exact_at(&mut headers, table).map_err(|_| TRUNCATED)?;
    const PT_INTERP: u64 = 3;
    let interpreted = headers.chunks_exact((size as usize).max(1)).any(|header| field::<4>(header, 0) == Some(PT_INTERP));
    if interpreted || is_dynamic_linker(path) {
        Ok(())
    } else {
        Err("is statically linked: there is no dynamic linker to preload into it. Use a dynamically linked build of it")
    }
}

/// The dynamic linker itself may be run as a program, and preloads then.
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
