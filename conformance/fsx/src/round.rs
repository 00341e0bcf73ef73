//! A round: fresh files, a ring, and a number of operations that all follow from one seed.
//!
//! Operations are in flight together as far as their claims allow, and the model is updated when
//! they are chosen: the result of each is known before it is submitted. No decision depends on when
//! a completion arrives: an operation counts as in flight until all operations before it are over.
//! So a seed names one sequence of operations on every machine; only their execution order is the
//! ring's.

use crate::choose::{Abilities, choose};
use crate::claim::RangeClaim;
use crate::files::{FileHandles, HANDLES, ScratchDir, drop_cache};
use crate::model::FileModel;
use crate::op::{ChainPlace, Contents, Fate, FileOp};
use crate::ring::{self, KINDS, OpTarget, RingKind};
use crate::slots::{BufferSlots, SlotState, difference};
use conformance_rng::Rng;
use io_uring::IoUring;
use io_uring::squeue::{Entry, Flags};
use std::collections::VecDeque;
use std::fmt::Write;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The salt of this program's random numbers.
const RNG_SALT: u64 = 0x2545_f491_4f6c_dd1d;
const FILES: usize = 4;
const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Operations between two changes of the depth.
const DEPTH_INTERVAL: u64 = 500;
/// Operations between two comparisons of all bytes of all files.
const CHECK_INTERVAL: u64 = 5000;
const LOG_LEN: usize = 4096;

/// The parameters and the progress of a run.
#[derive(Debug)]
pub(crate) struct RoundPlan<'a> {
    pub(crate) can: &'a Abilities,
    /// 0: the depth changes.
    pub(crate) depth: usize,
    pub(crate) done: &'a AtomicU64,
    pub(crate) stop: &'a AtomicBool,
}

/// A failed check, and the bytes that it concerns.
#[derive(Debug)]
struct RoundFailure {
    text: String,
    file: Option<usize>,
    from: u64,
    to: u64,
}

impl RoundFailure {
    fn of_file(file: usize, text: String) -> Self {
        Self { text, file: Some(file), from: 0, to: u64::MAX }
    }
}

impl From<io::Error> for RoundFailure {
    fn from(error: io::Error) -> Self {
        Self { text: error.to_string(), file: None, from: 0, to: u64::MAX }
    }
}

impl From<anyhow::Error> for RoundFailure {
    fn from(error: anyhow::Error) -> Self {
        Self { text: format!("{error:#}"), file: None, from: 0, to: u64::MAX }
    }
}

/// An operation that counts as in flight.
#[derive(Debug)]
struct InFlightOp {
    number: u64,
    file: usize,
    claim: RangeClaim,
    slot: usize,
}

#[derive(Clone, Copy, Debug)]
struct LoggedOp {
    number: u64,
    file: usize,
    op: FileOp,
    expected: i32,
    flags: Flags,
}

struct Round<'a> {
    plan: &'a RoundPlan<'a>,
    rng: Rng,
    /// For decisions that depend on the time of completions, and so must not change the operations.
    timing_rng: Rng,
    // Dropped before the memory that the ring has registered.
    ring: IoUring,
    slots: BufferSlots,
    files: Vec<FileHandles>,
    models: Vec<FileModel>,
    folder: &'a Path,
    window: VecDeque<InFlightOp>,
    depth: usize,
    /// SQEs that are pushed together.
    entries: Vec<Entry>,
    /// Number of SQEs to submit at once.
    batch: usize,
    unsubmitted: usize,
    number: u64,
    log: VecDeque<LoggedOp>,
}

/// Plays a round of this many operations. Returns a number that identifies the sequence, or a
/// report of the failure.
pub(crate) fn play(plan: &RoundPlan<'_>, folder: &ScratchDir, seed: u64, ops: u64) -> Result<u64, String> {
    let mut round = Round::new(plan, &folder.0, seed).map_err(|failure| failure.text)?;
    match round.play(ops) {
        Ok(()) => Ok(round.rng.next_u64()),
        Err(failure) => {
            let report = round.report(&failure);
            // Requests may still be in flight, so their memory is leaked.
            std::mem::forget(round);
            Err(report)
        }
    }
}

