//! Client of an NBD server on a unix socket: fixed newstyle, simple replies, one connection, one
//! write(2) per batch.
//!
//! Source: the NBD project's proto.md.

use anyhow::{Context, bail, ensure};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::geometry::{SIZE, UblkOp};
use super::load::{LoadTarget, UblkLoad};

const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REPLY_BYTES: usize = 16;

pub(super) struct NbdBenchClient {
    socket: UnixStream,
    op: UblkOp,
    block: usize,
    out: Vec<u8>,
    input: Vec<u8>,
    /// The part of `input` that was read but not parsed.
    unread: std::ops::Range<usize>,
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

impl NbdBenchClient {
    /// Connects and negotiates the default export.
    pub(super) fn connect(path: &Path, load: &UblkLoad) -> anyhow::Result<Self> {
        let mut socket = UnixStream::connect(path).with_context(|| path.display().to_string())?;
        let size = handshake(&mut socket)?;
        ensure!(size >= SIZE, "the export has {size} bytes, {SIZE} are wanted");
        let input = vec![0; (1 << 20) + REPLY_BYTES + load.block as usize];
        Ok(Self { socket, op: load.op, block: load.block as usize, out: Vec::new(), input, unread: 0..0 })
    }

    /// The lane of the next reply, if all of it has arrived.
    fn reply(&mut self) -> anyhow::Result<Option<u32>> {
        let whole = REPLY_BYTES + if self.op == UblkOp::Read { self.block } else { 0 };
        if self.unread.len() < whole {
            return Ok(None);
        }
        let head = &self.input[self.unread.start..];
        let (magic, error) = (u32::from_be_bytes(word(head, 0)), u32::from_be_bytes(word(head, 4)));
        ensure!(magic == SIMPLE_REPLY, "not a simple reply: {magic:#x}");
        ensure!(error == 0, "the server answers with error {error}");
        let lane = u64::from_be_bytes(word(head, 8)) as u32;
        self.unread.start += whole;
        Ok(Some(lane))
    }

    fn fill(&mut self) -> anyhow::Result<()> {
        self.input.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        let n = self.socket.read(&mut self.input[self.unread.end..])?;
        ensure!(n > 0, "the server closed the connection");
        self.unread.end += n;
        Ok(())
    }
}

impl LoadTarget for NbdBenchClient {
    fn push(&mut self, lane: u32, at: u64) {
        self.out.extend(REQUEST.to_be_bytes());
        // No flags. Read is 0 and write is 1, as in the ublk ABI.
        self.out.extend([0, 0, 0, self.op as u8]);
        self.out.extend(u64::from(lane).to_be_bytes());
        self.out.extend(at.to_be_bytes());
        self.out.extend((self.block as u32).to_be_bytes());
        if self.op == UblkOp::Write {
            self.out.resize(self.out.len() + self.block, lane as u8);
        }
    }

    fn wait(&mut self, at_least: u32, completed: &mut Vec<u32>) -> anyhow::Result<()> {
        self.socket.write_all(&self.out)?;
        self.out.clear();
        let wanted = completed.len() + at_least as usize;
        loop {
            while let Some(lane) = self.reply()? {
                completed.push(lane);
            }
            if completed.len() >= wanted {
                return Ok(());
            }
            self.fill()?;
        }
    }
}

/// The handshake. Returns the size of the export, bytes.
fn handshake(socket: &mut UnixStream) -> anyhow::Result<u64> {
    const FIXED_NEWSTYLE: u16 = 1;
    const CLIENT_FLAGS: u32 = 1;
    let hello: [u8; 18] = receive(socket)?;
    ensure!(hello[..8] == *b"NBDMAGIC" && u64::from_be_bytes(word(&hello, 8)) == OPTION_MAGIC, "not an NBD server");
    ensure!(u16::from_be_bytes(word(&hello, 16)) & FIXED_NEWSTYLE != 0, "the NBD server does not support fixed newstyle");
    let mut go = Vec::from(CLIENT_FLAGS.to_be_bytes());
    go.extend(OPTION_MAGIC.to_be_bytes());
    go.extend(OPT_GO.to_be_bytes());
    // An empty name, no information requests.
    go.extend(6_u32.to_be_bytes());
    go.extend([0; 6]);
    socket.write_all(&go)?;
    let mut size = None;
    loop {
        let head: [u8; 20] = receive(socket)?;
        ensure!(u64::from_be_bytes(word(&head, 0)) == OPTION_REPLY, "not an option reply");
        let mut data = vec![0; u32::from_be_bytes(word(&head, 16)).min(1 << 16) as usize];
        socket.read_exact(&mut data)?;
        match u32::from_be_bytes(word(&head, 12)) {
            REP_ACK => return size.context("the server reports no size"),
            // Information type 0: size and flags of the export.
            REP_INFO if data.len() >= 12 && data[..2] == [0, 0] => size = Some(u64::from_be_bytes(word(&data, 2))),
            REP_INFO => {}
            other => bail!("the server refuses the export: {other:#x}"),
        }
    }
}

fn receive<const N: usize>(socket: &mut UnixStream) -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    socket.read_exact(&mut bytes).context("the handshake")?;
    Ok(bytes)
}
