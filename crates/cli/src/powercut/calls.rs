//! What a call changes on the disk.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use uringlet_sys::Sysno;
use uringlet_sys::linux::general as linux;
use uringlet_sys::seccomp::{ArgTest, TrapRule, Verdict};
use uringlet_sys::seccomp_notify::AskedCall;

use super::disk::{Disk, split};
use super::folder::{Folder, Inode};
use super::tree::{DiskChange, FileContent, FileId};
use super::watched::{WatchedThread, named};

/// The calls of which the kernel asks.
pub(super) const RULES: &[TrapRule] = &[
    always(Sysno::write),
    always(Sysno::pwrite64),
    always(Sysno::writev),
    always(Sysno::pwritev),
    always(Sysno::pwritev2),
    always(Sysno::copy_file_range),
    always(Sysno::sendfile),
    always(Sysno::splice),
    always(Sysno::io_submit),
    always(Sysno::fsync),
    always(Sysno::fdatasync),
    always(Sysno::sync),
    always(Sysno::syncfs),
    when(Sysno::open, &[(1, ArgTest::AnyBit(MAKES), Verdict::Trap)]),
    when(Sysno::openat, &[(2, ArgTest::AnyBit(MAKES), Verdict::Trap)]),
    always(Sysno::openat2),
    always(Sysno::creat),
    always(Sysno::truncate),
    always(Sysno::ftruncate),
    always(Sysno::fallocate),
    always(Sysno::rename),
    always(Sysno::renameat),
    always(Sysno::renameat2),
    always(Sysno::unlink),
    always(Sysno::unlinkat),
    always(Sysno::rmdir),
    always(Sysno::mkdir),
    always(Sysno::mkdirat),
    always(Sysno::link),
    always(Sysno::linkat),
    always(Sysno::symlink),
    always(Sysno::symlinkat),
    when(Sysno::mmap, &[(3, ArgTest::Equals(linux::MAP_SHARED), Verdict::Trap)]),
];

/// `O_*` flags with which an open changes something.
const MAKES: u32 = linux::O_CREAT | linux::O_TRUNC;
/// A file may be so long, bytes.
const LONGEST: u64 = 1 << 30;
const CWD: i32 = linux::AT_FDCWD;

const fn always(nr: Sysno) -> TrapRule {
    TrapRule { nr, tests: &[], otherwise: Verdict::Trap }
}

const fn when(nr: Sysno, tests: &'static [(u32, ArgTest, Verdict)]) -> TrapRule {
    TrapRule { nr, tests, otherwise: Verdict::Allow }
}

/// What a call does to the disk.
#[derive(Debug)]
enum Effect {
    Change(DiskChange),
    /// The write is on the disk when it returns.
    Durable(DiskChange),
    Cover(FileId),
    CoverAll,
}

/// Follows the calls of a program.
#[derive(Debug)]
pub(super) struct CallFollower {
    root: PathBuf,
    pub(super) disk: Disk,
    inodes: HashMap<Inode, FileId>,
    /// Things that cannot be followed, each once.
    pub(super) warnings: Vec<String>,
}

/// A write into an open file.
struct FileWrite {
    fd: i32,
    /// `None`: at the file's position.
    at: Option<u64>,
    bytes: Vec<u8>,
    /// `RWF_*`
    flags: u32,
}

impl CallFollower {
    pub(super) fn new(folder: &Folder) -> Self {
        Self { root: folder.root().to_owned(), disk: folder.disk(), inodes: folder.inodes(), warnings: Vec::new() }
    }

