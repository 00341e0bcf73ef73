//! What a disk has after a power cut: the model of `docs/powercut.md`. No file is touched here.
//!
//! ```text
//!   base  what is on the disk for certain
//!   live  what programs see
//!   journal: the changes from base to live, in order, that no fsync has covered
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;

use uringlet_sys::fault_plan::draw;

use super::tree::{DiskChange, FileContent, FileId, Tree, index};

/// A disk writes so many bytes at once, or none of them.
const SECTOR: u64 = 512;

/// What fsync(2) of a file covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FsyncCover {
    /// Its bytes and its length: what fsync(2) promises
    #[default]
    Data,
    /// Its names, too, and those of its directories: what ext4, xfs and btrfs do
    Names,
}

/// What became of the changes that nothing had covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CutCount {
    pub(super) kept: u32,
    pub(super) lost: u32,
    pub(super) torn: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    base: Tree,
    live: Tree,
    journal: Vec<DiskChange>,
    fsync: FsyncCover,
}

impl Disk {
    /// All of it is on the disk.
    pub(super) fn new(tree: Tree, fsync: FsyncCover) -> Self {
        Self { base: tree.clone(), live: tree, journal: Vec::new(), fsync }
    }

    pub(super) fn live(&self) -> &Tree {
        &self.live
    }

    /// What is in a directory, from the beginning.
    pub(super) fn set_names(&mut self, directory: FileId, names: BTreeMap<OsString, FileId>) {
        for tree in [&mut self.base, &mut self.live] {
            tree.set_names(directory, names.clone());
        }
    }

    /// A new file, without a name.
    pub(super) fn add(&mut self, content: FileContent) -> FileId {
        self.base.add(content.clone());
        self.live.add(content)
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
        // Of these the names are covered.
        let mut named = directories.clone();
        // A rename between directories takes the other one's earlier changes with it.
        let mut covered = vec![false; self.journal.len()];
        while end > 0 {
            end -= 1;
            let change = &self.journal[end];
            let touched = change.directories();
            let is_name = self.fsync == FsyncCover::Names && change.named().is_some_and(|file| named.contains(&file));
            if is_name || change.file() == Some(file) || touched.iter().any(|directory| directories.contains(directory)) {
                covered[end] = true;
                named.extend(&touched);
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

/// The name of a path, and its directory.
pub(super) fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::super::tree::ROOT;
    use super::*;

    fn disk() -> (Disk, FileId) {
        of(FsyncCover::Data)
    }

    fn of(fsync: FsyncCover) -> (Disk, FileId) {
        let mut disk = Disk::new(Tree::new(), fsync);
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
    fn an_fsync_covers_the_names_of_its_file_where_a_file_system_does_so() {
        for (fsync, may_be_lost) in [(FsyncCover::Data, true), (FsyncCover::Names, false)] {
            let (mut disk, _) = of(fsync);
            let directory = disk.add(FileContent::Names(BTreeMap::new()));
            disk.change(name(ROOT, "d", directory));
            let [file, other] = [(); 2].map(|()| disk.add(FileContent::Bytes(Vec::new())));
            disk.change(name(directory, "x", file));
            disk.change(write(file, 0, b'2', 512));
            disk.change(name(directory, "later", other));
            disk.cover(file);
            let trees = cuts(&disk);
            let is_whole = |tree: &Tree| bytes(tree, "d/x") == Some(vec![b'2'; 512]);
            assert_eq!(trees.iter().any(|tree| !is_whole(tree)), may_be_lost);
            // Neither what came later, nor another file's bytes.
            assert!(trees.iter().any(|tree| bytes(tree, "d/later").is_none()));
            assert!(trees.iter().any(|tree| bytes(tree, "a").is_none_or(|bytes| bytes.len() < 2048)));
        }
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
        let mut disk = Disk::new(Tree::new(), FsyncCover::Data);
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
        let mut disk = Disk::new(Tree::new(), FsyncCover::Data);
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
