//! A round: fresh files, a ring, so many operations, all following from one seed.
//!
//! Operations are in flight together as far as their claims allow, and the model is brought up to date as they are made: what each must answer is known
//! before it is submitted. Nothing that is decided depends on when a completion comes: an operation counts as in flight until all before it are over. So a
//! seed names one sequence of operations on every machine, and only the order of their execution is the ring's.

use crate::choose::{Abilities, choose};
use crate::claim::Claim;
use crate::files::{DOORS, Folder, Opened, make_cold};
use crate::model::Model;
use crate::op::Op;
use crate::ring::{self, KINDS, Kind, Target};
use crate::slots::{Slots, State, difference};
use conformance_rng::Rng;
use io_uring::IoUring;
use io_uring::squeue::{Entry, Flags};
use std::collections::VecDeque;
use std::fmt::Write;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Of this program.
const RNG_SALT: u64 = 0x2545_f491_4f6c_dd1d;
const FILES: usize = 4;
const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Operations between two changes of depth.
const SAME_DEPTH: u64 = 500;
/// Operations between two looks at all bytes of all files.
const LOOK: u64 = 5000;
const LOGGED: usize = 4096;

/// What is played, and how it is going.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) can: &'a Abilities,
    /// 0: it changes.
    pub(crate) depth: usize,
    pub(crate) done: &'a AtomicU64,
    pub(crate) stop: &'a AtomicBool,
}

/// What went wrong, and with which bytes.
#[derive(Debug)]
struct Failure {
    text: String,
    file: Option<usize>,
    from: u64,
    to: u64,
}

impl Failure {
    fn of_file(file: usize, text: String) -> Self {
        Self { text, file: Some(file), from: 0, to: u64::MAX }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self { text: error.to_string(), file: None, from: 0, to: u64::MAX }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { text: format!("{error:#}"), file: None, from: 0, to: u64::MAX }
    }
}

/// An operation that counts as in flight.
#[derive(Debug)]
struct Flight {
    number: u64,
    file: usize,
    claim: Claim,
    slot: usize,
}

#[derive(Clone, Copy, Debug)]
struct Logged {
    number: u64,
    file: usize,
    op: Op,
    expected: i32,
    flags: Flags,
}

struct Round<'a> {
    plan: &'a Plan<'a>,
    rng: Rng,
    /// For what depends on when completions come, and may not change the operations.
    timing_rng: Rng,
    // Before the memory that it knows.
    ring: IoUring,
    slots: Slots,
    files: Vec<Opened>,
    models: Vec<Model>,
    folder: &'a Path,
    window: VecDeque<Flight>,
    depth: usize,
    /// SQEs to be pushed together.
    entries: Vec<Entry>,
    /// SQEs to submit at once.
    batch: usize,
    unsubmitted: usize,
    number: u64,
    log: VecDeque<Logged>,
}

/// Plays a round of this many operations. A number that names their sequence, or the report of what went wrong.
pub(crate) fn play(plan: &Plan<'_>, folder: &Folder, seed: u64, ops: u64) -> Result<u64, String> {
    let mut round = Round::new(plan, &folder.0, seed).map_err(|failure| failure.text)?;
    match round.play(ops) {
        Ok(()) => Ok(round.rng.next_u64()),
        Err(failure) => {
            let report = round.report(&failure);
            // Requests may still be in flight: their memory has to stay.
            std::mem::forget(round);
            Err(report)
        }
    }
}

fn name(folder: &Path, file: usize) -> std::path::PathBuf {
    folder.join(format!("file{file}"))
}

