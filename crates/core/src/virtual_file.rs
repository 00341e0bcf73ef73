//! Virtual files: the engine's own, opened by a path that the kernel does not have, and used by
//! `IORING_OP_URING_CMD`.
//!
//! The program gets an ordinary descriptor. This table keeps its number with the file behind it.
//! dup, close and registration of the number are followed. The file is dropped with its last
//! number, registered slot and command. It may be dropped with a ring's lock held: a file whose
//! drop takes long does it on another thread.
//!
//! `Differs:` known to the process that opened it, and its forked children; not to a process that
//! the descriptor is sent to.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::any::Any;
use core::fmt::Debug;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Release};
use uringlet_sys::fd::EngineFd;
use uringlet_sys::lock::Mutex;
use uringlet_sys::{Errno, fd_table, io};

/// The arguments of an `IORING_OP_URING_CMD`.
#[derive(Clone, Copy, Debug)]
pub struct UringCmd {
    /// `cmd_op`.
    pub op: u32,
    /// `sqe->addr`.
    pub addr: u64,
    /// `sqe->len`.
    pub len: u32,
    /// `sqe->cmd`: 16 bytes, or 80 of a 128-byte SQE; then zeroes.
    pub data: [u8; 80],
    /// The SQE has 128 bytes.
    pub is_big: bool,
    /// The thread on whose behalf it is started: as a rule the submitter.
    pub task: u64,
}

/// A file that lives in this process.
pub trait VirtualFile: Send + Sync + Debug {
    /// Whether this command may sleep: then a worker calls [`run`](Self::run).
    fn may_sleep(&self, cmd: &UringCmd) -> bool;

    /// Starts a command that never sleeps. `pending` posts its CQE, now or later, on any thread. No
    /// lock is held.
    fn start(&self, cmd: &UringCmd, pending: PendingCmd);

    /// Runs a command that may sleep. Returns the CQE's result.
    fn run(&self, cmd: &UringCmd) -> i32;

    /// The ring of a pending command ends with this call: its CQE is no longer needed.
    fn cancel(&self, cmd: &UringCmd);

    /// mmap(2): whether the descriptor behind the file may be mapped so (`PROT_*`, bytes).
    ///
    /// # Errors
    /// The errno of mmap.
    fn check_mmap(&self, prot: u32, offset: u64, len: usize) -> Result<(), Errno>;

    /// The file itself, where the engine knows its type.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

/// Opens virtual files.
pub trait VirtualFiles: Sync + Debug {
    /// open(2) of a path (without its NUL): a new descriptor of the program's, and the file.
    /// `None`: not a path of these files.
    fn open(&self, path: &[u8], flags: u32) -> Option<Result<OpenedFile, Errno>>;

    /// Before fork(2): takes the files' locks until [`after_fork`](Self::after_fork).
    fn before_fork(&self);

    /// After fork(2), in the parent and in the child, which has none of the other threads.
    fn after_fork(&self);

    /// Whether the path may be one of these after this errno of the kernel's open: there is no such
    /// file, or it is denied.
    fn is_left_to_us(&self, errno: Errno) -> bool {
        matches!(errno, Errno::ENOENT | Errno::ENXIO | Errno::ENODEV | Errno::EACCES | Errno::EPERM | Errno::ENOTDIR)
    }
}

/// A descriptor of the program's, and the file behind it.
pub type OpenedFile = (i32, Arc<dyn VirtualFile>);

/// Posts the CQE of a command. The function is part of a layer above this one, and its ring has it.
pub(crate) type CompleteCommand = fn(&PendingCmd, i32);

/// A command without a CQE yet. Exactly one [`complete`](Self::complete) gives it one.
#[derive(Debug)]
#[must_use]
pub struct PendingCmd {
    /// The ring's index in the table of rings.
    pub(crate) ring_index: u32,
    pub(crate) ring_generation: u64,
    /// The parked request.
    pub(crate) id: u64,
    /// Posts it.
    pub(crate) post: CompleteCommand,
}

impl PendingCmd {
    /// Posts the CQE. No lock may be held that [`VirtualFile`]'s methods take.
    pub fn complete(self, res: i32) {
        (self.post)(&self, res);
    }
}

/// Files by number, and the opener of more.
#[derive(Debug)]
struct VirtualFileTable {
    files: BTreeMap<i32, Arc<dyn VirtualFile>>,
    opener: Option<&'static dyn VirtualFiles>,
}

#[cfg(not(loom))]
static TABLE: Mutex<VirtualFileTable> = Mutex::new(VirtualFileTable { files: BTreeMap::new(), opener: None });

#[cfg(loom)]
loom::lazy_static! {
    static ref TABLE: Mutex<VirtualFileTable> = Mutex::new(VirtualFileTable { files: BTreeMap::new(), opener: None });
}

/// From now on, `opener` opens paths that the kernel does not have.
pub(crate) fn set_opener(opener: &'static dyn VirtualFiles) {
    TABLE.lock().opener = Some(opener);
}

pub(crate) fn opener() -> Option<&'static dyn VirtualFiles> {
    TABLE.lock().opener
}

