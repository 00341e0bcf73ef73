//! The null server: a thread with a ring, as ublksrv's. What it is told to write it forgets, what it is asked for is whatever its buffer holds.

use anyhow::{bail, ensure};
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread::JoinHandle;
use uringlet_abi::ublk::{IoCmd, IoDesc, io, iod};

use super::control::{io_command, open};
use crate::liburing::LibRing;

/// Where a write's data is when the server handles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataPath {
    /// In the buffer of its tag.
    Plain,
    /// In a buffer that was in_use from a pool when the write was there: NEED_GET_DATA.
    GetData,
    /// In such a buffer, too, copied there by the server.
    Copy,
}

/// One that runs.
pub(super) struct NullServer(JoinHandle<anyhow::Result<()>>);

impl NullServer {
    pub(super) fn start(device: u32, data_path: DataPath, depth: u32, block: u32) -> anyhow::Result<Self> {
        let file = open(&format!("/dev/ublkc{device}"))?.into();
        Ok(Self(
            std::thread::Builder::new().name("server".to_owned()).spawn(move || NullQueue::open(file, data_path, depth, block)?.serve())?,
        ))
    }

    /// After STOP_DEV.
    pub(super) fn join(self) -> anyhow::Result<()> {
        self.0.join().unwrap_or_else(|_| bail!("the server panicked"))
    }
}

type QueueBuffer = Box<[u8]>;

struct NullQueue {
    file: OwnedFd,
    ring: LibRing,
    data_path: DataPath,
    descriptors: *const IoDesc,
    /// By tag.
    buffers: Vec<QueueBuffer>,
    /// What an RPC framework would give: the one that was used last first.
    pool: Vec<QueueBuffer>,
    /// Those of writes under data_path, by tag.
    in_use: Vec<Option<QueueBuffer>>,
    armed: u32,
}

/// All pages are there.
fn buffer(len: u32) -> QueueBuffer {
    vec![1; len as usize].into_boxed_slice()
}

impl NullQueue {
    fn open(file: OwnedFd, data_path: DataPath, depth: u32, block: u32) -> anyhow::Result<Self> {
        const COOP_TASKRUN: u32 = 1 << 8;
        const SINGLE_ISSUER: u32 = 1 << 12;
        let len = (depth as usize * IoDesc::SIZE).next_multiple_of(4096);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        ensure!(at != libc::MAP_FAILED, "mapping the descriptors: {}", std::io::Error::last_os_error());
        let ring = LibRing::with_flags(depth.next_power_of_two(), COOP_TASKRUN | SINGLE_ISSUER)?;
        let all = || (0..depth).map(|_| buffer(block)).collect();
        let pool = if data_path == DataPath::Plain { Vec::new() } else { all() };
        let in_use = (0..depth).map(|_| None).collect();
        Ok(Self { file, ring, data_path, descriptors: at.cast(), buffers: all(), pool, in_use, armed: 0 })
    }

    fn command(&mut self, nr: u8, tag: u64, result: i32, addr: u64) {
        let cmd = IoCmd { q_id: 0, tag: tag as u16, result, addr };
        self.ring.get_sqe().prep_command(self.file.as_raw_fd(), io_command(nr), 0, &cmd.to_bytes(), tag);
        self.armed += 1;
    }

    /// Until all commands have come back with ENODEV.
    fn serve(mut self) -> anyhow::Result<()> {
        for tag in 0..self.buffers.len() as u64 {
            let addr = if self.data_path == DataPath::GetData { 0 } else { self.address(tag) };
            self.command(io::FETCH_REQ, tag, 0, addr);
        }
        let mut events = Vec::with_capacity(self.buffers.len());
        while self.armed > 0 {
            ensure!(self.ring.submit_and_wait(1) >= 0, "the server's wait failed");
            self.ring.for_each_cqe(|tag, res| events.push((tag, res)));
            for (tag, res) in events.drain(..) {
                self.armed -= 1;
                self.handle_completion(tag, res)?;
            }
        }
        Ok(())
    }

    fn address(&mut self, tag: u64) -> u64 {
        self.buffers[tag as usize].as_mut_ptr() as u64
    }

    fn handle_completion(&mut self, tag: u64, res: i32) -> anyhow::Result<()> {
        // SAFETY: the descriptor of a tag of this queue; the driver wrote it before it completed the command, and lets it be until the commit.
        let (op_flags, sectors) = unsafe {
            let descriptor = self.descriptors.cast::<[u32; 6]>().add(tag as usize).cast::<u32>();
            (descriptor.read_volatile(), descriptor.add(1).read_volatile())
        };
        let len = (sectors * 512) as usize;
        match res {
            io::RES_OK => {}
            io::RES_NEED_GET_DATA => {
                let mut buffer = self.take_buffer(len);
                let addr = buffer.as_mut_ptr() as u64;
                self.in_use[tag as usize] = Some(buffer);
                self.command(io::NEED_GET_DATA, tag, 0, addr);
                return Ok(());
            }
            io::RES_ABORT => return Ok(()),
            other => bail!("the server's command says {other}"),
        }
        let op = op_flags & 0xff;
        if op == iod::WRITE && self.data_path == DataPath::Copy {
            let mut buffer = self.take_buffer(len);
            buffer[..len].copy_from_slice(&self.buffers[tag as usize][..len]);
            std::hint::black_box(&mut buffer);
            self.in_use[tag as usize] = Some(buffer);
        }
        // Handled: the framework gets its buffer back.
        self.pool.extend(self.in_use[tag as usize].take());
        let result = if op == iod::FLUSH { 0 } else { len as i32 };
        let addr = if self.data_path == DataPath::GetData && op != iod::READ { 0 } else { self.address(tag) };
        self.command(io::COMMIT_AND_FETCH_REQ, tag, result, addr);
        Ok(())
    }

    fn take_buffer(&mut self, len: usize) -> QueueBuffer {
        self.pool.pop().unwrap_or_else(|| buffer(len as u32))
    }
}
