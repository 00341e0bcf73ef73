//! Where findings are kept between starts: one small file for each object, named by its build-id,
//! in a directory that is the user's alone.

use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write as _;

use uringlet_sys::directory::{self, Directory};
use uringlet_sys::process;

use super::object::LoadedObject;
use super::plan::Findings;
use super::record::{self, Key, MAX_BYTES};
use super::report::FindingsSource;
use crate::{doctor, environ};

/// Most records are shorter.
const USUAL_BYTES: usize = 8 << 10;

/// The directory, open while objects are examined.
#[derive(Debug)]
pub(crate) struct Cache {
    path: CString,
    directory: Directory,
    buffer: Vec<u8>,
}

/// A path or name as the kernel wants it, up to the first NUL.
fn c_string(parts: &[&[u8]]) -> CString {
    let mut text = parts.concat();
    text.truncate(text.iter().position(|&byte| byte == 0).unwrap_or(text.len()));
    CString::new(text).unwrap_or_default()
}

impl Cache {
    /// `None`: the user disabled the cache, or there is no directory that only the user can write
    /// to.
    pub(crate) fn open() -> Option<Self> {
        if let Some(path) = environ::variable("URINGLET_CACHE") {
            return if path == b"off" { None } else { Self::open_at(&c_string(&[path])) };
        }
        let base = environ::variable("XDG_CACHE_HOME").filter(|path| path.starts_with(b"/")).map(<[u8]>::to_vec);
        let home = || environ::variable("HOME").filter(|path| path.starts_with(b"/")).map(|home| [home, b"/.cache"].concat());
        let cache = base.or_else(home).and_then(|base| {
            let path = c_string(&[&base, b"/uringlet"]);
            Self::open_existing(&path).or_else(|| {
                directory::make_private(&c_string(&[&base]));
                Self::open_at(&path)
            })
        });
        cache.or_else(|| {
            let mut temporary = String::new();
            let _ = write!(temporary, "/tmp/uringlet-{}", process::effective_user());
            Self::open_at(&c_string(&[temporary.as_bytes()]))
        })
    }

    fn open_existing(path: &CString) -> Option<Self> {
        let directory = Directory::open(path).ok()?;
        directory.is_private().then(|| Self { path: path.clone(), directory, buffer: vec![0; USUAL_BYTES] })
    }

    fn open_at(path: &CString) -> Option<Self> {
        Self::open_existing(path).or_else(|| {
            directory::make_private(path);
            Self::open_existing(path)
        })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &[u8] {
        self.path.as_bytes()
    }

    /// Reads a record into the buffer, which grows if need be. Returns its length.
    fn read(&mut self, name: &CString) -> Option<usize> {
        let mut len = self.directory.read(name, &mut self.buffer).ok()?;
        if len == self.buffer.len() && len < MAX_BYTES {
            self.buffer = vec![0; MAX_BYTES];
            len = self.directory.read(name, &mut self.buffer).ok()?;
        }
        (len < MAX_BYTES).then_some(len)
    }

    /// What an earlier start found, if the object is still what it was then.
    fn load(&mut self, object: &LoadedObject, key: &Key) -> Option<Findings> {
        let len = self.read(&file_name(key))?;
        let findings = record::decode(&self.buffer[..len], key)?;
        let is_in_place = findings.plans.iter().all(|plan| {
            let from = object.base.wrapping_add(plan.start);
            object.bytes(from..from.saturating_add(plan.bytes.len() as u64)) == Some(&plan.bytes[..])
        });
        is_in_place.then_some(findings)
    }

    /// Keeps findings for later starts. If that fails, the next start scans again.
    fn store(&self, key: &Key, findings: &Findings) {
        let content = record::encode(key, findings);
        if content.len() >= MAX_BYTES {
            return;
        }
        let name = file_name(key);
        let mut temporary = String::new();
        let _ = write!(temporary, ".{}-{:x}", process::tid(), record::checksum(name.as_bytes_with_nul()));
        self.directory.replace(&name, &c_string(&[temporary.as_bytes()]), &content);
    }
}

/// The findings recorded for the object; those of `scan`, which are recorded then, if there are
/// none.
pub(super) fn find_or_scan(
    cache: &mut Option<Cache>,
    object: &LoadedObject,
    key: Option<Key>,
    scan: impl FnOnce() -> Findings,
) -> (Findings, FindingsSource) {
    let Some((cache, key)) = cache.as_mut().zip(key) else { return (scan(), FindingsSource::Scan) };
    if let Some(findings) = cache.load(object, &key) {
        return (findings, FindingsSource::Cache);
    }
    let findings = scan();
    if !doctor::is_asked() {
        cache.store(&key, &findings);
    }
    (findings, FindingsSource::Scan)
}

/// What identifies an object: its build-id, or else its file's version.
pub(super) fn key(object: &LoadedObject) -> Option<Key> {
    let code_bytes = object.executable.iter().map(|range| range.end - range.start).sum();
    if !object.build_id.is_empty() {
        return Some(Key { identity: object.build_id.clone(), code_bytes });
    }
    let path = if object.name.is_empty() { c_string(&[b"/proc/self/exe"]) } else { c_string(&[&object.name]) };
    let file = directory::file_version(&path).ok()?;
    let parts = [file.dev, file.ino, file.size, file.mtime[0], file.mtime[1], file.ctime[0], file.ctime[1]];
    Some(Key { identity: parts.map(u64::to_le_bytes).concat(), code_bytes })
}

fn file_name(key: &Key) -> CString {
    let mut name = String::new();
    for byte in &key.identity {
        let _ = write!(name, "{byte:02x}");
    }
    c_string(&[name.as_bytes()])
}
