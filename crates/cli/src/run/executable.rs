//! Checks before the start whether a program can be run, and whether it can be attached.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf::{EM_X86_64, FileHeader64, PT_INTERP};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use rustix::fs::{StatVfsMountFlags, getxattr, statvfs};
use rustix::process::{getegid, geteuid, getuid};

use super::error::RunError;
use super::lookup::is_executable;

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o0010;
const ANY_EXECUTE: u32 = 0o0111;
/// Class and byte order of an ELF file: 64 bits, little-endian.
const NATIVE: [u8; 2] = [2, 1];
/// The kernel follows this many interpreters in a row.
const MAX_INTERPRETERS: usize = 5;

/// What is executed for a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The program, or the last interpreter of a script.
    pub(crate) file: PathBuf,
    /// There is no dynamic linker that would preload: `liburinglet.so` loads it.
    pub(super) is_static: bool,
    /// What execve(2) puts before the arguments of a script: each interpreter with its argument,
    /// and the script's path.
    pub(super) interpreters: Vec<OsString>,
    /// Why it runs without being attached, if so, and what to do.
    pub(crate) why_not: Option<String>,
}

/// What one file is.
enum Kind {
    /// Its interpreter, and the argument for that.
    Script(PathBuf, Option<OsString>),
    Dynamic,
    Static,
    /// Nothing can be put into it: why, and what to do.
    Unattachable(&'static str),
}

/// Checks `program` and, for a script, its interpreter.
pub(super) fn check(program: &Path) -> Result<Target, RunError> {
    let mut target = Target { file: program.to_path_buf(), is_static: false, interpreters: Vec::new(), why_not: None };
    for _ in 0..MAX_INTERPRETERS {
        match check_file(&target.file)? {
            Kind::Script(interpreter, argument) => {
                let before = [interpreter.clone().into_os_string()].into_iter().chain(argument);
                // The script's path takes the place of its own name.
                let script = target.interpreters.is_empty().then(|| program.as_os_str().to_owned());
                target.interpreters.splice(0..0, before.chain(script));
                target.file = interpreter;
            }
            Kind::Unattachable(reason) => {
                let why_not = Some(format!("{} {reason}", target.file.display()));
                return Ok(Target { why_not, ..target });
            }
            kind => return Ok(Target { is_static: matches!(kind, Kind::Static), ..target }),
        }
    }
    Err(RunError::not_runnable(format_args!("{}: too many levels of script interpreters", program.display())))
}

/// Checks one file.
fn check_file(path: &Path) -> Result<Kind, RunError> {
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
        return Err(refuse(why_not_executable(path, &metadata)));
    }
    // A program that can be executed but not read is left to the kernel's checks.
    let Ok(mut file) = File::open(path) else { return Ok(Kind::Dynamic) };
    let mut head = Vec::new();
    if (&mut file).take(256).read_to_end(&mut head).is_err() {
        return Ok(Kind::Dynamic);
    }
    if head.starts_with(b"#!") {
        return Ok(interpreter(&head).map_or(Kind::Dynamic, |(interpreter, argument)| Kind::Script(interpreter, argument)));
    }
    if !head.starts_with(b"\x7fELF") {
        return Ok(Kind::Dynamic);
    }
    let kind = elf_kind(path, file, &head).map_err(|why| refuse(&why))?;
    Ok(gained_privileges(path, &metadata).map_or(kind, Kind::Unattachable))
}

/// Why the kernel would not execute a file that is there.
fn why_not_executable(path: &Path, metadata: &Metadata) -> &'static str {
    let is_mounted_noexec = || statvfs(path).is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::NOEXEC));
    if metadata.is_file() && metadata.mode() & ANY_EXECUTE != 0 && is_mounted_noexec() {
        return "lies on a file system that is mounted with noexec; copy it to another one";
    }
    "is not executable; if it is a program, run chmod +x on it"
}