/// The file behind a number, the engine's own numbers included.
pub(crate) fn get(fd: i32) -> Option<Arc<dyn VirtualFile>> {
    if !fd_table::is_virtual(fd) {
        return None;
    }
    TABLE.lock().files.get(&fd).cloned()
}

/// Counts changes of the table: validates a remembered file.
static VERSION: AtomicU64 = AtomicU64::new(0);

/// The file that a ring's commands went to last.
#[derive(Debug, Default)]
pub(crate) struct LastLookup {
    seen: Option<(i32, u64, Weak<dyn VirtualFile>)>,
}

impl LastLookup {
    /// As [`get`], mostly without a lookup.
    pub(crate) fn get(&mut self, fd: i32) -> Option<Arc<dyn VirtualFile>> {
        // Acquire: before the lookup whose result is remembered with it.
        let version = VERSION.load(Acquire);
        match &self.seen {
            Some((number, seen, file)) if *number == fd && *seen == version => file.upgrade(),
            _ => {
                let file = get(fd)?;
                self.seen = Some((fd, version, Arc::downgrade(&file)));
                Some(file)
            }
        }
    }
}

/// From now on the number stands for the file.
pub(crate) fn register(fd: i32, file: Arc<dyn VirtualFile>) {
    // Without a table the number stays what it is for the kernel.
    let _ = fd_table::init();
    let old = TABLE.lock().files.insert(fd, file);
    VERSION.fetch_add(1, Release);
    fd_table::set_virtual(fd, true);
    drop(old);
}

/// `new` is a duplicate of `old`.
#[inline]
pub(crate) fn duped(old: i32, new: i32) {
    if fd_table::is_virtual(old)
        && let Some(file) = get(old)
    {
        register(new, file);
    }
}

/// Whether a number leads to an open file of the program's: it is not the engine's, nor one by
/// `O_PATH`.
pub(crate) fn is_file_of_program(fd: i32) -> bool {
    !fd_table::is_internal(fd) && io::file_flags(fd).is_ok()
}

/// The engine's own duplicate of a number of the program's: for a registered eventfd or file.
///
/// # Errors
/// `EBADF` no [`is_file_of_program`]; `EMFILE`.
pub(crate) fn registered_duplicate(fd: i32) -> Result<EngineFd, Errno> {
    if is_file_of_program(fd) { own_duplicate(fd) } else { Err(Errno::EBADF) }
}

/// As [`registered_duplicate`], of any number.
pub(crate) fn own_duplicate(fd: i32) -> Result<EngineFd, Errno> {
    let own = EngineFd::dup_of(fd)?;
    duped(fd, own.number());
    Ok(own)
}

/// A number is closed, or about to be.
#[inline]
pub(crate) fn forget(fd: i32) {
    if fd_table::is_virtual(fd) {
        fd_table::set_virtual(fd, false);
        let old = TABLE.lock().files.remove(&fd);
        VERSION.fetch_add(1, Release);
        drop(old);
    }
}

/// In a copy of a process: a table that a thread was changing that the copy does not have is empty.
pub(crate) fn recover_in_copy() {
    TABLE.recover_in_copy(|torn| {
        let opener = torn.opener;
        core::mem::forget(torn);
        VirtualFileTable { files: BTreeMap::new(), opener }
    });
}

/// Before fork(2): keeps all threads out of the table and the files.
pub(crate) fn lock_for_fork() {
    if let Some(opener) = opener() {
        opener.before_fork();
    }
    TABLE.lock_for_fork();
}

/// Undoes [`lock_for_fork`], in the parent and in the child.
pub(crate) fn unlock_after_fork() {
    TABLE.unlock_after_fork();
    if let Some(opener) = opener() {
        opener.after_fork();
    }
}