impl<'a> Round<'a> {
    fn new(plan: &'a Plan<'a>, folder: &'a Path, seed: u64) -> Result<Self, Failure> {
        let mut rng = Rng::new(seed, RNG_SALT);
        let slots = Slots::new()?;
        let ring = ring::new(rng.pick(&KINDS))?;
        let files = (0..FILES).map(|file| Opened::new(&name(folder, file), true)).collect::<Result<Vec<_>, _>>()?;
        ring::register(&ring, &slots, &files)?;
        let models = std::iter::repeat_with(Model::new).take(FILES).collect();
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

    fn play(&mut self, ops: u64) -> Result<(), Failure> {
        let (mut next_depth, mut next_look, mut told) = (0, LOOK, 0);
        while self.number < ops && !self.plan.stop.load(Ordering::Relaxed) {
            if self.number >= next_depth {
                next_depth += SAME_DEPTH;
                self.depth = if self.plan.depth > 0 { self.plan.depth } else { self.rng.pick(&DEPTHS) };
            }
            self.step(ops)?;
            if self.number >= next_look {
                next_look += LOOK;
                self.look_at_all()?;
            }
            if self.number - told >= 64 {
                self.plan.done.fetch_add(self.number - told, Ordering::Relaxed);
                told = self.number;
            }
        }
        self.plan.done.fetch_add(self.number - told, Ordering::Relaxed);
        self.look_at_all()?;
        self.files.iter().try_for_each(|file| make_cold(&file.plain))?;
        self.look_at_all()
    }

    fn step(&mut self, ops: u64) -> Result<(), Failure> {
        let file = self.rng.below(FILES as u64) as usize;
        let op = choose(&mut self.rng, &self.models[file], self.plan.can);
        if op.is_by_hand() {
            return self.by_hand(file, op);
        }
        let longest = self.depth.min((ops - self.number) as usize);
        let length = if self.rng.percent(12) { (2 + self.rng.below(4) as usize).min(longest) } else { 1 };
        self.through_the_ring(file, op, length)
    }

    /// Submits an operation, or a chain of them that begins with it.
    fn through_the_ring(&mut self, file: usize, first: Op, length: usize) -> Result<(), Failure> {
        let begin = self.number;
        let link = self.rng.pick(&[Flags::IO_LINK, Flags::IO_LINK, Flags::IO_HARDLINK]);
        let (mut file, mut op, mut is_broken) = (file, first, false);
        self.entries.clear();
        for i in 0..length {
            if i > 0 {
                (file, op) = self.next_of_chain(file);
            }
            let claim = Claim::of(&op, &self.models[file]);
            self.retire_conflicts(begin, file, &claim)?;
            while self.window.len() >= self.depth {
                self.retire()?;
            }
            let flags = self.flags(link, i + 1 < length, length > 1);
            let slot = self.prepare(file, op, is_broken, flags)?;
            let entry = self.entry(slot, flags);
            self.entries.push(entry);
            self.window.push_back(Flight { number: self.number, file, claim, slot });
            is_broken |= link == Flags::IO_LINK && self.slots.all[slot].content.len() < self.slots.all[slot].len && is_read(&op);
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

    /// Mostly the same file.
    fn next_of_chain(&mut self, file: usize) -> (usize, Op) {
        let file = if self.rng.percent(25) { self.rng.below(FILES as u64) as usize } else { file };
        loop {
            let op = choose(&mut self.rng, &self.models[file], self.plan.can);
            if !op.is_by_hand() {
                return (file, op);
            }
        }
    }

    fn flags(&mut self, link: Flags, is_linked: bool, is_chain: bool) -> Flags {
        let mut flags = if is_linked { link } else { Flags::empty() };
        flags.set(Flags::ASYNC, self.rng.percent(4));
        flags.set(Flags::FIXED_FILE, self.rng.percent(30));
        flags.set(Flags::IO_DRAIN, !is_chain && self.rng.below(500) == 0);
        flags
    }

    /// Gives an operation its slot, and does it to the model.
    fn prepare(&mut self, file: usize, op: Op, is_cancelled: bool, flags: Flags) -> Result<usize, Failure> {
        let slot = self.slots.free().ok_or_else(|| Failure::of_file(file, "no slot is free".into()))?;
        let model = &mut self.models[file];
        let mut content = std::mem::take(&mut self.slots.all[slot].content);
        content.clear();
        let mut expected = 0;
        self.slots.all[slot].len = 0;
        if let Some((off, len)) = model.place_of(&op) {
            let data = self.slots.fill(slot, len as usize, self.number);
            expected = len as i32;
            if !is_cancelled {
                model.write(off, data);
            }
        } else if let Some((off, len)) = model.source_of(&op) {
            self.slots.poison(slot, len as usize);
            if !is_cancelled {
                content.extend_from_slice(model.expected(off, len));
                expected = content.len() as i32;
            }
        }
        match op {
            _ if is_cancelled => expected = -libc::ECANCELED,
            Op::ReadHere { .. } | Op::WriteHere { .. } => model.position += expected as u64,
            Op::Truncate { size } => model.truncate(size),
            Op::Allocate { off, len, mode } => model.allocate(off, len, mode),
            _ => {}
        }
        let number = self.number;
        let to = &mut self.slots.all[slot];
        (to.number, to.file, to.op, to.expected, to.content, to.state) = (number, file, op, expected, content, State::InFlight);
        self.note(Logged { number, file, op, expected, flags });
        Ok(slot)
    }

    fn entry(&mut self, slot: usize, flags: Flags) -> Entry {
        let (op, file, number) = (self.slots.all[slot].op, self.slots.all[slot].file, self.slots.all[slot].number);
        let target = Target { index: file, opened: &self.files[file], is_registered: flags.contains(Flags::FIXED_FILE) };
        let shares = [self.rng.next_u64(), self.rng.next_u64(), self.rng.next_u64()];
        ring::entry(&op, &target, &mut self.slots, slot, shares).flags(flags).user_data(number << 8 | slot as u64)
    }

    /// A whole chain at once: a thread that polls the SQ takes a chain's end for where it finds the queue's.
    fn push(&mut self) -> Result<(), Failure> {
        // SAFETY: descriptors, buffers and iovecs are kept until the CQE comes.
        while unsafe { self.ring.submission().push_multiple(&self.entries) }.is_err() {
            self.submit(0)?;
            self.ring.submitter().squeue_wait()?;
        }
        Ok(())
    }

    fn submit(&mut self, wait_for: usize) -> Result<(), Failure> {
        self.unsubmitted = 0;
        match self.ring.submit_and_wait(wait_for) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Waits until nothing in flight has to do with this claim.
    fn retire_conflicts(&mut self, before: u64, file: usize, claim: &Claim) -> Result<(), Failure> {
        let conflicts = |flight: &Flight| flight.number < before && flight.file == file && flight.claim.conflicts(claim);
        let count = self.window.iter().rposition(conflicts).map_or(0, |last| last + 1);
        (0..count).try_for_each(|_| self.retire())
    }

    /// Waits for the oldest.
    fn retire(&mut self) -> Result<(), Failure> {
        let Some(oldest) = self.window.pop_front() else { return Ok(()) };
        self.reap()?;
        while self.slots.all[oldest.slot].state == State::InFlight {
            self.submit(1)?;
            self.reap()?;
        }
        self.slots.all[oldest.slot].state = State::Free;
        Ok(())
    }

    fn reap(&mut self) -> Result<(), Failure> {
        loop {
            let Some(cqe) = self.ring.completion().next() else { return Ok(()) };
            self.take(cqe.user_data(), cqe.result())?;
        }
    }

    fn take(&mut self, user_data: u64, result: i32) -> Result<(), Failure> {
        let (number, index) = (user_data >> 8, (user_data & 0xff) as usize);
        let unknown = || Failure::from(io::Error::other(format!("a CQE ({result}) for operation {number}, which is not in flight")));
        let slot = self.slots.all.get_mut(index).ok_or_else(unknown)?;
        if slot.state != State::InFlight || slot.number != number {
            return Err(unknown());
        }
        slot.state = State::Done;
        let (file, op, expected) = (slot.file, slot.op, slot.expected);
        if result != expected {
            return Err(Failure::of_file(file, format!("operation {number}, file {file}, {op}: result {result}, expected {expected}")));
        }
        if !is_read(&op) {
            return Ok(());
        }
        let Some(found) = self.slots.difference(index) else { return Ok(()) };
        let text = format!("operation {number}, file {file}, {op}: {}", found.text);
        let Op::Read { off, .. } = op else { return Err(Failure::of_file(file, text)) };
        Err(Failure { text, file: Some(file), from: off + found.at as u64, to: off + found.at as u64 + 1 })
    }

    /// What the thread does itself.
    fn by_hand(&mut self, file: usize, op: Op) -> Result<(), Failure> {
        let claim = Claim::of(&op, &self.models[file]);
        if matches!(op, Op::Reopen { .. }) {
            self.drain()?;
        }
        self.retire_conflicts(u64::MAX, file, &claim)?;
        let number = self.number;
        self.number += 1;
        self.note(Logged { number, file, op, expected: 0, flags: Flags::empty() });
        match op {
            Op::TruncateNow { size } => {
                self.files[file].plain.set_len(size)?;
                self.models[file].truncate(size);
            }
            Op::MapRead { off, len } => return self.read_mapped(file, off, len),
            Op::MapWrite { off, len } => {
                let slot = self.slots.free().ok_or_else(|| Failure::of_file(file, "no slot is free".into()))?;
                let data = self.slots.fill(slot, len as usize, number);
                self.files[file].write_mapped(off, data);
                self.models[file].write(off, data);
            }
            Op::Seek { to } => {
                self.files[file].plain.seek(SeekFrom::Start(to))?;
                self.models[file].position = to;
            }
            Op::Reopen { truncates } => self.reopen(file, truncates)?,
            _ => return self.look_at_size(file),
        }
        Ok(())
    }

    fn read_mapped(&mut self, file: usize, off: u64, len: u64) -> Result<(), Failure> {
        let slot = self.slots.free().ok_or_else(|| Failure::of_file(file, "no slot is free".into()))?;
        let found = self.slots.scratch(slot, len as usize);
        self.files[file].read_mapped(off, found);
        let Some(difference) = difference(found, self.models[file].expected(off, len)) else { return Ok(()) };
        let at = off + difference.at as u64;
        let text = format!("file {file} through its mapping at {off}, {len} bytes: {}", difference.text);
        Err(Failure { text, file: Some(file), from: at, to: at + 1 })
    }

    fn reopen(&mut self, file: usize, truncates: bool) -> Result<(), Failure> {
        // The new ones first: the table must never name a number that was closed.
        let opened = Opened::new(&name(self.folder, file), truncates)?;
        self.ring.submitter().register_files_update((file * DOORS) as u32, &opened.fds())?;
        self.files[file] = opened;
        self.models[file].position = 0;
        if truncates {
            self.models[file].truncate(0);
        }
        Ok(())
    }

    fn look_at_size(&self, file: usize) -> Result<(), Failure> {
        let (found, expected) = (self.files[file].plain.metadata()?.len(), self.models[file].size);
        if found == expected {
            return Ok(());
        }
        Err(Failure::of_file(file, format!("file {file} has {found} bytes, expected {expected}")))
    }

    fn drain(&mut self) -> Result<(), Failure> {
        while !self.window.is_empty() {
            self.retire()?;
        }
        Ok(())
    }

    /// Compares every byte of every file, by plain reads.
    fn look_at_all(&mut self) -> Result<(), Failure> {
        self.drain()?;
        for file in 0..FILES {
            self.look_at_size(file)?;
            let expected = self.models[file].content();
            let mut found = vec![0; expected.len()];
            self.files[file].plain.read_exact_at(&mut found, 0)?;
            if let Some(difference) = difference(&found, expected) {
                let at = difference.at as u64;
                let text = format!("file {file}, looked at as a whole: {}", difference.text);
                return Err(Failure { text, file: Some(file), from: at, to: at + 1 });
            }
        }
        Ok(())
    }

    fn note(&mut self, line: Logged) {
        if self.log.len() == LOGGED {
            self.log.pop_front();
        }
        self.log.push_back(line);
    }

    /// What went wrong, and the operations that may have to do with it.
    fn report(&self, failure: &Failure) -> String {
        let mut text = format!("after {} operations, depth {}: {}\n", self.number, self.depth, failure.text);
        let concerns = |line: &&Logged| failure.file.is_none_or(|file| line.file == file) && line.op.concerns(failure.from, failure.to);
        let lines: Vec<_> = self.log.iter().filter(concerns).collect();
        let shown = &lines[lines.len().saturating_sub(40)..];
        let _ = writeln!(text, "the last {} operations that may have to do with it (in flight: !):", shown.len());
        for line in shown {
            let in_flight = self.slots.all.iter().any(|slot| slot.state == State::InFlight && slot.number == line.number);
            let mark = if in_flight { '!' } else { ' ' };
            let _ = writeln!(text, "{mark} {:>8} file {} {} -> {} {:?}", line.number, line.file, line.op, line.expected, line.flags);
        }
        text
    }
}

fn is_read(op: &Op) -> bool {
    matches!(op, Op::Read { .. } | Op::ReadHere { .. } | Op::DirectRead { .. })
}

/// What this place and this ring can do.
pub(crate) fn abilities(folder: &Path) -> anyhow::Result<Abilities> {
    let path = folder.join("abilities");
    let opened = Opened::new(&path, true)?;
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
    opened.plain.set_len(16 * crate::op::BLOCK)?;
    let block = crate::op::BLOCK;
    let modes = modes.into_iter().filter(|mode| crate::files::fallocate(&opened.plain, *mode, block, block).is_ok()).collect();
    let ring_truncates = ring::truncates(&ring::new(Kind::Plain)?);
    let is_direct = opened.fd(crate::files::Door::Direct) >= 0;
    std::fs::remove_file(path)?;
    Ok(Abilities { is_direct, ring_truncates, modes })
}
