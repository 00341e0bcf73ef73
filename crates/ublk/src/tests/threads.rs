//! Clients, a server that is killed repeatedly, and its successors, on threads: every request ends
//! once, with its own data.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uringlet_abi::ublk::state;

const DEPTH: u16 = 8;
const REQUESTS: u64 = 20_000;
const FLAGS: u64 = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;

/// Writes its numbers to sectors of their own, by requests that end on other threads.
#[derive(Debug)]
struct LoadClient {
    device: Arc<UblkDevice<TestPlatform>>,
    begun: AtomicU64,
    finished: AtomicU64,
    me: std::sync::OnceLock<std::sync::Weak<LoadClient>>,
}

impl LoadClient {
    fn new(device: &Arc<UblkDevice<TestPlatform>>) -> Arc<Self> {
        let writer = Arc::new(Self {
            device: Arc::clone(device),
            begun: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            me: std::sync::OnceLock::new(),
        });
        writer.me.set(Arc::downgrade(&writer)).unwrap();
        writer
    }

    fn client(&self) -> Arc<dyn BlockClient> {
        self.me.get().unwrap().upgrade().unwrap()
    }

    /// Starts the next request, if there is a slot and one is left.
    fn start_next(&self) -> bool {
        let Some(slot) = self.device.alloc_slot(0, &self.client()) else { return false };
        let number = self.begun.fetch_add(1, Ordering::SeqCst);
        if number >= REQUESTS {
            self.device.free_slot(slot);
            return false;
        }
        self.device.write(&slot, 0, &[number as u8; 512]).unwrap();
        let request = BlockRequest { op: IoOp::Write, flags: 0, sector: number % 256, sectors: 1, data: DataLocation::Slot };
        self.device.submit(slot, request, &self.client(), number);
        true
    }
}

impl BlockClient for LoadClient {
    fn done(&self, _: u64, slot: IoSlot, result: Result<(), Errno>) {
        assert_eq!(result, Ok(()));
        self.finished.fetch_add(1, Ordering::SeqCst);
        self.device.free_slot(slot);
    }
}

/// A server: fetches, checks and commits until it is told to die or its device ends. Returns
/// whether it was told to.
fn serve(device: &UblkDevice<TestPlatform>, server: &Mutex<Vec<u8>>, task: u64, dies: &AtomicBool) -> bool {
    // A log of its own: completions for an earlier server may come late.
    let log = Log::default();
    let send = |nr, tag: u16, result| {
        let command = LoggedCommand { id: u64::from(tag), log: Arc::clone(&log), is_done: false };
        let cmd = IoCmd { q_id: 0, tag, result, addr: buffer(tag) };
        device.io_commands([IoCommand { task, cmd_op: u32::from(nr), cmd, command }]);
    };
    (0..DEPTH).for_each(|tag| send(ublk_io::FETCH_REQ, tag, 0));
    let mut armed = DEPTH;
    while armed > 0 && !dies.load(Ordering::SeqCst) {
        let next = log.lock().unwrap().pop();
        match next {
            None => std::thread::yield_now(),
            Some((_, -19)) => armed -= 1,
            Some((tag, res)) => {
                assert_eq!(res, 0);
                let tag = tag as u16;
                let iod = device.buffers().descriptors.lock().unwrap()[&(0, tag)];
                let bytes = server.lock().unwrap()[buffer(tag) as usize..][..512].to_vec();
                assert!(bytes.iter().all(|&byte| u64::from(byte) == iod.start_sector), "the data of sector {}", iod.start_sector);
                send(ublk_io::COMMIT_AND_FETCH_REQ, tag, 512);
            }
        }
    }
    dies.load(Ordering::SeqCst)
}

#[test]
fn requests_survive_server_replacement_under_load() {
    let harness = Harness::new();
    let device = harness.add(FLAGS, DEPTH);
    device.open().unwrap();
    let dies = Arc::new(AtomicBool::new(false));
    let first = spawn_server(&harness, &device, 1, &dies);
    harness.command(ctrl::START_DEV, 1).unwrap();
    let writer = LoadClient::new(&device);
    let clients: Vec<_> = (0..2).map(|_| spawn_client(&writer)).collect();
    let mut server = first;
    let mut lives = 1;
    while writer.finished.load(Ordering::SeqCst) < REQUESTS {
        lives += 1;
        let goal = (writer.finished.load(Ordering::SeqCst) + REQUESTS / 20).min(REQUESTS);
        wait_for(|| writer.finished.load(Ordering::SeqCst) >= goal);
        dies.store(true, Ordering::SeqCst);
        // The end of the ring races with the server's last steps.
        (0..DEPTH).for_each(|tag| device.cancel_io_command(&IoCmd { tag, ..IoCmd::default() }));
        server.join().unwrap();
        device.close();
        wait_for(|| device.info().state == state::QUIESCED);
        harness.command(ctrl::START_USER_RECOVERY, 0).unwrap();
        device.open().unwrap();
        dies.store(false, Ordering::SeqCst);
        server = spawn_server(&harness, &device, lives, &dies);
        harness.command(ctrl::END_USER_RECOVERY, lives).unwrap();
    }
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert!(lives > 5, "only {lives} servers");
    harness.command(ctrl::STOP_DEV, 0).unwrap();
    assert!(!server.join().unwrap(), "the last one ends with its device");
    assert_eq!(writer.finished.load(Ordering::SeqCst), REQUESTS);
}

fn spawn_server(
    harness: &Harness,
    device: &Arc<UblkDevice<TestPlatform>>,
    task: u64,
    dies: &Arc<AtomicBool>,
) -> std::thread::JoinHandle<bool> {
    let (device, server, dies) = (Arc::clone(device), Arc::clone(&harness.server), Arc::clone(dies));
    std::thread::spawn(move || serve(&device, &server, task, &dies))
}

fn spawn_client(writer: &Arc<LoadClient>) -> std::thread::JoinHandle<()> {
    let writer = Arc::clone(writer);
    std::thread::spawn(move || {
        while writer.begun.load(Ordering::SeqCst) < REQUESTS {
            if !writer.start_next() {
                std::thread::yield_now();
            }
        }
    })
}

fn wait_for(is_so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "it never comes");
        std::thread::yield_now();
    }
}
