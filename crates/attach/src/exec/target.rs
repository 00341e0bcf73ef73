//! What execve(2) would start: found out as the kernel does, before the call.

use core::ffi::CStr;

use uringlet_sys::UserPtr;
use uringlet_sys::exec_file::{self, ExecFile, ExecPath};
use uringlet_sys::io::FileStat;
use uringlet_sys::linkage::{Linkage, linkage};
use uringlet_sys::linux::general::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, S_IFMT, S_IFREG, S_ISGID, S_ISUID, S_IXGRP};

use super::decimal::Decimal;
use super::room::Room;
use super::script::{self, HEAD_BYTES};
use crate::safe_read::ProgramReader;

/// The kernel follows this many scripts in a row.
const MAX_SCRIPTS: usize = 5;
/// Bytes of a path, with its NUL.
pub(super) const PATH_MAX: usize = 4096;
/// Holds the first line of a script, and mostly all program headers.
const BUFFER_BYTES: usize = 1024;

/// What would be started.
pub(super) enum ExecTarget {
    /// Nothing, or a program that gains privileges: the call is left as it is.
    Untouched,
    /// A program with a dynamic linker, or one of which nothing is known.
    Preloadable,
    /// A program that this object cannot be put into: its dynamic linker would complain.
    Foreign,
    /// A program that only the loader can attach to.
    Static(StaticTarget),
}

/// A static program, or a script for one.
pub(super) struct StaticTarget {
    /// The address of its path.
    pub(super) path: usize,
    /// What the kernel puts before a script's arguments, instead of the first one.
    prefix: [usize; 2 * MAX_SCRIPTS + 1],
    prefix_len: usize,
    /// The index of the script among them, after which the process is named; 0: after the program.
    pub(super) script: usize,
}

impl StaticTarget {
    fn push(&mut self, argument: usize) {
        if let Some(place) = self.prefix.get_mut(self.prefix_len) {
            *place = argument;
            self.prefix_len += 1;
        }
    }

    /// Addresses of the arguments that take the place of a script's first one; none if the target
    /// is no script.
    pub(super) fn prefix(&self) -> &[usize] {
        &self.prefix[..self.prefix_len]
    }
}

/// Finds out what is started.
pub(super) struct Examiner<'a, 'r> {
    pub(super) reader: &'a mut ProgramReader,
    pub(super) room: &'a mut Room<'r>,
    /// This object's file.
    pub(super) library: Option<FileStat>,
    /// The file of the static program that this process runs.
    pub(super) own_program: Option<&'static CStr>,
    /// The addresses of arguments and environment.
    pub(super) arrays: [UserPtr; 2],
}

impl Examiner<'_, '_> {
    /// Examines the file that the program names.
    pub(super) fn examine(&mut self, file: ExecPath) -> ExecTarget {
        const KNOWN_FLAGS: u32 = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW;
        if file.flags & !KNOWN_FLAGS != 0 {
            return ExecTarget::Untouched;
        }
        let is_empty = if file.flags & AT_EMPTY_PATH == 0 { Some(false) } else { self.reader.byte(file.path.addr()).map(|byte| byte == 0) };
        let Some(is_empty) = is_empty else { return ExecTarget::Untouched };
        let target = self.examine_at(file, is_empty, 0);
        match target {
            ExecTarget::Static(mut target) if target.prefix_len > 0 => {
                // A script is named by the path that was given.
                let Some(name) = self.script_name(file, is_empty) else { return ExecTarget::Untouched };
                target.script = if is_empty { 0 } else { target.prefix_len };
                target.push(name);
                ExecTarget::Static(target)
            }
            target => target,
        }
    }

    fn examine_at(&mut self, file: ExecPath, is_empty: bool, depth: usize) -> ExecTarget {
        let Ok(stat) = file.stat() else { return ExecTarget::Untouched };
        if stat.mode & S_IFMT != S_IFREG {
            return ExecTarget::Untouched;
        }
        // Executable and not readable: nothing is known of it.
        let Ok(open) = file.open(is_empty) else { return ExecTarget::Preloadable };
        let mut buffer = [0; BUFFER_BYTES];
        let len = open.read(&mut buffer, 0).unwrap_or(0).min(BUFFER_BYTES);
        let head = &buffer[..len];
        if head.starts_with(b"#!") {
            return self.examine_script(file, &open, head, depth);
        }
        if !head.starts_with(b"\x7fELF") {
            return ExecTarget::Preloadable;
        }
        if gains_an_identity(stat.mode) {
            return ExecTarget::Untouched;
        }
        match linkage(head, stat.size, &|into, offset| open.read(into, offset).unwrap_or(0)) {
            Linkage::Odd => ExecTarget::Untouched,
            Linkage::Foreign => ExecTarget::Foreign,
            Linkage::Dynamic if self.is_library(&stat) => self.examine_own_program(depth),
            Linkage::Dynamic => ExecTarget::Preloadable,
            Linkage::Static => self.examine_static(file, is_empty, &open, &stat),
        }
    }

