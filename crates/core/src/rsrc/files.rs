//! Registered files: descriptors of the engine's own, so that a file lives on when the program
//! closes its number.

use alloc::sync::Arc;
use alloc::vec::Vec;
use uringlet_abi::FILE_INDEX_ALLOC;
use uringlet_sys::Errno;
use uringlet_sys::fd::{EngineFd, close_keeping_locks};

/// A registered file. Requests in flight hold it beyond its slot; its descriptor closes with the
/// last reference.
#[derive(Debug)]
pub(crate) struct FileNode {
    pub(crate) fd: EngineFd,
    /// Posted as a CQE's user_data once it is in no slot and no request holds it; 0 for none.
    pub(crate) tag: u64,
}

impl Drop for FileNode {
    fn drop(&mut self) {
        crate::virtual_file::forget(self.fd.number());
    }
}

/// The ring's file table; a slot may be empty.
#[derive(Debug, Default)]
pub(crate) struct FileTable {
    slots: Vec<Option<Arc<FileNode>>>,
    pub(crate) is_registered: bool,
    /// Slots that "any free slot" may choose from.
    alloc_range: core::ops::Range<u32>,
    /// Where the search for a free slot begins: behind the slot last filled, or at the one last
    /// emptied.
    alloc_hint: u32,
    /// The virtual file of the last command.
    last_virtual: crate::virtual_file::LastLookup,
}

impl FileTable {
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Arc<FileNode>> {
        self.slots.get(index as usize)?.as_ref()
    }

    /// The virtual file behind a number, the engine's own included.
    pub(crate) fn virtual_file(&mut self, fd: i32) -> Option<Arc<dyn crate::virtual_file::VirtualFile>> {
        self.last_virtual.get(fd)
    }

    pub(crate) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn install(&mut self, slots: Vec<Option<Arc<FileNode>>>) {
        self.set_alloc_range(0..slots.len() as u32);
        self.slots = slots;
        self.is_registered = true;
    }

    /// Empties the table; returns what was in it.
    pub(crate) fn remove_all(&mut self) -> Vec<Option<Arc<FileNode>>> {
        self.is_registered = false;
        self.alloc_range = 0..0;
        core::mem::take(&mut self.slots)
    }

    /// Puts `file` into a slot; returns the previous node.
    pub(crate) fn replace(&mut self, index: u32, file: Option<Arc<FileNode>>) -> Result<Option<Arc<FileNode>>, Errno> {
        let slot = self.slots.get_mut(index as usize).ok_or(Errno::EINVAL)?;
        let fills = file.is_some();
        let old = core::mem::replace(slot, file);
        match (old.is_some(), fills) {
            (false, true) => self.alloc_hint = index + 1,
            (true, false) => self.alloc_hint = index,
            _ => {}
        }
        Ok(old)
    }

    /// The slots that "any free slot" may choose from (`IORING_REGISTER_FILE_ALLOC_RANGE`).
    pub(crate) fn set_alloc_range(&mut self, range: core::ops::Range<u32>) {
        self.alloc_hint = range.start;
        self.alloc_range = range;
    }

    /// Installs a new descriptor of the program's as a registered file, and closes the number: for
    /// the `file_index` of openat, accept and socket. `file_index` is the slot + 1, or
    /// [`FILE_INDEX_ALLOC`].
    ///
    /// Returns 0, or the slot if it was chosen here.
    pub(crate) fn install_fd(&mut self, fd: i32, file_index: u32) -> Result<(u32, Option<Arc<FileNode>>), Errno> {
        let moved = EngineFd::dup_of(fd);
        close_keeping_locks(fd);
        if !self.is_registered {
            return Err(Errno::ENXIO);
        }
        let slot = self.choose(file_index)?;
        let node = Arc::new(FileNode { fd: moved?, tag: 0 });
        let old = self.replace(slot, Some(node))?;
        Ok((if file_index == FILE_INDEX_ALLOC { slot } else { 0 }, old))
    }

    fn choose(&self, file_index: u32) -> Result<u32, Errno> {
        if file_index == FILE_INDEX_ALLOC {
            let range = self.alloc_range.clone();
            let hint = if self.alloc_hint < range.end { self.alloc_hint.max(range.start) } else { range.start };
            return (hint..range.end).chain(range.start..hint).find(|&i| self.get(i).is_none()).ok_or(Errno::ENFILE);
        }
        let slot = file_index.wrapping_sub(1);
        if slot < self.len() { Ok(slot) } else { Err(Errno::EINVAL) }
    }
}
