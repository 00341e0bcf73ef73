//! The files of a directory: read into a tree, and written again.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::disk::{Disk, FsyncCover};
use super::tree::{FileContent, FileId, ROOT, Tree};

/// What identifies a file of the machine: device and inode.
pub(super) type Inode = (u64, u64);

/// A directory as it was.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    disk: Disk,
    inodes: HashMap<Inode, FileId>,
    modes: HashMap<FileId, u32>,
}

impl Folder {
    /// Reads all of it. `fsync` is how its file system is.
    pub(super) fn open(path: &Path, fsync: FsyncCover) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let root = path.canonicalize().map_err(failed)?;
        if root.parent().is_none() || !root.is_dir() {
            return Err(format!("{}: --dir takes a directory, which is not /", path.display()));
        }
        let mut folder = Self { root, disk: Disk::new(Tree::new(), fsync), inodes: HashMap::new(), modes: HashMap::new() };
        let names = folder.read(&folder.root.clone()).map_err(failed)?;
        folder.disk.set_names(ROOT, names);
        Ok(folder)
    }

    fn read(&mut self, directory: &Path) -> std::io::Result<BTreeMap<std::ffi::OsString, FileId>> {
        let mut names = BTreeMap::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let (path, metadata) = (entry.path(), entry.path().symlink_metadata()?);
            let inode = (metadata.dev(), metadata.ino());
            let known = self.inodes.get(&inode).copied().filter(|_| metadata.is_file());
            let file = match known {
                Some(file) => file,
                None => {
                    let content = if metadata.is_dir() {
                        FileContent::Names(self.read(&path)?)
                    } else if metadata.is_symlink() {
                        FileContent::Link(fs::read_link(&path)?)
                    } else if metadata.is_file() {
                        FileContent::Bytes(fs::read(&path)?)
                    } else {
                        return Err(std::io::Error::other(format!("{} is neither file, directory nor link", path.display())));
                    };
                    let file = self.disk.add(content);
                    self.inodes.insert(inode, file);
                    self.modes.insert(file, metadata.mode() & 0o7777);
                    file
                }
            };
            names.insert(entry.file_name(), file);
        }
        Ok(names)
    }

    /// Its path without links.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// All that is in it is on the disk.
    pub(super) fn disk(&self) -> Disk {
        self.disk.clone()
    }

    /// The files of the machine that it holds now: others after each [`write`](Self::write).
    pub(super) fn inodes(&self) -> HashMap<Inode, FileId> {
        let mut inodes = HashMap::new();
        self.find_inodes(ROOT, &self.root, &mut inodes);
        inodes
    }

    fn find_inodes(&self, directory: FileId, path: &Path, inodes: &mut HashMap<Inode, FileId>) {
        let FileContent::Names(names) = self.disk.live().get(directory) else { return };
        for (name, &file) in names {
            let path = path.join(name);
            if let Ok(metadata) = path.symlink_metadata() {
                inodes.insert((metadata.dev(), metadata.ino()), file);
            }
            self.find_inodes(file, &path, inodes);
        }
    }

    /// As it was.
    pub(super) fn restore(&self) -> Result<(), String> {
        self.write(self.disk.live())
    }

    /// Replaces all that is in it.
    pub(super) fn write(&self, tree: &Tree) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot write {}: {error}", self.root.display());
        for entry in fs::read_dir(&self.root).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let is_directory = path.symlink_metadata().map_err(failed)?.is_dir();
            (if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }).map_err(failed)?;
        }
        self.write_names(tree, ROOT, &self.root, &mut HashMap::new()).map_err(failed)
    }

    fn write_names(&self, tree: &Tree, directory: FileId, path: &Path, written: &mut HashMap<FileId, PathBuf>) -> std::io::Result<()> {
        let FileContent::Names(names) = tree.get(directory) else { return Ok(()) };
        for (name, &file) in names {
            let path = path.join(name);
            if let Some(first) = written.get(&file) {
                fs::hard_link(first, &path)?;
                continue;
            }
            match tree.get(file) {
                FileContent::Bytes(bytes) => fs::write(&path, bytes)?,
                FileContent::Link(target) => symlink(target, &path)?,
                FileContent::Names(_) => {
                    fs::create_dir(&path)?;
                    self.write_names(tree, file, &path, written)?;
                }
            }
            if let Some(mode) = self.modes.get(&file).filter(|_| !matches!(tree.get(file), FileContent::Link(_))) {
                fs::set_permissions(&path, Permissions::from_mode(*mode))?;
            }
            written.insert(file, path);
        }
        Ok(())
    }
}