    /// Of a script, its interpreter.
    fn examine_script(&mut self, file: ExecPath, open: &ExecFile, head: &[u8], depth: usize) -> ExecTarget {
        let Some(interpreter) = script::interpreter(&head[..head.len().min(HEAD_BYTES)]) else { return ExecTarget::Preloadable };
        if depth == MAX_SCRIPTS {
            return ExecTarget::Untouched;
        }
        let Some(path) = self.room.text(&[interpreter.path]) else { return ExecTarget::Untouched };
        let argument = interpreter.argument.map(|argument| self.room.text(&[argument]));
        match self.examine_at(ExecPath::at(UserPtr::new(path)), false, depth + 1) {
            ExecTarget::Static(mut target) => {
                // The kernel reads the argument that it replaces.
                let arrays = (depth == 0).then_some(self.arrays);
                if !may_be_executed(file, open, arrays) || argument == Some(None) {
                    return ExecTarget::Untouched;
                }
                target.push(path);
                argument.flatten().into_iter().for_each(|argument| target.push(argument));
                ExecTarget::Static(target)
            }
            target => target,
        }
    }

    /// Whether it is this object: what `/proc/self/exe` leads to in a static program.
    fn is_library(&self, stat: &FileStat) -> bool {
        self.library.is_some_and(|library| (library.dev, library.ino) == (stat.dev, stat.ino))
    }

    fn examine_own_program(&mut self, depth: usize) -> ExecTarget {
        match self.own_program {
            Some(path) if depth < MAX_SCRIPTS => {
                self.examine_at(ExecPath::at(UserPtr::new(path.as_ptr().expose_provenance())), false, depth + 1)
            }
            _ => ExecTarget::Preloadable,
        }
    }

    fn examine_static(&mut self, file: ExecPath, is_empty: bool, open: &ExecFile, stat: &FileStat) -> ExecTarget {
        let is_plain = !open.has_capabilities() && exec_file::has_one_identity() && may_be_executed(file, open, None);
        let path = if is_plain { self.loader_path(file, is_empty, open, stat) } else { None };
        path.map_or(ExecTarget::Untouched, |path| {
            ExecTarget::Static(StaticTarget { path, prefix: [0; 2 * MAX_SCRIPTS + 1], prefix_len: 0, script: 0 })
        })
    }

    /// A path that means the same file to the loader, which has another `/proc/self` and other
    /// descriptors.
    fn loader_path(&mut self, file: ExecPath, is_empty: bool, open: &ExecFile, stat: &FileStat) -> Option<usize> {
        let mut given = [0; PATH_MAX];
        let given = self.string(file.path.addr(), &mut given)?;
        let is_lasting = !given.starts_with(b"/proc/") && !given.starts_with(b"/dev/");
        if !is_empty && is_lasting && (file.dir == AT_FDCWD || given.starts_with(b"/")) {
            return self.room.text(&[given]);
        }
        let mut real = [0; PATH_MAX];
        let len = open.path(&mut real).ok().filter(|&len| len < PATH_MAX)?;
        let path = self.room.text(&[&real[..len]])?;
        let found = ExecPath::at(UserPtr::new(path)).stat();
        if real.starts_with(b"/") && found.is_ok_and(|found| (found.dev, found.ino) == (stat.dev, stat.ino)) {
            return Some(path);
        }
        // A file without a path (memfd, deleted) can be reached by a descriptor that stays open.
        let is_inherited = is_empty && !exec_file::is_closed_by_exec(file.dir);
        if is_inherited { self.room.text(&[b"/proc/self/fd/", Decimal::of(file.dir).bytes()]) } else { None }
    }

    /// What the kernel calls a script in its arguments; `None`: its interpreter could not open it.
    fn script_name(&mut self, file: ExecPath, is_empty: bool) -> Option<usize> {
        let mut given = [0; PATH_MAX];
        let given = self.string(file.path.addr(), &mut given)?;
        if file.dir == AT_FDCWD && !is_empty || given.starts_with(b"/") {
            return Some(file.path.addr());
        }
        if exec_file::is_closed_by_exec(file.dir) {
            return None;
        }
        let separator: &[u8] = if is_empty { b"" } else { b"/" };
        self.room.text(&[b"/dev/fd/", Decimal::of(file.dir).bytes(), separator, given])
    }

    fn string<'b>(&mut self, at: usize, buffer: &'b mut [u8; PATH_MAX]) -> Option<&'b [u8]> {
        let len = self.reader.string(at, buffer);
        (len < PATH_MAX).then(|| &buffer[..len])
    }
}

/// Whether whoever executes a file of this mode becomes another user or group.
fn gains_an_identity(mode: u32) -> bool {
    mode & S_ISUID != 0 || (mode & S_ISGID != 0 && mode & S_IXGRP != 0)
}

/// Whether the kernel would execute the file. `exec_file::has_one_identity` is asked, too.
///
/// Differs: before Linux 6.14 a static program that is being written is started, instead of
/// ETXTBSY.
fn may_be_executed(file: ExecPath, open: &ExecFile, arrays: Option<[UserPtr; 2]>) -> bool {
    open.may_be_executed(arrays).unwrap_or_else(|| file.is_executable())
}
