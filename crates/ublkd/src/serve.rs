//! Our own servers. They use the shared file as it is (USER_COPY): no data is copied but to where it stays.

use crate::client::{BrokerClient, CharDevice, ServerParams};
use crate::platform::errno;
use anyhow::{Context, ensure};
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use rustix::io::{pread, pwrite};
use std::fs::File;
use uringlet_abi::ublk::{DevInfo, IoCmd, IoDesc, ParamBasic, ParamDiscard, feature, io, iod, param};
use uringlet_sys::Errno;
use uringlet_sys::process::monotonic_ns;
use uringlet_ublk::adaptive_spin::AdaptiveSpin;
use uringlet_ublk::io_channel::IoEvent;
use uringlet_ublk::wire::Submission;
use uringlet_ublk_front::sparse::SparseMemory;

const SECTOR: u64 = 512;
/// The task that serves all tags: a name for the driver's sake.
const TASK: u64 = 1;
/// Requests that a thread takes at once, while they are quick.
const BATCH: usize = 16;
/// From here on a request was not quick: another thread could have been woken for the next one, ns.
const SLOW_NS: u64 = 30_000;

/// Where bytes are kept.
#[derive(Debug)]
pub enum BackingStore {
    /// Nowhere: reads are zeroes.
    Null,
    /// In memory, as long as the server lives.
    Ram(Box<SparseMemory>),
    /// In a file or block device.
    File(File),
}

/// What a device is to be like.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSpec {
    /// Its number; `u32::MAX`: any.
    pub id: u32,
    /// Bytes.
    pub size: u64,
    /// Queues.
    pub queues: u16,
    /// Tags of each.
    pub depth: u16,
    /// `UBLK_F_*` besides those that every server of ours needs.
    pub flags: u64,
    /// Nothing can be written.
    pub is_read_only: bool,
    /// log2 of the logical block, bytes.
    pub block_shift: u8,
}

/// What a server can say then.
const BROKER_GONE: &str = "the broker has ended, and the device with it: add it again";
/// Longest read or write, bytes.
const IO_MAX: u32 = 1 << 20;

impl DeviceSpec {
    /// What ADD_DEV is asked for, for a server that moves its data itself.
    #[must_use]
    pub fn info(&self) -> DevInfo {
        DevInfo {
            nr_hw_queues: self.queues,
            queue_depth: self.depth,
            max_io_buf_bytes: IO_MAX,
            dev_id: self.id,
            ublksrv_pid: std::process::id().cast_signed(),
            flags: self.flags | feature::USER_COPY | feature::CMD_IOCTL_ENCODE,
            ..DevInfo::default()
        }
    }

    /// The parameters of a device with this target.
    #[must_use]
    pub fn params(&self, target: &BackingStore) -> ServerParams {
        let attrs = if self.is_read_only { param::ATTR_READ_ONLY } else { 0 };
        let cache = if matches!(target, BackingStore::File(_)) { param::ATTR_VOLATILE_CACHE } else { 0 };
        let basic = ParamBasic {
            attrs: attrs | cache,
            logical_bs_shift: self.block_shift,
            physical_bs_shift: self.block_shift.max(12),
            io_opt_shift: self.block_shift.max(12),
            io_min_shift: self.block_shift,
            max_sectors: IO_MAX / SECTOR as u32,
            dev_sectors: self.size / SECTOR,
            ..ParamBasic::default()
        };
        let discard = ParamDiscard {
            discard_granularity: 4096,
            max_discard_sectors: 1 << 21,
            max_write_zeroes_sectors: 1 << 21,
            max_discard_segments: 1,
            ..ParamDiscard::default()
        };
        ServerParams { basic, discard }
    }
}

/// A new device: added, its parameters set, its char device open.
///
/// # Errors
/// The broker's, with what to do about them.
pub fn add(client: &BrokerClient, spec: &DeviceSpec, target: &BackingStore) -> anyhow::Result<(u32, CharDevice)> {
    add_as(client, &spec.info(), spec.params(target))
}