    /// What a call does, in order. Empty: nothing to the disk.
    fn effects(&mut self, call: AskedCall) -> Vec<Effect> {
        let Some(nr) = Sysno::new(usize::try_from(call.nr).unwrap_or(usize::MAX)) else { return Vec::new() };
        let thread = WatchedThread(call.tid);
        let a = call.args;
        let fd = |n: usize| low(a[n]).cast_signed();
        match nr {
            Sysno::write => self.write(
                thread,
                FileWrite { fd: fd(0), at: None, bytes: self.of_ours(thread, fd(0), || thread.bytes(a[1], a[2])), flags: 0 },
            ),
            Sysno::pwrite64 => self.write(
                thread,
                FileWrite { fd: fd(0), at: Some(a[3]), bytes: self.of_ours(thread, fd(0), || thread.bytes(a[1], a[2])), flags: 0 },
            ),
            Sysno::writev => self.write(
                thread,
                FileWrite { fd: fd(0), at: None, bytes: self.of_ours(thread, fd(0), || thread.gather(a[1], a[2])), flags: 0 },
            ),
            Sysno::pwritev | Sysno::pwritev2 => {
                let flags = if nr == Sysno::pwritev2 { low(a[5]) } else { 0 };
                let at = Some(a[3]).filter(|&at| at != u64::MAX);
                self.write(thread, FileWrite { fd: fd(0), at, bytes: self.of_ours(thread, fd(0), || thread.gather(a[1], a[2])), flags })
            }
            Sysno::copy_file_range => self.copy(thread, (fd(0), a[1]), (fd(2), a[3]), a[4]),
            Sysno::sendfile => self.copy(thread, (fd(1), a[2]), (fd(0), 0), a[3]),
            Sysno::splice => self.cannot_follow(thread, fd(2), "splice(2) into a file"),
            Sysno::mmap => self.shared_mapping(thread, fd(4), low(a[2])),
            Sysno::io_submit => self.aio(thread, a[1], a[2]),
            Sysno::fsync | Sysno::fdatasync => self.open_file(thread, fd(0)).map(Effect::Cover).into_iter().collect(),
            Sysno::sync | Sysno::syncfs => vec![Effect::CoverAll],
            Sysno::ftruncate => self.open_file(thread, fd(0)).map(|file| resize(file, a[1])).into_iter().collect(),
            Sysno::truncate => self.found(thread.path_at(CWD, a[0])).map(|file| resize(file, a[1])).into_iter().collect(),
            Sysno::fallocate => self.fallocate(thread, fd(0), low(a[1]), a[2], a[3]),
            _ => self.names(thread, nr, a),
        }
    }

    /// Calls that change names.
    fn names(&mut self, thread: WatchedThread, nr: Sysno, a: [u64; 6]) -> Vec<Effect> {
        let fd = |n: usize| low(a[n]).cast_signed();
        let at = |directory: i32, address: u64| thread.path_at(directory, address);
        match nr {
            Sysno::open => self.open(at(CWD, a[0]), low(a[1])),
            Sysno::creat => self.open(at(CWD, a[0]), MAKES),
            Sysno::openat => self.open(at(fd(0), a[1]), low(a[2])),
            Sysno::openat2 => self.open(at(fd(0), a[1]), low(thread.word(a[2]).unwrap_or(0))),
            Sysno::rename => self.rename(at(CWD, a[0]), at(CWD, a[1]), 0),
            Sysno::renameat => self.rename(at(fd(0), a[1]), at(fd(2), a[3]), 0),
            Sysno::renameat2 => self.rename(at(fd(0), a[1]), at(fd(2), a[3]), low(a[4])),
            Sysno::unlink => self.remove(at(CWD, a[0]), false),
            Sysno::rmdir => self.remove(at(CWD, a[0]), true),
            Sysno::unlinkat => self.remove(at(fd(0), a[1]), low(a[2]) & linux::AT_REMOVEDIR != 0),
            Sysno::mkdir => self.make(at(CWD, a[0]), FileContent::Names(BTreeMap::new())),
            Sysno::mkdirat => self.make(at(fd(0), a[1]), FileContent::Names(BTreeMap::new())),
            Sysno::symlink => self.make(at(CWD, a[1]), FileContent::Link(thread.text(a[0]).unwrap_or_default().into())),
            Sysno::symlinkat => self.make(at(fd(1), a[2]), FileContent::Link(thread.text(a[0]).unwrap_or_default().into())),
            Sysno::link => self.link(at(CWD, a[0]), at(CWD, a[1])),
            Sysno::linkat => self.link(at(fd(0), a[1]), at(fd(2), a[3])),
            _ => Vec::new(),
        }
    }

