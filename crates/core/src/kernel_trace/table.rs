//! The rings of the kernel's that this process has, and by which numbers.

use super::ring::KernelRing;
use crate::file::FileKind;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use uringlet_abi::UringParams;
use uringlet_sys::fd_table;
use uringlet_sys::lock::Mutex;
use uringlet_sys::trace::{TraceWriter, with_buffer};
use uringlet_sys::traced_ring::TracedRing;

pub(super) static RINGS: Mutex<KernelRings> = Mutex::new(KernelRings::new());

/// How a call names a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RingName {
    Descriptor(i32),
    /// A number that io_uring_register(2) has given to the ring, for one thread.
    Registered {
        tid: u32,
        number: u32,
    },
}

/// A ring in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingPlace {
    index: usize,
    id: u64,
}

/// What a look has found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LookResult {
    /// Something has happened.
    pub(super) saw: bool,
    /// In a ring whose SQEs the kernel takes by itself.
    pub(super) saw_polled: bool,
    /// More may happen without a call of the program.
    pub(super) needs_looks: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct KernelRings {
    rings: Vec<Option<KernelRing>>,
    names: BTreeMap<RingName, usize>,
    /// Rings ever made.
    made: u64,
}

impl KernelRings {
    const fn new() -> Self {
        Self { rings: Vec::new(), names: BTreeMap::new(), made: 0 }
    }

    /// The rings of a copy of the process in which a thread was changing them: none is known.
    pub(super) fn forgotten(self) -> Self {
        core::mem::forget(self);
        Self::new()
    }

    /// A ring was made. Returns its index.
    pub(super) fn add(&mut self, name: RingName, params: &UringParams, maker: u32) -> u32 {
        self.lose(name);
        let index = self.rings.iter().position(Option::is_none).unwrap_or(self.rings.len());
        if index == self.rings.len() {
            self.rings.push(None);
        }
        self.made += 1;
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        self.rings[index] = Some(KernelRing::new(self.made, number, params, maker));
        self.name(name, index);
        number
    }

    fn name(&mut self, name: RingName, index: usize) {
        if let RingName::Descriptor(fd) = name {
            // From now on it is known when the number is closed.
            FileKind::of(fd);
        }
        self.names.insert(name, index);
    }

    pub(super) fn find(&self, name: RingName) -> Option<RingPlace> {
        let &index = self.names.get(&name)?;
        self.rings[index].as_ref().map(|ring| RingPlace { index, id: ring.id })
    }

    /// The ring of a place; `None`: it was closed meanwhile.
    pub(super) fn get(&mut self, place: RingPlace) -> Option<&mut KernelRing> {
        self.rings[place.index].as_mut().filter(|ring| ring.id == place.id)
    }

    /// The ring has another name, too.
    pub(super) fn also_name(&mut self, old: RingName, new: RingName) {
        if let Some(&index) = self.names.get(&old)
            && old != new
        {
            self.lose(new);
            self.name(new, index);
        }
    }

    /// A name is given up. A ring without a name is looked at for the last time.
    pub(super) fn lose(&mut self, name: RingName) {
        let Some(index) = self.names.remove(&name) else { return };
        if self.names.values().any(|&other| other == index) {
            return;
        }
        if let Some(mut ring) = self.rings[index].take() {
            with_buffer(|writer| ring.look(writer));
        }
    }

    pub(super) fn is_known(&self, name: RingName) -> bool {
        self.names.contains_key(&name)
    }

    /// Maps a ring by one of its descriptors.
    pub(super) fn map(&mut self, place: RingPlace, params: &UringParams, is_new: bool) {
        let fd = self.names.iter().find_map(|(name, &index)| match name {
            RingName::Descriptor(fd) if index == place.index => Some(*fd),
            _ => None,
        });
        // Without a descriptor there is memory of the program's own, or none.
        let memory = TracedRing::map(fd.unwrap_or(-1), params).ok();
        if let Some(ring) = self.get(place) {
            ring.set_memory(params, memory, is_new);
        }
    }

    /// Records what has happened in all rings.
    pub(super) fn look(&mut self, writer: TraceWriter<'_>) -> LookResult {
        let rings = self.rings.iter_mut().flatten();
        rings.fold(LookResult::default(), |result, ring| {
            let saw = ring.look(writer);
            LookResult {
                saw: result.saw | saw,
                saw_polled: result.saw_polled | (saw && ring.is_polled()),
                needs_looks: result.needs_looks | ring.needs_looks(),
            }
        })
    }

    pub(super) fn needs_looks(&self) -> bool {
        self.rings.iter().flatten().any(KernelRing::needs_looks)
    }

    pub(super) fn forget_in_child(&mut self) {
        self.rings.iter_mut().flatten().for_each(KernelRing::forget_in_child);
        // Registered numbers are the parent's threads'.
        self.names.retain(|name, _| matches!(name, RingName::Descriptor(fd) if !fd_table::is_unused(*fd)));
    }
}