/// The same, of whatever kind.
///
/// # Errors
/// The broker's, with what to do about them.
pub fn add_as(client: &BrokerClient, info: &DevInfo, params: ServerParams) -> anyhow::Result<(u32, CharDevice)> {
    let added = client.add(info).with_context(|| match info.dev_id {
        u32::MAX => "adding a device".to_owned(),
        id => format!("adding device {id}"),
    })?;
    let id = added.dev_id;
    let opened = client.set_params(id, params).context("setting its parameters").and_then(|()| client.open(id));
    if opened.is_err() {
        // Half a device is of no use; what went wrong is told below.
        let _ = client.delete_async(id);
    }
    Ok((id, opened?))
}

/// Serves an open char device until it is stopped. `on_armed` runs on a thread of its own when all tags are
/// on their way to be fetched: it is the one to start the device.
///
/// # Errors
/// The broker is gone, or talks nonsense.
pub fn serve(device: CharDevice, target: BackingStore, threads: u16, on_armed: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let all: Vec<_> = (0..device.queues).flat_map(|queue| (0..device.depth).map(move |tag| (queue, tag))).collect();
    let fetch = |&(q_id, tag): &(u16, u16)| Submission {
        cmd_op: Some(io::FETCH_REQ.into()),
        task: TASK,
        cmd: IoCmd { q_id, tag, result: 0, addr: 0 },
    };
    device.submit(&all.iter().map(fetch).collect::<Vec<_>>())?;
    std::thread::Builder::new().name("ublk-start".into()).spawn(on_armed)?;
    let (device, target) = (&device, &target);
    std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads)
            .map(|_| std::thread::Builder::new().name("ublk-io".into()).spawn_scoped(scope, || worker(device, target)))
            .collect::<Result<_, _>>()
            .inspect_err(|_| device.hang_up())?;
        let ends = helpers.into_iter().map(|helper| helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        // One that was told that no more will come has told the others.
        std::iter::once(worker(device, target)).chain(ends).reduce(Result::or).unwrap_or(Ok(()))
    })
}

/// One of the threads that serve. Its end is that of the others.
fn worker(device: &CharDevice, target: &BackingStore) -> anyhow::Result<()> {
    let result = worker_loop(device, target);
    device.hang_up();
    result
}

/// The thread that has the watch does what is quick at once: to wake another one would take longer. Before what may take long it lets the watch go.
fn worker_loop(device: &CharDevice, target: &BackingStore) -> anyhow::Result<()> {
    let (mut spin, mut events, mut commits, mut is_slow) = (AdaptiveSpin::new(), Vec::new(), Vec::new(), false);
    loop {
        let mut receiver = device.lock_events();
        loop {
            receiver.wait_events(if is_slow { 1 } else { BATCH }, &mut spin, &mut events)?;
            ensure!(!events.is_empty(), BROKER_GONE);
            if events.iter().any(|event| event.completion.res == io::RES_ABORT) {
                // No more will come. What is with the other threads is of no interest to anybody: the driver has ended it.
                return Ok(());
            }
            if is_slow || events.iter().any(|event| target.is_slow_for(&event.iod)) {
                break;
            }
            is_slow = commit(device, target, &events, &mut commits)?;
        }
        drop(receiver);
        is_slow = commit(device, target, &events, &mut commits)?;
    }
}

/// Does what has arrived. Whether it took long.
fn commit(device: &CharDevice, target: &BackingStore, events: &[IoEvent], commits: &mut Vec<Submission>) -> anyhow::Result<bool> {
    let begun = monotonic_ns();
    commits.clear();
    commits.extend(events.iter().map(|event| handle(device, target, event)));
    let is_slow = matches!(target, BackingStore::File(_)) && monotonic_ns() - begun > SLOW_NS * events.len() as u64;
    device.submit(commits)?;
    Ok(is_slow)
}

/// One request: its commit.
fn handle(device: &CharDevice, target: &BackingStore, event: &IoEvent) -> Submission {
    let (queue, tag) = (event.completion.queue, event.completion.tag);
    let result = run(device, target, &event.iod, io::slot(queue, tag)).unwrap_or_else(|errno| -errno.into_raw());
    Submission { cmd_op: Some(io::COMMIT_AND_FETCH_REQ.into()), task: TASK, cmd: IoCmd { q_id: queue, tag, result, addr: 0 } }
}