fn name(folder: &Path, file: usize) -> std::path::PathBuf {
    folder.join(format!("file{file}"))
}

impl<'a> Round<'a> {
    fn new(plan: &'a RoundPlan<'a>, folder: &'a Path, seed: u64) -> Result<Self, RoundFailure> {
        let mut rng = Rng::new(seed, RNG_SALT);
        let slots = BufferSlots::new()?;
        let ring = ring::new(rng.pick(&KINDS))?;
        let files = (0..FILES).map(|file| FileHandles::new(&name(folder, file), Contents::Truncated)).collect::<Result<Vec<_>, _>>()?;
        ring::register(&ring, &slots, &files)?;
        let models = std::iter::repeat_with(FileModel::new).take(FILES).collect();
        let (window, entries, log) = (VecDeque::new(), Vec::new(), VecDeque::new());
        Ok(Self {
            plan,
            rng,
            timing_rng: Rng::new(!seed, RNG_SALT),
            ring,
            slots,
            files,
            models,
            folder,
            window,
            depth: 1,
            entries,
            batch: 1,
            unsubmitted: 0,
            number: 0,
            log,
        })
    }

    fn play(&mut self, ops: u64) -> Result<(), RoundFailure> {
        let (mut next_depth, mut next_check, mut told) = (0, CHECK_INTERVAL, 0);
        while self.number < ops && !self.plan.stop.load(Ordering::Relaxed) {
            if self.number >= next_depth {
                next_depth += DEPTH_INTERVAL;
                self.depth = if self.plan.depth > 0 { self.plan.depth } else { self.rng.pick(&DEPTHS) };
            }
            self.step(ops)?;
            if self.number >= next_check {
                next_check += CHECK_INTERVAL;
                self.check_all_files()?;
            }
            if self.number - told >= 64 {
                self.plan.done.fetch_add(self.number - told, Ordering::Relaxed);
                told = self.number;
            }
        }
        self.plan.done.fetch_add(self.number - told, Ordering::Relaxed);
        self.check_all_files()?;
        self.files.iter().try_for_each(|file| drop_cache(&file.plain))?;
        self.check_all_files()
    }

    fn step(&mut self, ops: u64) -> Result<(), RoundFailure> {
        let file = self.rng.below(FILES as u64) as usize;
        let op = choose(&mut self.rng, &self.models[file], self.plan.can);
        if op.is_direct_call() {
            return self.call_directly(file, op);
        }
        let longest = self.depth.min((ops - self.number) as usize);
        let length = if self.rng.percent(12) { (2 + self.rng.below(4) as usize).min(longest) } else { 1 };
        self.submit_chain(file, op, length)
    }

    /// Submits an operation, or a chain that begins with it.
    fn submit_chain(&mut self, file: usize, first: FileOp, length: usize) -> Result<(), RoundFailure> {
        let begin = self.number;
        let link = self.rng.pick(&[Flags::IO_LINK, Flags::IO_LINK, Flags::IO_HARDLINK]);
        let (mut file, mut op, mut fate) = (file, first, Fate::Runs);
        self.entries.clear();
        for i in 0..length {
            if i > 0 {
                (file, op) = self.next_of_chain(file);
            }
            let claim = RangeClaim::of(&op, &self.models[file]);
            self.retire_conflicts(begin, file, &claim)?;
            while self.window.len() >= self.depth {
                self.retire()?;
            }
            let flags = self.flags(link, ChainPlace::of(i, length));
            let slot = self.prepare(file, op, fate, flags)?;
            let entry = self.entry(slot, flags);
            self.entries.push(entry);
            self.window.push_back(InFlightOp { number: self.number, file, claim, slot });
            if link == Flags::IO_LINK && self.slots.all[slot].content.len() < self.slots.all[slot].len && is_read(&op) {
                fate = Fate::IsCancelled;
            }
            self.number += 1;
        }
        self.push()?;
        self.unsubmitted += length;
        if self.unsubmitted >= self.batch {
            self.submit(0)?;
            self.batch = 1 + self.timing_rng.below(self.depth as u64) as usize;
        }
        self.reap()
    }

