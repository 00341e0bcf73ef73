//! The files that all threads of a process use, and what each slot of the data files must hold.

use anyhow::{Context, ensure};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

/// Users that threads become; 0 is root.
pub(crate) const USERS: [u32; 4] = [0, 41001, 41002, 41003];
/// Directories that threads change to, each with a file of the same name.
pub(crate) const FOLDERS: usize = 4;
pub(crate) const DATA_FILES: usize = 3;
pub(crate) const SLOTS: usize = 96;
/// Bytes of a slot, as an SQE, a CQE and a slice count them.
pub(crate) const SLOT_LEN: u32 = 512;
pub(crate) const SLOT_RESULT: i32 = 512;
pub(crate) const SLOT_BYTES: usize = 512;
const SLOT_WORDS: usize = SLOT_BYTES / 8;

/// What the threads count, by kind of step.
pub(crate) const COUNTED: [&str; 10] =
    ["requests", "opens", "creations", "transfers", "reused numbers", "foreign numbers", "cancels", "children", "identities", "rings"];

/// What a slot must hold: a version that is there, and one that is on its way (or 0).
#[derive(Debug, Default)]
pub(crate) struct SlotLedger {
    pub(crate) settled: AtomicU64,
    pub(crate) pending: AtomicU64,
}

/// Shared with the parent process, so that it outlives a kill.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) counts: [AtomicU64; COUNTED.len()],
    pub(crate) slots: [[SlotLedger; SLOTS]; DATA_FILES],
}

impl Ledger {
    /// The ledger in a file, mapped shared.
    pub(crate) fn map(path: &Path) -> anyhow::Result<&'static Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).context("opening the ledger")?;
        file.set_len(size_of::<Self>() as u64)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping of a whole file.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Self>(), protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        ensure!(at != libc::MAP_FAILED, "mapping the ledger: {}", std::io::Error::last_os_error());
        // SAFETY: page-aligned, never unmapped, and all bytes are values of atomics.
        Ok(unsafe { &*at.cast::<Self>() })
    }
}

/// The bytes of a version of a slot. Version 0 is all zeros.
pub(crate) fn contents(file: usize, slot: usize, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; SLOT_BYTES];
    }
    let seed = ((file * SLOTS + slot) as u64) << 40 | version;
    (0..SLOT_WORDS as u64).flat_map(|word| (seed ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes()).collect()
}

/// See the module.
#[derive(Debug)]
pub(crate) struct FilePool {
    pub(crate) dir: PathBuf,
    /// Files with an owner each, of changing modes.
    pub(crate) owned: Vec<CString>,
    pub(crate) folders: Vec<CString>,
    /// Everybody may create files here.
    pub(crate) commons: PathBuf,
    /// No thread writes to it.
    pub(crate) victim: CString,
}

impl FilePool {
    /// The paths of a pool in `dir`.
    pub(crate) fn at(dir: &Path) -> Self {
        let modes = [0o600, 0o640, 0o444];
        let owned = USERS.iter().flat_map(|user| modes.map(|mode| c_path(&dir.join(format!("{user}-{mode:o}"))))).collect();
        let folders = (0..FOLDERS).map(|n| c_path(&dir.join(format!("folder{n}")))).collect();
        Self { dir: dir.to_owned(), owned, folders, commons: dir.join("commons"), victim: c_path(&dir.join("victim")) }
    }

    pub(crate) fn data(&self, file: usize) -> PathBuf {
        self.dir.join(format!("data{file}"))
    }

    /// Makes the files. As root: of different owners.
    pub(crate) fn create(&self) -> anyhow::Result<()> {
        fs::create_dir_all(&self.dir)?;
        fs::set_permissions(&self.dir, Permissions::from_mode(0o755))?;
        for path in &self.owned {
            let name = path.to_str()?.rsplit('/').next().unwrap_or_default();
            let (user, mode) = name.split_once('-').context("a name of the pool")?;
            make_file(Path::new(path.to_str()?), user.parse()?, u32::from_str_radix(mode, 8)?)?;
        }
        for (n, folder) in self.folders.iter().enumerate() {
            let folder = Path::new(folder.to_str()?);
            fs::create_dir(folder)?;
            fs::set_permissions(folder, Permissions::from_mode(0o755))?;
            make_file(&folder.join("here"), USERS[n % USERS.len()], 0o644)?;
        }
        fs::create_dir(&self.commons)?;
        fs::set_permissions(&self.commons, Permissions::from_mode(0o777))?;
        make_file(Path::new(self.victim.to_str()?), 0, 0o666)?;
        for file in 0..DATA_FILES {
            make_file(&self.data(file), 0, 0o666)?;
            OpenOptions::new().write(true).open(self.data(file))?.set_len((SLOTS * SLOT_BYTES) as u64)?;
        }
        Ok(())
    }

    /// Checks all bytes after the process has ended, however it did.
    pub(crate) fn check(&self, ledger: &Ledger) -> anyhow::Result<()> {
        use std::sync::atomic::Ordering::SeqCst;
        let victim = fs::metadata(self.victim.to_str()?)?.len();
        ensure!(victim == 0, "WRONG FILE: {victim} bytes in a file that nobody wrote to");
        for file in 0..DATA_FILES {
            let data = File::open(self.data(file))?;
            let size = data.metadata()?.len();
            ensure!(size == (SLOTS * SLOT_BYTES) as u64, "data{file} has {size} bytes");
            for (slot, ledger) in ledger.slots[file].iter().enumerate() {
                let mut bytes = vec![0; SLOT_BYTES];
                data.read_exact_at(&mut bytes, (slot * SLOT_BYTES) as u64)?;
                let (settled, pending) = (ledger.settled.load(SeqCst), ledger.pending.load(SeqCst));
                let is_known = [settled, pending].iter().any(|&version| bytes == contents(file, slot, version));
                ensure!(is_known, "WRONG BYTES: data{file}, slot {slot}: neither version {settled} nor {pending}");
            }
        }
        Ok(())
    }
}

fn make_file(path: &Path, user: u32, mode: u32) -> anyhow::Result<()> {
    File::create(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    if crate::identity::is_root() {
        std::os::unix::fs::chown(path, Some(user), Some(user))?;
    }
    Ok(())
}

/// A path as system calls take it.
pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}