/// The interpreter of a script and its one argument, from the first line.
fn interpreter(head: &[u8]) -> Option<(PathBuf, Option<OsString>)> {
    let line = head[2..].split(|&b| b == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|b| b" \t".contains(b)).unwrap_or(line.len());
    let (name, argument) = (&line[..end], line[end..].trim_ascii());
    let argument = (!argument.is_empty()).then(|| OsStr::from_bytes(argument).to_owned());
    (!name.is_empty()).then(|| (PathBuf::from(OsStr::from_bytes(name)), argument))
}

/// Why nothing is put into a program that gains privileges when it is executed.
fn gained_privileges(path: &Path, metadata: &Metadata) -> Option<&'static str> {
    let mode = metadata.mode();
    if mode & SET_USER != 0 && metadata.uid() != geteuid().as_raw() {
        return Some("is set-uid: the dynamic linker preloads nothing into it. Run uringlet as the user that owns it");
    }
    let set_group = mode & SET_GROUP != 0 && mode & GROUP_EXECUTE != 0;
    if set_group && metadata.gid() != getegid().as_raw() {
        return Some("is set-gid: the dynamic linker preloads nothing into it. Run a copy without the set-gid bit");
    }
    let has_capabilities = || getxattr(path, "security.capability", &mut [0_u8; 64]).is_ok();
    if !getuid().is_root() && has_capabilities() {
        return Some("has file capabilities: the dynamic linker preloads nothing into it. Run a copy (cp does not copy them)");
    }
    None
}

/// Whether an ELF file has a dynamic linker that preloads.
fn elf_kind(path: &Path, file: File, head: &[u8]) -> Result<Kind, Cow<'static, str>> {
    const TRUNCATED: &str = "is a truncated ELF file; install it again";
    const DAMAGED: &str = "is a damaged ELF file; install it again";
    // The kernel runs 32-bit programs, and others by an interpreter (binfmt_misc).
    const FOREIGN: Kind = Kind::Unattachable("is built for another architecture; uringlet attaches to 64-bit x86 programs");
    if head.len() < size_of::<FileHeader64<LittleEndian>>() {
        return Err(TRUNCATED.into());
    }
    let data = ReadCache::new(file);
    let identity: [u8; 3] = [head[4], head[5], head[6]];
    if !matches!(identity, [1 | 2, 1 | 2, 1]) {
        return Err(DAMAGED.into());
    }
    if identity[..2] != NATIVE {
        return Ok(FOREIGN);
    }
    let header = FileHeader64::<LittleEndian>::parse(&data).map_err(|_| DAMAGED)?;
    if header.e_machine(LittleEndian) != EM_X86_64 {
        return Ok(FOREIGN);
    }
    let segments = header.program_headers(LittleEndian, &data).map_err(|_| TRUNCATED)?;
    let interp = segments.iter().find(|segment| segment.p_type(LittleEndian) == PT_INTERP);
    let linker = interp.and_then(|segment| segment.interpreter(LittleEndian, &data).ok().flatten());
    if let Some(linker) = linker.map(|name| Path::new(OsStr::from_bytes(name))).filter(|linker| !linker.exists()) {
        return Err(format!("needs the dynamic linker {}, which does not exist here; install its libc", linker.display()).into());
    }
    let is_dynamic = interp.is_some() || is_dynamic_linker(path);
    Ok(if is_dynamic { Kind::Dynamic } else { Kind::Static })
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
        let read = |text: &str| interpreter(text.as_bytes());
        let plain = |path: &str| Some((PathBuf::from(path), None));
        assert_eq!(read("#!/bin/sh\nexit"), plain("/bin/sh"));
        assert_eq!(read("#! /usr/bin/env  -S x \n"), Some(("/usr/bin/env".into(), Some("-S x".into()))));
        assert_eq!(read("#!\t/bin/sh"), plain("/bin/sh"));
        assert_eq!(read("#!\n/bin/sh"), None);
    }
}