    /// The next operation of a chain, mostly on the same file.
    fn next_of_chain(&mut self, file: usize) -> (usize, FileOp) {
        let file = if self.rng.percent(25) { self.rng.below(FILES as u64) as usize } else { file };
        loop {
            let op = choose(&mut self.rng, &self.models[file], self.plan.can);
            if !op.is_direct_call() {
                return (file, op);
            }
        }
    }

    fn flags(&mut self, link: Flags, place: ChainPlace) -> Flags {
        let mut flags = if place == ChainPlace::Inside { link } else { Flags::empty() };
        flags.set(Flags::ASYNC, self.rng.percent(4));
        flags.set(Flags::FIXED_FILE, self.rng.percent(30));
        flags.set(Flags::IO_DRAIN, place == ChainPlace::Single && self.rng.below(500) == 0);
        flags
    }

    /// Assigns a slot to an operation, and applies it to the model.
    fn prepare(&mut self, file: usize, op: FileOp, fate: Fate, flags: Flags) -> Result<usize, RoundFailure> {
        let slot = self.slots.free().ok_or_else(|| RoundFailure::of_file(file, "no slot is free".into()))?;
        let model = &mut self.models[file];
        let mut content = std::mem::take(&mut self.slots.all[slot].content);
        content.clear();
        let mut expected = 0;
        self.slots.all[slot].len = 0;
        if let Some((off, len)) = model.write_range(&op) {
            let data = self.slots.fill(slot, len as usize, self.number);
            expected = len as i32;
            if fate == Fate::Runs {
                model.write(off, data);
            }
        } else if let Some((off, len)) = model.read_range(&op) {
            self.slots.poison(slot, len as usize);
            if fate == Fate::Runs {
                content.extend_from_slice(model.expected(off, len));
                expected = content.len() as i32;
            }
        }
        match op {
            _ if fate == Fate::IsCancelled => expected = -libc::ECANCELED,
            FileOp::ReadAtPosition { .. } | FileOp::WriteAtPosition { .. } => model.position += expected as u64,
            FileOp::Truncate { size } => model.truncate(size),
            FileOp::Allocate { off, len, mode } => model.allocate(off, len, mode),
            _ => {}
        }
        let number = self.number;
        let to = &mut self.slots.all[slot];
        (to.number, to.file, to.op, to.expected, to.content, to.state) = (number, file, op, expected, content, SlotState::InFlight);
        self.log_op(LoggedOp { number, file, op, expected, flags });
        Ok(slot)
    }

    fn entry(&mut self, slot: usize, flags: Flags) -> Entry {
        let (op, file, number) = (self.slots.all[slot].op, self.slots.all[slot].file, self.slots.all[slot].number);
        let target = OpTarget { index: file, handles: &self.files[file], is_registered: flags.contains(Flags::FIXED_FILE) };
        let cuts = [self.rng.next_u64(), self.rng.next_u64(), self.rng.next_u64()];
        ring::entry(&op, &target, &mut self.slots, slot, cuts).flags(flags).user_data(number << 8 | slot as u64)
    }

    /// Pushes a whole chain at once: an SQPOLL thread ends a chain where it finds the end of the
    /// queue.
    fn push(&mut self) -> Result<(), RoundFailure> {
        // SAFETY: descriptors, buffers and iovecs are kept until the CQE comes.
        while unsafe { self.ring.submission().push_multiple(&self.entries) }.is_err() {
            self.submit(0)?;
            self.ring.submitter().squeue_wait()?;
        }
        Ok(())
    }