fn run(device: &CharDevice, target: &BackingStore, iod: &IoDesc, slot: u64) -> Result<i32, Errno> {
    // Of a flush there is no position: the descriptor says -1.
    let (at, len) = (iod.start_sector.saturating_mul(SECTOR), u64::from(iod.nr_sectors) * SECTOR);
    match iod.op_flags & 0xff {
        iod::READ => {
            let mut bytes = vec![0; len as usize];
            target.read(at, &mut bytes)?;
            let put = pwrite(&device.file, &bytes, slot).map_err(errno)?;
            Ok(put as i32)
        }
        iod::WRITE if matches!(target, BackingStore::Null) => Ok(len as i32),
        iod::WRITE => {
            let mut bytes = vec![0; len as usize];
            let got = pread(&device.file, &mut bytes, slot).map_err(errno)?;
            target.write(at, &bytes[..got])?;
            Ok(got as i32)
        }
        iod::FLUSH => target.flush().map(|()| 0),
        // A hint.
        iod::DISCARD => match target.zero(at, len, true) {
            Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(0),
            Err(errno) => Err(errno),
        },
        iod::WRITE_ZEROES => match target.zero(at, len, iod.op_flags & iod::F_NOUNMAP == 0) {
            Ok(()) => Ok(0),
            Err(Errno::EOPNOTSUPP) => target.write_zeroes(at, len).map(|()| 0),
            Err(errno) => Err(errno),
        },
        _ => Err(Errno::EOPNOTSUPP),
    }
}

impl BackingStore {
    /// Whether this takes long, as far as can be told before.
    fn is_slow_for(&self, iod: &IoDesc) -> bool {
        matches!(self, Self::File(_)) && matches!(iod.op_flags & 0xff, iod::FLUSH | iod::DISCARD | iod::WRITE_ZEROES)
    }

    /// Fills `bytes` from position `at` on.
    ///
    /// # Errors
    /// Those of pread(2).
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        match self {
            Self::Null => {}
            Self::Ram(memory) => memory.read(at, bytes),
            Self::File(file) => {
                // What lies beyond the end of a file that shrank is zeroes.
                let mut done = 0;
                while done < bytes.len() {
                    match pread(file, &mut bytes[done..], at + done as u64).map_err(errno)? {
                        0 => break,
                        read => done += read,
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes them to position `at`.
    ///
    /// # Errors
    /// Those of pwrite(2).
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Null => {}
            Self::Ram(memory) => memory.write(at, bytes),
            Self::File(file) => {
                let mut done = 0;
                while done < bytes.len() {
                    done += pwrite(file, &bytes[done..], at + done as u64).map_err(errno)?;
                }
            }
        }
        Ok(())
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// Those of fdatasync(2).
    pub fn flush(&self) -> Result<(), Errno> {
        match self {
            Self::File(file) => fdatasync(file).map_err(errno),
            _ => Ok(()),
        }
    }

    /// Where the file knows no quicker way.
    ///
    /// # Errors
    /// Those of pwrite(2).
    pub fn write_zeroes(&self, at: u64, len: u64) -> Result<(), Errno> {
        let zeroes = [0; 64 * 1024];
        let step = zeroes.len() as u64;
        (0..len).step_by(zeroes.len()).try_for_each(|done| self.write(at + done, &zeroes[..step.min(len - done) as usize]))
    }

    /// Zeroes a range without writing it.
    ///
    /// # Errors
    /// Those of fallocate(2): `EOPNOTSUPP` the file cannot.
    pub fn zero(&self, at: u64, len: u64, may_unmap: bool) -> Result<(), Errno> {
        match self {
            Self::Null => Ok(()),
            Self::Ram(memory) => {
                memory.zero(at, len);
                Ok(())
            }
            Self::File(file) => {
                let how = if may_unmap { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
                fallocate(file, how | FallocateFlags::KEEP_SIZE, at, len).map_err(errno)
            }
        }
    }
}
