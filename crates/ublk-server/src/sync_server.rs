//! Our own servers. They use the shared file as it is (USER_COPY): no data is copied but to where it stays.

use crate::backing::BackingStore;
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
use uringlet_ublkd::client::CharDevice;

/// The task that serves all tags: a name for the driver's sake.
const TASK: u64 = 1;
/// Requests that a thread takes at once, while they are quick.
const BATCH: usize = 16;
/// From here on a request was not quick: another thread could have been woken for the next one, ns.
const SLOW_NS: u64 = 30_000;
/// What a server can say then.
const BROKER_GONE: &str = "the broker has ended, and the device with it: add it again";

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