    fn submit(&mut self, wait_for: usize) -> Result<(), RoundFailure> {
        self.unsubmitted = 0;
        match self.ring.submit_and_wait(wait_for) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Waits until no operation in flight conflicts with this claim.
    fn retire_conflicts(&mut self, before: u64, file: usize, claim: &RangeClaim) -> Result<(), RoundFailure> {
        let conflicts = |flight: &InFlightOp| flight.number < before && flight.file == file && flight.claim.conflicts(claim);
        let count = self.window.iter().rposition(conflicts).map_or(0, |last| last + 1);
        (0..count).try_for_each(|_| self.retire())
    }

    /// Waits for the oldest operation.
    fn retire(&mut self) -> Result<(), RoundFailure> {
        let Some(oldest) = self.window.pop_front() else { return Ok(()) };
        self.reap()?;
        while self.slots.all[oldest.slot].state == SlotState::InFlight {
            self.submit(1)?;
            self.reap()?;
        }
        self.slots.all[oldest.slot].state = SlotState::Free;
        Ok(())
    }

    fn reap(&mut self) -> Result<(), RoundFailure> {
        loop {
            let Some(cqe) = self.ring.completion().next() else { return Ok(()) };
            self.check_cqe(cqe.user_data(), cqe.result())?;
        }
    }

    fn check_cqe(&mut self, user_data: u64, result: i32) -> Result<(), RoundFailure> {
        let (number, index) = (user_data >> 8, (user_data & 0xff) as usize);
        let unknown = || RoundFailure::from(io::Error::other(format!("a CQE ({result}) for operation {number}, which is not in flight")));
        let slot = self.slots.all.get_mut(index).ok_or_else(unknown)?;
        if slot.state != SlotState::InFlight || slot.number != number {
            return Err(unknown());
        }
        slot.state = SlotState::Done;
        let (file, op, expected) = (slot.file, slot.op, slot.expected);
        if result != expected {
            return Err(RoundFailure::of_file(
                file,
                format!("operation {number}, file {file}, {op}: result {result}, expected {expected}"),
            ));
        }
        if !is_read(&op) {
            return Ok(());
        }
        let Some(found) = self.slots.difference(index) else { return Ok(()) };
        let text = format!("operation {number}, file {file}, {op}: {}", found.text);
        let FileOp::Read { off, .. } = op else { return Err(RoundFailure::of_file(file, text)) };
        Err(RoundFailure { text, file: Some(file), from: off + found.at as u64, to: off + found.at as u64 + 1 })
    }

    /// Executes an operation by system calls of this thread.
    fn call_directly(&mut self, file: usize, op: FileOp) -> Result<(), RoundFailure> {
        let claim = RangeClaim::of(&op, &self.models[file]);
        if matches!(op, FileOp::Reopen { .. }) {
            self.drain()?;
        }
        self.retire_conflicts(u64::MAX, file, &claim)?;
        let number = self.number;
        self.number += 1;
        self.log_op(LoggedOp { number, file, op, expected: 0, flags: Flags::empty() });
        match op {
            FileOp::TruncateDirectly { size } => {
                self.files[file].plain.set_len(size)?;
                self.models[file].truncate(size);
            }
            FileOp::MapRead { off, len } => return self.read_mapped(file, off, len),
            FileOp::MapWrite { off, len } => {
                let slot = self.slots.free().ok_or_else(|| RoundFailure::of_file(file, "no slot is free".into()))?;
                let data = self.slots.fill(slot, len as usize, number);
                self.files[file].write_mapped(off, data);
                self.models[file].write(off, data);
            }
            FileOp::Seek { to } => {
                self.files[file].plain.seek(SeekFrom::Start(to))?;
                self.models[file].position = to;
            }
            FileOp::Reopen { contents } => self.reopen(file, contents)?,
            _ => return self.check_size(file),
        }
        Ok(())
    }

    fn read_mapped(&mut self, file: usize, off: u64, len: u64) -> Result<(), RoundFailure> {
        let slot = self.slots.free().ok_or_else(|| RoundFailure::of_file(file, "no slot is free".into()))?;
        let found = self.slots.scratch(slot, len as usize);
        self.files[file].read_mapped(off, found);
        let Some(difference) = difference(found, self.models[file].expected(off, len)) else { return Ok(()) };
        let at = off + difference.at as u64;
        let text = format!("file {file} through its mapping at {off}, {len} bytes: {}", difference.text);
        Err(RoundFailure { text, file: Some(file), from: at, to: at + 1 })
    }

    fn reopen(&mut self, file: usize, contents: Contents) -> Result<(), RoundFailure> {
        // Register the new descriptors first: the table must never contain a closed one.
        let handles = FileHandles::new(&name(self.folder, file), contents)?;
        self.ring.submitter().register_files_update((file * HANDLES) as u32, &handles.fds())?;
        self.files[file] = handles;
        self.models[file].position = 0;
        if contents == Contents::Truncated {
            self.models[file].truncate(0);
        }
        Ok(())
    }

    fn check_size(&self, file: usize) -> Result<(), RoundFailure> {
        let (found, expected) = (self.files[file].plain.metadata()?.len(), self.models[file].size);
        if found == expected {
            return Ok(());
        }
        Err(RoundFailure::of_file(file, format!("file {file} has {found} bytes, expected {expected}")))
    }

    fn drain(&mut self) -> Result<(), RoundFailure> {
        while !self.window.is_empty() {
            self.retire()?;
        }
        Ok(())
    }

    /// Compares every byte of every file with the model, by plain reads.
    fn check_all_files(&mut self) -> Result<(), RoundFailure> {
        self.drain()?;
        for file in 0..FILES {
            self.check_size(file)?;
            let expected = self.models[file].content();
            let mut found = vec![0; expected.len()];
            self.files[file].plain.read_exact_at(&mut found, 0)?;
            if let Some(difference) = difference(&found, expected) {
                let at = difference.at as u64;
                let text = format!("file {file}, looked at as a whole: {}", difference.text);
                return Err(RoundFailure { text, file: Some(file), from: at, to: at + 1 });
            }
        }
        Ok(())
    }

    fn log_op(&mut self, line: LoggedOp) {
        if self.log.len() == LOG_LEN {
            self.log.pop_front();
        }
        self.log.push_back(line);
    }

    /// The failure, and the operations that may have caused it.
    fn report(&self, failure: &RoundFailure) -> String {
        let mut text = format!("after {} operations, depth {}: {}\n", self.number, self.depth, failure.text);
        let concerns = |line: &&LoggedOp| failure.file.is_none_or(|file| line.file == file) && line.op.concerns(failure.from, failure.to);
        let lines: Vec<_> = self.log.iter().filter(concerns).collect();
        let shown = &lines[lines.len().saturating_sub(40)..];
        let _ = writeln!(text, "the last {} operations that may have to do with it (in flight: !):", shown.len());
        for line in shown {
            let in_flight = self.slots.all.iter().any(|slot| slot.state == SlotState::InFlight && slot.number == line.number);
            let mark = if in_flight { '!' } else { ' ' };
            let _ = writeln!(text, "{mark} {:>8} file {} {} -> {} {:?}", line.number, line.file, line.op, line.expected, line.flags);
        }
        text
    }
}

fn is_read(op: &FileOp) -> bool {
    matches!(op, FileOp::Read { .. } | FileOp::ReadAtPosition { .. } | FileOp::DirectRead { .. })
}

/// Detects what this filesystem and this ring support.
pub(crate) fn abilities(folder: &Path) -> anyhow::Result<Abilities> {
    let path = folder.join("abilities");
    let handles = FileHandles::new(&path, Contents::Truncated)?;
    let keep = libc::FALLOC_FL_KEEP_SIZE;
    let modes = [
        0,
        keep,
        libc::FALLOC_FL_PUNCH_HOLE | keep,
        libc::FALLOC_FL_ZERO_RANGE,
        libc::FALLOC_FL_ZERO_RANGE | keep,
        libc::FALLOC_FL_COLLAPSE_RANGE,
        libc::FALLOC_FL_INSERT_RANGE,
    ];
    handles.plain.set_len(16 * crate::op::BLOCK)?;
    let block = crate::op::BLOCK;
    let modes = modes.into_iter().filter(|mode| crate::files::fallocate(&handles.plain, *mode, block, block).is_ok()).collect();
    let ring_truncates = ring::truncates(&ring::new(RingKind::Plain)?);
    let is_direct = handles.fd(crate::files::HandleKind::Direct) >= 0;
    std::fs::remove_file(path)?;
    Ok(Abilities { is_direct, ring_truncates, modes })
}