    /// Whether a call is a write that must not wait. Whether it succeeds depends on time, and the
    /// program makes another one if not: then events would have other numbers in each run.
    pub(super) fn must_not_wait(&self, call: AskedCall) -> bool {
        let nr = Sysno::new(usize::try_from(call.nr).unwrap_or(usize::MAX));
        let is_such = nr == Some(Sysno::pwritev2) && low(call.args[5]) & linux::RWF_NOWAIT != 0;
        is_such && self.is_ours(WatchedThread(call.tid), low(call.args[0]).cast_signed())
    }

    /// Does to the disk what a call does. `may_apply` is asked if that is anything: then the call
    /// is an event.
    pub(super) fn follow(&mut self, call: AskedCall, may_apply: impl FnOnce() -> bool) {
        let effects = self.effects(call);
        if effects.is_empty() || !may_apply() {
            return;
        }
        for effect in effects {
            if let Effect::Change(change) | Effect::Durable(change) = &effect
                && change.end() > LONGEST
            {
                self.warn("a file of more than 1 GiB is not followed: it is kept in memory".to_owned());
                continue;
            }
            match effect {
                Effect::Change(change) => self.disk.change(change),
                Effect::Durable(change) => self.disk.change_for_certain(change),
                Effect::Cover(file) => self.disk.cover(file),
                Effect::CoverAll => self.disk.cover_all(),
            }
        }
    }

