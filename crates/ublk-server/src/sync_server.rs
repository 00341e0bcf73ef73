//! A server on threads. It uses the shared file in place (USER_COPY), so data is copied only
//! between slot and backing store.

use crate::backing::{BackingStore, Unmap};
use crate::errno::errno;
use anyhow::ensure;
use rustix::io::{pread, pwrite};
use uringlet_abi::ublk::{IoCmd, IoDesc, io, iod};
use uringlet_sys::Errno;
use uringlet_sys::process::monotonic_ns;
use uringlet_ublk::adaptive_spin::AdaptiveSpin;
use uringlet_ublk::frontend::SECTOR;
use uringlet_ublk::io_channel::IoEvent;
use uringlet_ublk::wire::Submission;
use uringlet_ublkd::client::{BrokerGone, CharDevice};

/// The driver's name for the task that serves all tags.
const TASK: u64 = 1;
/// Most requests that a thread takes at once while they are fast.
const BATCH: usize = 16;
/// Threshold of a slow request, ns: by then another thread could have been woken for the next one.
const SLOW_NS: u64 = 30_000;

/// Serves an open char device until it is stopped. `on_armed` runs on a thread of its own once all
/// FETCH commands are submitted, and starts the device. No request is being executed any more when
/// this returns.
///
/// # Errors
/// [`BrokerGone`]; its rings are corrupt.
pub fn serve(device: &CharDevice, target: &BackingStore, threads: u16, on_armed: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let all: Vec<_> = (0..device.queues).flat_map(|queue| (0..device.depth).map(move |tag| (queue, tag))).collect();
    let fetch = |&(q_id, tag): &(u16, u16)| Submission {
        cmd_op: Some(io::FETCH_REQ.into()),
        task: TASK,
        cmd: IoCmd { q_id, tag, result: 0, addr: 0 },
    };
    device.submit(&all.iter().map(fetch).collect::<Vec<_>>())?;
    std::thread::Builder::new().name("ublk-start".into()).spawn(on_armed)?;
    std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads)
            .map(|_| std::thread::Builder::new().name("ublk-io".into()).spawn_scoped(scope, || worker(device, target)))
            .collect::<Result<_, _>>()
            .inspect_err(|_| device.hang_up())?;
        let ends = helpers.into_iter().map(|helper| helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        // A thread that saw the regular end has disconnected the others: one success is success.
        std::iter::once(worker(device, target)).chain(ends).reduce(Result::or).unwrap_or(Ok(()))
    })
}

/// One of the serving threads. When it ends, the others end too.
fn worker(device: &CharDevice, target: &BackingStore) -> anyhow::Result<()> {
    let result = worker_loop(device, target);
    device.hang_up();
    result
}

/// The thread that receives events executes fast requests itself, as waking another thread takes
/// longer. Before a request that may be slow it lets another thread receive.
fn worker_loop(device: &CharDevice, target: &BackingStore) -> anyhow::Result<()> {
    let (mut spin, mut events, mut commits, mut is_slow) = (AdaptiveSpin::new(), Vec::new(), Vec::new(), false);
    loop {
        let mut receiver = device.lock_events();
        loop {
            receiver.wait_events(if is_slow { 1 } else { BATCH }, &mut spin, &mut events)?;
            ensure!(!events.is_empty(), BrokerGone);
            if events.iter().any(|event| event.completion.res == io::RES_ABORT) {
                // The device was stopped. The driver has completed the requests of the other
                // threads.
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

/// Executes and commits requests. True: they were slow.
fn commit(device: &CharDevice, target: &BackingStore, events: &[IoEvent], commits: &mut Vec<Submission>) -> anyhow::Result<bool> {
    let start = monotonic_ns();
    commits.clear();
    commits.extend(events.iter().map(|event| handle(device, target, event)));
    let is_slow = matches!(target, BackingStore::File(_)) && monotonic_ns() - start > SLOW_NS * events.len() as u64;
    device.submit(commits)?;
    Ok(is_slow)
}

/// Executes one request; returns its commit.
fn handle(device: &CharDevice, target: &BackingStore, event: &IoEvent) -> Submission {
    let (queue, tag) = (event.completion.queue, event.completion.tag);
    let result = run(device, target, &event.iod, io::slot(queue, tag)).unwrap_or_else(|errno| -errno.into_raw());
    Submission { cmd_op: Some(io::COMMIT_AND_FETCH_REQ.into()), task: TASK, cmd: IoCmd { q_id: queue, tag, result, addr: 0 } }
}

fn run(device: &CharDevice, target: &BackingStore, iod: &IoDesc, slot: u64) -> Result<i32, Errno> {
    // A flush has no position: the descriptor says -1.
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
        // Only a hint.
        iod::DISCARD => match target.zero(at, len, Unmap::Allowed) {
            Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(0),
            Err(errno) => Err(errno),
        },
        iod::WRITE_ZEROES => match target.zero(at, len, Unmap::of(iod.op_flags)) {
            Ok(()) => Ok(0),
            Err(Errno::EOPNOTSUPP) => target.write_zeroes(at, len).map(|()| 0),
            Err(errno) => Err(errno),
        },
        _ => Err(Errno::EOPNOTSUPP),
    }
}
