//! The files of a directory in memory, and changes of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// The number of a file in both trees.
pub(super) type FileId = usize;

/// The root of a tree.
pub(super) const ROOT: FileId = 0;

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileContent {
    Bytes(Vec<u8>),
    Names(BTreeMap<OsString, FileId>),
    Link(PathBuf),
}

/// All files; those without a name, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree(Vec<FileContent>);

/// A change of one thing.
#[derive(Clone, Debug)]
pub(super) enum DiskChange {
    Write {
        file: FileId,
        at: u64,
        bytes: Vec<u8>,
    },
    Zero {
        file: FileId,
        at: u64,
        len: u64,
    },
    Resize {
        file: FileId,
        len: u64,
    },
    /// Gives a file a name, which it may take from another one.
    Name {
        directory: FileId,
        name: OsString,
        file: FileId,
    },
    Unname {
        directory: FileId,
        name: OsString,
    },
    Rename {
        from: FileId,
        old: OsString,
        to: FileId,
        new: OsString,
        file: FileId,
    },
    Exchange {
        from: FileId,
        old: OsString,
        to: FileId,
        new: OsString,
    },
}

impl DiskChange {
    pub(super) fn file(&self) -> Option<FileId> {
        match self {
            Self::Write { file, .. } | Self::Zero { file, .. } | Self::Resize { file, .. } => Some(*file),
            _ => None,
        }
    }

    /// How long its file is at least after it.
    pub(super) fn end(&self) -> u64 {
        match self {
            Self::Write { at, bytes, .. } => at.saturating_add(bytes.len() as u64),
            Self::Zero { at, len, .. } => at.saturating_add(*len),
            Self::Resize { len, .. } => *len,
            _ => 0,
        }
    }

    pub(super) fn directories(&self) -> Vec<FileId> {
        match self {
            Self::Name { directory, .. } | Self::Unname { directory, .. } => vec![*directory],
            Self::Rename { from, to, .. } | Self::Exchange { from, to, .. } => vec![*from, *to],
            _ => Vec::new(),
        }
    }

    /// The file that it gives a name.
    pub(super) fn named(&self) -> Option<FileId> {
        match self {
            Self::Name { file, .. } | Self::Rename { file, .. } => Some(*file),
            _ => None,
        }
    }
}

impl Tree {
    pub(super) fn new() -> Self {
        Self(vec![FileContent::Names(BTreeMap::new())])
    }

    pub(super) fn get(&self, file: FileId) -> &FileContent {
        &self.0[file]
    }

    /// A new file, without a name.
    pub(super) fn add(&mut self, content: FileContent) -> FileId {
        self.0.push(content);
        self.0.len() - 1
    }

    pub(super) fn set_names(&mut self, directory: FileId, names: BTreeMap<OsString, FileId>) {
        self.0[directory] = FileContent::Names(names);
    }

    pub(super) fn names(&self, directory: FileId) -> Option<&BTreeMap<OsString, FileId>> {
        if let Some(FileContent::Names(names)) = self.0.get(directory) { Some(names) } else { None }
    }

    fn names_mut(&mut self, directory: FileId) -> Option<&mut BTreeMap<OsString, FileId>> {
        if let Some(FileContent::Names(names)) = self.0.get_mut(directory) { Some(names) } else { None }
    }

    pub(super) fn bytes_mut(&mut self, file: FileId) -> Option<&mut Vec<u8>> {
        if let Some(FileContent::Bytes(bytes)) = self.0.get_mut(file) { Some(bytes) } else { None }
    }

    /// The file of a path within the tree.
    pub(super) fn find(&self, path: &Path) -> Option<FileId> {
        path.components().try_fold(ROOT, |at, part| match part {
            Component::Normal(name) => self.names(at)?.get(name).copied(),
            Component::CurDir => Some(at),
            _ => None,
        })
    }

    pub(super) fn apply(&mut self, change: &DiskChange) {
        match change {
            DiskChange::Write { file, at, bytes } => self.write(*file, *at, bytes),
            DiskChange::Zero { file, at, len } => self.write(*file, *at, &vec![0; index(*len)]),
            DiskChange::Resize { file, len } => {
                if let Some(bytes) = self.bytes_mut(*file) {
                    bytes.resize(index(*len), 0);
                }
            }
            DiskChange::Name { directory, name, file } => {
                if let Some(names) = self.names_mut(*directory) {
                    names.insert(name.clone(), *file);
                }
            }
            DiskChange::Unname { directory, name } => {
                if let Some(names) = self.names_mut(*directory) {
                    names.remove(name);
                }
            }
            DiskChange::Rename { from, old, to, new, file } => {
                if let Some(names) = self.names_mut(*from).filter(|names| names.get(old) == Some(file)) {
                    names.remove(old);
                }
                if let Some(names) = self.names_mut(*to) {
                    names.insert(new.clone(), *file);
                }
            }
            DiskChange::Exchange { from, old, to, new } => {
                let pair = self.names(*from).and_then(|names| names.get(old)).zip(self.names(*to).and_then(|names| names.get(new)));
                let Some((&first, &second)) = pair else { return };
                self.apply(&DiskChange::Name { directory: *from, name: old.clone(), file: second });
                self.apply(&DiskChange::Name { directory: *to, name: new.clone(), file: first });
            }
        }
    }

    pub(super) fn write(&mut self, file: FileId, at: u64, new: &[u8]) {
        let Some(bytes) = self.bytes_mut(file) else { return };
        let at = index(at);
        let end = at + new.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[at..end].copy_from_slice(new);
    }
}

/// A place in bytes that are in memory.
pub(super) fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}
