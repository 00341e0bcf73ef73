//! What a disk has after a power cut: the model of `docs/powercut.md`. No file is touched here.
//!
//! ```text
//!   base  what is on the disk for certain
//!   live  what programs see
//!   journal: the changes from base to live, in order, that no fsync has covered
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use uringlet_sys::fault_plan::draw;

/// A disk writes so many bytes at once, or none of them.
const SECTOR: u64 = 512;

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
    fn file(&self) -> Option<FileId> {
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

    fn directories(&self) -> Vec<FileId> {
        match self {
            Self::Name { directory, .. } | Self::Unname { directory, .. } => vec![*directory],
            Self::Rename { from, to, .. } | Self::Exchange { from, to, .. } => vec![*from, *to],
            _ => Vec::new(),
        }
    }
}

/// What became of the changes that nothing had covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CutCount {
    pub(super) kept: u32,
    pub(super) lost: u32,
    pub(super) torn: u32,
}

impl Tree {
    pub(super) fn new() -> Self {
        Self(vec![FileContent::Names(BTreeMap::new())])
    }

    pub(super) fn get(&self, file: FileId) -> &FileContent {
        &self.0[file]
    }

    fn names(&self, directory: FileId) -> Option<&BTreeMap<OsString, FileId>> {
        if let Some(FileContent::Names(names)) = self.0.get(directory) { Some(names) } else { None }
    }

    fn names_mut(&mut self, directory: FileId) -> Option<&mut BTreeMap<OsString, FileId>> {
        if let Some(FileContent::Names(names)) = self.0.get_mut(directory) { Some(names) } else { None }
    }