    /// The path within the directory.
    fn inside<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        path.strip_prefix(&self.root).ok()
    }

    fn found(&self, path: Option<PathBuf>) -> Option<FileId> {
        let path = WatchedThread::followed(path?);
        self.disk.live().find(self.inside(&path)?)
    }

    /// The file of a descriptor, if it is in the directory. One that has come there unseen is new.
    fn open_file(&mut self, thread: WatchedThread, fd: i32) -> Option<FileId> {
        let (path, metadata) = thread.open_file(fd)?;
        let inode = (metadata.dev(), metadata.ino());
        let Some(path) = named(&path) else { return self.inodes.get(&inode).copied() };
        let within = self.inside(path)?;
        let file = self.disk.live().find(within)?;
        self.inodes.insert(inode, file);
        Some(file)
    }

    /// The bytes of a write, which are read only if its file is in the directory.
    fn of_ours(&self, thread: WatchedThread, fd: i32, read: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
        if self.is_ours(thread, fd) { read() } else { Vec::new() }
    }

    fn is_ours(&self, thread: WatchedThread, fd: i32) -> bool {
        thread
            .open_file(fd)
            .is_some_and(|(path, metadata)| self.inside(&path).is_some() || self.inodes.contains_key(&(metadata.dev(), metadata.ino())))
    }

    fn write(&mut self, thread: WatchedThread, write: FileWrite) -> Vec<Effect> {
        let FileWrite { fd, at, bytes, flags } = write;
        if bytes.is_empty() {
            return Vec::new();
        }
        let Some(file) = self.open_file(thread, fd) else { return Vec::new() };
        let (position, open) = thread.position(fd).unwrap_or_default();
        let appends = open & linux::O_APPEND != 0 || flags & linux::RWF_APPEND != 0;
        let at = if appends { self.disk.len(file) } else { at.unwrap_or(position) };
        let change = DiskChange::Write { file, at, bytes };
        // O_SYNC has the bit of O_DSYNC, too.
        if open & linux::O_DSYNC != 0 {
            vec![Effect::Change(change), Effect::Cover(file)]
        } else if flags & (linux::RWF_DSYNC | linux::RWF_SYNC) != 0 {
            vec![Effect::Durable(change)]
        } else {
            vec![Effect::Change(change)]
        }
    }

    /// Offsets are addresses; 0: the file's position.
    fn copy(&mut self, thread: WatchedThread, from: (i32, u64), to: (i32, u64), len: u64) -> Vec<Effect> {
        let place = |(fd, address): (i32, u64)| if address == 0 { thread.position(fd).map(|(at, _)| at) } else { thread.word(address) };
        let Some(at) = place(from) else { return Vec::new() };
        let bytes = self.of_ours(thread, to.0, || thread.file_bytes(from.0, at, len));
        let at = if to.1 == 0 { None } else { thread.word(to.1) };
        self.write(thread, FileWrite { fd: to.0, at, bytes, flags: 0 })
    }

    /// Linux AIO: `struct iocb`.
    fn aio(&mut self, thread: WatchedThread, count: u64, list: u64) -> Vec<Effect> {
        const IOCB: u64 = 64;
        let mut effects = Vec::new();
        for n in 0..count.min(4096) {
            let iocb = thread.word(list + 8 * n).map(|at| thread.bytes(at, IOCB)).unwrap_or_default();
            let Some(words) = iocb.as_chunks::<8>().0.first_chunk::<8>() else { continue };
            let [_, key, opcode, buf, nbytes, offset, ..] = words.map(u64::from_ne_bytes);
            let (flags, fd) = (low(key >> 32), low(opcode >> 32).cast_signed());
            match opcode & 0xffff {
                1 => effects.extend(self.write(
                    thread,
                    FileWrite { fd, at: Some(offset), bytes: self.of_ours(thread, fd, || thread.bytes(buf, nbytes)), flags },
                )),
                8 => effects.extend(self.write(
                    thread,
                    FileWrite { fd, at: Some(offset), bytes: self.of_ours(thread, fd, || thread.gather(buf, nbytes)), flags },
                )),
                2 | 3 => effects.extend(self.open_file(thread, fd).map(Effect::Cover)),
                _ => {}
            }
        }
        effects
    }

    fn fallocate(&mut self, thread: WatchedThread, fd: i32, mode: u32, at: u64, len: u64) -> Vec<Effect> {
        let Some(file) = self.open_file(thread, fd) else { return Vec::new() };
        let now = self.disk.len(file);
        let end = at.saturating_add(len);
        let keeps = mode & linux::FALLOC_FL_KEEP_SIZE != 0;
        if mode & (linux::FALLOC_FL_PUNCH_HOLE | linux::FALLOC_FL_ZERO_RANGE) != 0 {
            let end = if keeps { end.min(now) } else { end };
            return if end > at { vec![Effect::Change(DiskChange::Zero { file, at, len: end - at })] } else { Vec::new() };
        }
        if mode & (linux::FALLOC_FL_COLLAPSE_RANGE | linux::FALLOC_FL_INSERT_RANGE) != 0 {
            return self.cannot_follow(thread, fd, "fallocate(2) that moves ranges");
        }
        if end > now && !keeps { vec![resize(file, end)] } else { Vec::new() }
    }

    /// The directory of a path within ours, and the name in it.
    fn place(&self, path: &Path) -> Option<(FileId, std::ffi::OsString)> {
        let (parent, name) = split(self.inside(path)?)?;
        Some((self.disk.live().find(parent)?, name.to_owned()))
    }

    fn open(&mut self, path: Option<PathBuf>, flags: u32) -> Vec<Effect> {
        let Some(path) = path.filter(|_| flags & MAKES != 0 && flags & linux::O_TMPFILE != linux::O_TMPFILE) else { return Vec::new() };
        let path = if flags & linux::O_EXCL == 0 { WatchedThread::followed(path) } else { path };
        match self.inside(&path).and_then(|within| self.disk.live().find(within)) {
            Some(_) if flags & (linux::O_CREAT | linux::O_EXCL) == linux::O_CREAT | linux::O_EXCL => Vec::new(),
            Some(file) if flags & linux::O_TRUNC != 0 && self.disk.len(file) > 0 => vec![resize(file, 0)],
            Some(_) => Vec::new(),
            None if flags & linux::O_CREAT == 0 => Vec::new(),
            None => self.make(Some(path), FileContent::Bytes(Vec::new())),
        }
    }

    /// A new file, unless the name is taken.
    fn make(&mut self, path: Option<PathBuf>, content: FileContent) -> Vec<Effect> {
        let Some((directory, name)) = path.and_then(|path| self.place(&path)) else { return Vec::new() };
        if self.child(directory, &name).is_some() {
            return Vec::new();
        }
        let file = self.disk.add(content);
        vec![Effect::Change(DiskChange::Name { directory, name, file })]
    }

    fn child(&self, directory: FileId, name: &std::ffi::OsStr) -> Option<FileId> {
        if let FileContent::Names(names) = self.disk.live().get(directory) { names.get(name).copied() } else { None }
    }

    fn remove(&mut self, path: Option<PathBuf>, is_directory: bool) -> Vec<Effect> {
        let Some((directory, name)) = path.and_then(|path| self.place(&path)) else { return Vec::new() };
        let Some(file) = self.child(directory, &name) else { return Vec::new() };
        let can_go = match self.disk.live().get(file) {
            FileContent::Names(names) => is_directory && names.is_empty(),
            _ => !is_directory,
        };
        if can_go { vec![Effect::Change(DiskChange::Unname { directory, name })] } else { Vec::new() }
    }

    fn link(&mut self, old: Option<PathBuf>, new: Option<PathBuf>) -> Vec<Effect> {
        let file = old.and_then(|path| self.disk.live().find(self.inside(&path)?));
        let place = new.and_then(|path| self.place(&path));
        match file.zip(place) {
            Some((file, (directory, name))) if self.child(directory, &name).is_none() => {
                vec![Effect::Change(DiskChange::Name { directory, name, file })]
            }
            _ => Vec::new(),
        }
    }

    fn rename(&mut self, old: Option<PathBuf>, new: Option<PathBuf>, flags: u32) -> Vec<Effect> {
        let [old, new] = [old, new].map(|path| path.and_then(|path| self.place(&path)));
        let file = old.as_ref().and_then(|(directory, name)| self.child(*directory, name));
        match (old, new, file) {
            (Some((from, old)), Some((to, new)), Some(file)) => {
                let taken = self.child(to, &new);
                if flags & linux::RENAME_EXCHANGE != 0 {
                    return if taken.is_some() { vec![Effect::Change(DiskChange::Exchange { from, old, to, new })] } else { Vec::new() };
                }
                if taken == Some(file) || taken.is_some() && flags & linux::RENAME_NOREPLACE != 0 {
                    return Vec::new();
                }
                vec![Effect::Change(DiskChange::Rename { from, old, to, new, file })]
            }
            // It leaves the directory.
            (Some((directory, name)), None, Some(_)) => vec![Effect::Change(DiskChange::Unname { directory, name })],
            (None, Some(_), _) => {
                self.warn("a file was moved into the directory from outside: its bytes are not known".to_owned());
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn shared_mapping(&mut self, thread: WatchedThread, fd: i32, protection: u32) -> Vec<Effect> {
        if protection & linux::PROT_WRITE == 0 { Vec::new() } else { self.cannot_follow(thread, fd, "a shared mapping that is written") }
    }

    fn cannot_follow(&mut self, thread: WatchedThread, fd: i32, what: &str) -> Vec<Effect> {
        if self.open_file(thread, fd).is_some() {
            let path = thread.open_file(fd).map_or_else(String::new, |(path, _)| path.display().to_string());
            self.warn(format!("{path}: {what} is not followed"));
        }
        Vec::new()
    }

    fn warn(&mut self, line: String) {
        if !self.warnings.contains(&line) {
            eprintln!("uringlet powercut: {line}");
            self.warnings.push(line);
        }
    }
}

/// The low half of a register.
fn low(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

const fn resize(file: FileId, len: u64) -> Effect {
    Effect::Change(DiskChange::Resize { file, len })
}
