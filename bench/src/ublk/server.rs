//! The null server: a thread with a ring, as in ublksrv. It discards writes and serves reads from
//! whatever its buffer holds.

use anyhow::{bail, ensure};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::thread::JoinHandle;
use uringlet_abi::setup;
use uringlet_abi::ublk::{IoCmd, io, iod};

use super::control::{io_command, open};
use super::geometry::DataPath;
use crate::sys::iod_map::IodMap;
use crate::sys::liburing::{LibRing, UringCmdSqe};

/// A running server.
pub(super) struct NullServer(JoinHandle<anyhow::Result<()>>);

impl NullServer {
    pub(super) fn start(device: u32, data_path: DataPath, depth: u32, block: u32) -> anyhow::Result<Self> {
        let file = open(&format!("/dev/ublkc{device}"))?;
        Ok(Self(
            std::thread::Builder::new().name("server".to_owned()).spawn(move || NullQueue::open(file, data_path, depth, block)?.serve())?,
        ))
    }

    /// Waits for its end, after STOP_DEV.
    pub(super) fn join(self) -> anyhow::Result<()> {
        self.0.join().unwrap_or_else(|_| bail!("the server panicked"))
    }
}

type QueueBuffer = Box<[u8]>;

struct NullQueue {
    file: File,
    ring: LibRing,
    data_path: DataPath,
    descriptors: IodMap,
    /// Indexed by tag.
    buffers: Vec<QueueBuffer>,
    /// Stands for the buffers of an RPC framework; the last one returned is taken first.
    pool: Vec<QueueBuffer>,
    /// Pool buffers of writes in flight, indexed by tag.
    in_use: Vec<Option<QueueBuffer>>,
    armed: u32,
}

/// A buffer with all its pages present.
fn buffer(len: u32) -> QueueBuffer {
    vec![1; len as usize].into_boxed_slice()
}

impl NullQueue {
    fn open(file: File, data_path: DataPath, depth: u32, block: u32) -> anyhow::Result<Self> {
        let descriptors = IodMap::new(&file, depth)?;
        let ring = LibRing::with_flags(depth.next_power_of_two(), setup::COOP_TASKRUN | setup::SINGLE_ISSUER)?;
        let all = || (0..depth).map(|_| buffer(block)).collect();
        let pool = if data_path == DataPath::Plain { Vec::new() } else { all() };
        let in_use = (0..depth).map(|_| None).collect();
        Ok(Self { file, ring, data_path, descriptors, buffers: all(), pool, in_use, armed: 0 })
    }

    fn command(&mut self, nr: u8, tag: u64, result: i32, addr: u64) {
        let cmd = IoCmd { q_id: 0, tag: tag as u16, result, addr };
        let (fd, cmd_op) = (self.file.as_raw_fd(), io_command(nr));
        self.ring.prep_uring_cmd(&UringCmdSqe { fd, cmd_op, addr: 0, data: &cmd.to_bytes(), user_data: tag });
        self.armed += 1;
    }

    /// Serves until all commands are aborted.
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
        let descriptor = self.descriptors.get(tag as u32);
        let len = (descriptor.nr_sectors * 512) as usize;
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
            other => bail!("an I/O command of the server has result {other}"),
        }
        let op = descriptor.op_flags & 0xff;
        if op == iod::WRITE && self.data_path == DataPath::Copy {
            let mut buffer = self.take_buffer(len);
            buffer[..len].copy_from_slice(&self.buffers[tag as usize][..len]);
            std::hint::black_box(&mut buffer);
            self.in_use[tag as usize] = Some(buffer);
        }
        // The write is handled: its buffer returns to the pool.
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