    fn bytes_mut(&mut self, file: FileId) -> Option<&mut Vec<u8>> {
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

    fn apply(&mut self, change: &DiskChange) {
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

    fn write(&mut self, file: FileId, at: u64, new: &[u8]) {
        let Some(bytes) = self.bytes_mut(file) else { return };
        let at = index(at);
        let end = at + new.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[at..end].copy_from_slice(new);
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    base: Tree,
    live: Tree,
    journal: Vec<DiskChange>,
}

impl Disk {
    /// All of it is on the disk.
    pub(super) fn new(tree: Tree) -> Self {
        Self { base: tree.clone(), live: tree, journal: Vec::new() }
    }

    pub(super) fn live(&self) -> &Tree {
        &self.live
    }

    /// What is in a directory, from the beginning.
    pub(super) fn set_names(&mut self, directory: FileId, names: BTreeMap<OsString, FileId>) {
        for tree in [&mut self.base, &mut self.live] {
            tree.0[directory] = FileContent::Names(names.clone());
        }
    }

    /// A new file, without a name.
    pub(super) fn add(&mut self, content: FileContent) -> FileId {
        self.base.0.push(content.clone());
        self.live.0.push(content);
        self.live.0.len() - 1
    }

    pub(super) fn len(&self, file: FileId) -> u64 {
        if let FileContent::Bytes(bytes) = self.live.get(file) { bytes.len() as u64 } else { 0 }
    }

    pub(super) fn change(&mut self, change: DiskChange) {
        self.live.apply(&change);
        self.journal.push(change);
    }

    /// A write that is on the disk when it returns; what was written before it need not be.
    pub(super) fn change_for_certain(&mut self, change: DiskChange) {
        self.live.apply(&change);
        self.base.apply(&change);
        // What may be lost of earlier writes does not come over it.
        if let DiskChange::Write { file, at, bytes } = &change {
            let (file, end) = (*file, at + bytes.len() as u64);
            for earlier in &mut self.journal {
                clip(earlier, file, *at, end);
            }
        }
    }

    /// fsync(2) of a file or a directory.
    pub(super) fn cover(&mut self, file: FileId) {
        let (mut directories, mut end) = (HashSet::from([file]), self.journal.len());
        // A rename between directories takes the other one's earlier changes with it.
        let mut covered = vec![false; self.journal.len()];
        while end > 0 {
            end -= 1;
            let touched = self.journal[end].directories();
            if self.journal[end].file() == Some(file) || touched.iter().any(|directory| directories.contains(directory)) {
                covered[end] = true;
                directories.extend(touched);
            }
        }
        self.settle(&covered);
    }

    /// sync(2).
    pub(super) fn cover_all(&mut self) {
        self.settle(&vec![true; self.journal.len()]);
    }

    fn settle(&mut self, covered: &[bool]) {
        let mut rest = Vec::new();
        for (change, is_covered) in std::mem::take(&mut self.journal).into_iter().zip(covered) {
            if *is_covered { self.base.apply(&change) } else { rest.push(change) }
        }
        self.journal = rest;
    }

    /// What the disk has after a cut. The same seed, the same disk.
    pub(super) fn cut(&self, seed: u64) -> (Tree, CutCount) {
        let (mut tree, mut count, mut drawn) = (self.base.clone(), CutCount::default(), 0);
        let mut chance = |below: u64| {
            drawn += 1;
            draw([seed, drawn, 0, 0]) % below
        };
        let mut left = self.kept_names(&mut chance);
        for change in &self.journal {
            let directories = change.directories();
            if directories.is_empty() {
                cut_data(&mut tree, change, &mut chance, &mut count);
            } else if directories.iter().all(|directory| left.get(directory).is_some_and(|left| *left > 0)) {
                directories.iter().collect::<HashSet<_>>().into_iter().for_each(|directory| *left.entry(*directory).or_default() -= 1);
                tree.apply(change);
                count.kept += 1;
            } else {
                // None of what comes later in these directories is there.
                directories.iter().for_each(|directory| *left.entry(*directory).or_default() = 0);
                count.lost += 1;
            }
        }
        (tree, count)
    }

    /// How many of the first changes of each directory are there.
    fn kept_names(&self, chance: &mut impl FnMut(u64) -> u64) -> HashMap<FileId, u64> {
        let mut counts: BTreeMap<FileId, u64> = BTreeMap::new();
        for change in &self.journal {
            for directory in change.directories().into_iter().collect::<HashSet<_>>() {
                *counts.entry(directory).or_default() += 1;
            }
        }
        counts.into_iter().map(|(directory, all)| (directory, chance(all + 1))).collect()
    }
}

/// A write or another change of a file's bytes is kept, lost, or torn.
fn cut_data(tree: &mut Tree, change: &DiskChange, chance: &mut impl FnMut(u64) -> u64, count: &mut CutCount) {
    let (DiskChange::Write { file, at, bytes }, choice) = (change, chance(4)) else {
        let is_kept = chance(2) == 0;
        if is_kept {
            tree.apply(change);
        }
        *(if is_kept { &mut count.kept } else { &mut count.lost }) += 1;
        return;
    };
    match choice {
        0 => {
            tree.apply(change);
            count.kept += 1;
        }
        1 => count.lost += 1,
        // The file has its new length, but not the bytes.
        2 => {
            let len = tree.bytes_mut(*file).map_or(0, |bytes| bytes.len() as u64);
            let end = at + bytes.len() as u64;
            if end > len {
                tree.apply(&DiskChange::Resize { file: *file, len: end });
            }
            count.lost += 1;
        }
        _ => {
            let mut from = *at;
            let end = at + bytes.len() as u64;
            while from < end {
                let to = ((from / SECTOR + 1) * SECTOR).min(end);
                if chance(2) == 0 {
                    tree.write(*file, from, &bytes[index(from - at)..index(to - at)]);
                }
                from = to;
            }
            count.torn += 1;
        }
    }
}

/// Takes a range out of an earlier write, as far as that is one piece.
fn clip(earlier: &mut DiskChange, file: FileId, from: u64, to: u64) {
    let DiskChange::Write { file: of, at, bytes } = earlier else { return };
    let end = *at + bytes.len() as u64;
    if *of != file || to <= *at || from >= end {
        return;
    }
    if from <= *at {
        let gone = to.min(end) - *at;
        bytes.drain(..index(gone));
        *at += gone;
    } else {
        // The part behind the range counts as lost.
        bytes.truncate(index(from - *at));
    }
}

/// A place in bytes that are in memory.
fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// The name of a path, and its directory.
pub(super) fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> (Disk, FileId) {
        let mut disk = Disk::new(Tree::new());
        let file = disk.add(FileContent::Bytes(Vec::new()));
        disk.change(name(ROOT, "a", file));
        disk.change(write(file, 0, b'1', 2048));
        (disk, file)
    }

    fn name(directory: FileId, name: &str, file: FileId) -> DiskChange {
        DiskChange::Name { directory, name: name.into(), file }
    }

    fn write(file: FileId, at: u64, byte: u8, len: usize) -> DiskChange {
        DiskChange::Write { file, at, bytes: vec![byte; len] }
    }

    fn cuts(disk: &Disk) -> Vec<Tree> {
        (0..400).map(|seed| disk.cut(seed).0).collect()
    }

    fn bytes(tree: &Tree, path: &str) -> Option<Vec<u8>> {
        tree.find(Path::new(path)).map(|file| if let FileContent::Bytes(bytes) = tree.get(file) { bytes.clone() } else { panic!() })
    }

    #[test]
    fn a_covered_change_is_there_and_another_may_not_be() {
        let (mut disk, file) = disk();
        assert!(cuts(&disk).iter().any(|tree| bytes(tree, "a").is_none()));
        disk.cover(ROOT);
        let lengths: HashSet<usize> = cuts(&disk).iter().map(|tree| bytes(tree, "a").unwrap().len()).collect();
        assert!(lengths.contains(&0) && lengths.contains(&2048) && lengths.contains(&512), "{lengths:?}");
        disk.cover(file);
        assert!(cuts(&disk).iter().all(|tree| bytes(tree, "a") == Some(vec![b'1'; 2048])));
    }

    #[test]
    fn a_write_is_torn_at_sectors() {
        let (mut disk, file) = disk();
        disk.cover_all();
        disk.change(write(file, 256, b'2', 1024));
        let pieces: HashSet<Vec<u8>> = cuts(&disk).iter().map(|tree| bytes(tree, "a").unwrap()).collect();
        // Sectors 256..512, 512..1024 and 1024..1280, each old or new.
        assert_eq!(pieces.len(), 8);
        assert!(pieces.iter().all(|bytes| bytes.len() == 2048 && bytes[..256].iter().chain(&bytes[1280..]).all(|&byte| byte == b'1')));
    }

    #[test]
    fn names_of_a_directory_are_kept_in_order() {
        let mut disk = Disk::new(Tree::new());
        for n in ["a", "b", "c"] {
            let file = disk.add(FileContent::Bytes(Vec::new()));
            disk.change(name(ROOT, n, file));
        }
        let file = disk.live().find(Path::new("a")).unwrap();
        disk.change(DiskChange::Rename { from: ROOT, old: "a".into(), to: ROOT, new: "c".into(), file });
        let seen: HashSet<Vec<String>> = cuts(&disk)
            .iter()
            .map(|tree| tree.names(ROOT).unwrap().keys().map(|name| name.to_string_lossy().into_owned()).collect())
            .collect();
        let expected = [vec![], vec!["a"], vec!["a", "b"], vec!["a", "b", "c"], vec!["b", "c"]];
        assert_eq!(seen, expected.into_iter().map(|names| names.into_iter().map(str::to_owned).collect()).collect());
    }

    #[test]
    fn a_rename_without_an_fsync_of_its_file_may_be_of_an_empty_one() {
        let (mut disk, file) = disk();
        disk.change(DiskChange::Rename { from: ROOT, old: "a".into(), to: ROOT, new: "b".into(), file });
        disk.cover(ROOT);
        assert!(cuts(&disk).iter().all(|tree| bytes(tree, "a").is_none() && bytes(tree, "b").is_some()));
        assert!(cuts(&disk).iter().any(|tree| bytes(tree, "b") == Some(vec![])));
    }

    #[test]
    fn a_rename_takes_the_other_directory_with_it() {
        let mut disk = Disk::new(Tree::new());
        let [one, two] = [(); 2].map(|()| disk.add(FileContent::Names(BTreeMap::new())));
        disk.change(name(ROOT, "one", one));
        disk.change(name(ROOT, "two", two));
        disk.cover_all();
        let file = disk.add(FileContent::Bytes(Vec::new()));
        disk.change(name(one, "x", file));
        disk.change(DiskChange::Rename { from: one, old: "x".into(), to: two, new: "y".into(), file });
        let places = |tree: &Tree| (bytes(tree, "one/x").is_some(), bytes(tree, "two/y").is_some());
        assert_eq!(cuts(&disk).iter().map(places).collect::<HashSet<_>>(), HashSet::from([(false, false), (true, false), (false, true)]));
        disk.cover(two);
        assert!(cuts(&disk).iter().all(|tree| places(tree) == (false, true)));
    }

    #[test]
    fn a_synchronous_write_stays_over_earlier_ones() {
        let (mut disk, file) = disk();
        disk.cover_all();
        disk.change(write(file, 0, b'2', 2048));
        disk.change_for_certain(write(file, 0, b'3', 512));
        for tree in cuts(&disk) {
            let bytes = bytes(&tree, "a").unwrap();
            assert!(bytes[..512].iter().all(|&byte| byte == b'3') && bytes[512..].iter().all(|byte| b"12".contains(byte)));
        }
    }

    #[test]
    fn the_same_seed_is_the_same_disk() {
        let (disk, _) = disk();
        assert!((0..50).all(|seed| disk.cut(seed) == disk.cut(seed)));
        assert!((0..50).any(|seed| disk.cut(seed) != disk.cut(50)));
    }
}
