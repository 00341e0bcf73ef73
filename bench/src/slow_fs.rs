//! A filesystem with one file, `slow`, each write to which takes a fixed time: a slow disk on
//! demand.
//!
//! Speaks FUSE (fuse(4), version 7.31 of the protocol) over /dev/fuse. Unknown requests are refused
//! with ENOSYS, which the kernel remembers. The mount ends with the process: then every operation
//! on it fails with ENOTCONN, and `umount` removes it.

use anyhow::{Context, bail};
use rustix::mount::MountFlags;
use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const NAME: &[u8] = b"slow";
/// Length that the file reports, bytes. Constant, whatever is written.
pub(crate) const LEN: u64 = 1 << 30;

const ROOT: u64 = 1;
const SLOW: u64 = 2;
const MAX_WRITE: u32 = 128 << 10;
const IN_HEADER: usize = 40;
const OUT_HEADER: u32 = 16;
/// Seconds for which the kernel may cache entries and attributes.
const VALID: u64 = 3600;

/// Opcodes of the protocol.
mod op {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const BATCH_FORGET: u32 = 42;
}

/// Mounts on `mount_point`, prints `ready`, and serves until it is unmounted or the parent ends.
pub(crate) fn serve(mount_point: &Path, delay: Duration) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let fuse = File::options().read(true).write(true).open("/dev/fuse").context("opening /dev/fuse")?;
    mount(mount_point, &fuse)?;
    println!("ready");
    std::io::stdout().flush()?;
    let fuse = Arc::new(fuse);
    let mut buffer = vec![0; MAX_WRITE as usize + 4096];
    loop {
        match (&*fuse).read(&mut buffer) {
            Ok(len) => handle_request(&buffer[..len], &fuse, delay)?,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
            // ENOENT: the request was interrupted while it was being read.
            Err(error) if error.kind() == ErrorKind::Interrupted || error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error).context("reading /dev/fuse"),
        }
    }
}

fn mount(mount_point: &Path, fuse: &File) -> anyhow::Result<()> {
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", fuse.as_raw_fd());
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    let mounted = rustix::mount::mount("uringlet-bench", mount_point, "fuse", flags, CString::new(options)?.as_c_str());
    mounted.with_context(|| format!("mounting on {}", mount_point.display()))
}

fn u32_at(bytes: &[u8], offset: usize) -> anyhow::Result<u32> {
    let field = bytes.get(offset..offset + 4).context("the request is too short")?;
    Ok(u32::from_le_bytes(field.try_into()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> anyhow::Result<u64> {
    let field = bytes.get(offset..offset + 8).context("the request is too short")?;
    Ok(u64::from_le_bytes(field.try_into()?))
}

/// Answers a request, immediately or after `delay`.
fn handle_request(request: &[u8], fuse: &Arc<File>, delay: Duration) -> anyhow::Result<()> {
    let (opcode, unique, node) = (u32_at(request, 4)?, u64_at(request, 8)?, u64_at(request, 16)?);
    let body = request.get(IN_HEADER..).unwrap_or_default();
    match opcode {
        op::FORGET | op::BATCH_FORGET | op::INTERRUPT => Ok(()),
        op::WRITE => {
            let size = u32_at(body, 16)?;
            let fuse = Arc::clone(fuse);
            let delayed_reply = move || {
                std::thread::sleep(delay);
                // Fails only if the request has been interrupted.
                let _ = send_reply(&fuse, unique, &Ok(u32s_to_bytes(&[size, 0])));
            };
            std::thread::Builder::new().spawn(delayed_reply).context("a thread for a write")?;
            Ok(())
        }
        _ => send_reply(fuse, unique, &reply_body(opcode, node, body)),
    }
}

/// The part of the reply after the header, or an errno.
fn reply_body(opcode: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
    match opcode {
        op::INIT => Ok(init()),
        op::LOOKUP if node == ROOT && body == [NAME, b"\0"].concat() => {
            Ok([u64s_to_bytes(&[SLOW, 0, VALID, VALID]), u32s_to_bytes(&[0, 0]), attributes(SLOW)].concat())
        }
        op::LOOKUP => Err(libc::ENOENT),
        op::GETATTR | op::SETATTR => Ok([u64s_to_bytes(&[VALID]), u32s_to_bytes(&[0, 0]), attributes(node)].concat()),
        op::OPEN => Ok(u64s_to_bytes(&[0, 0])),
        op::READ => Ok(vec![0; u32_at(body, 16).unwrap_or(0).min(MAX_WRITE) as usize]),
        op::RELEASE | op::FLUSH => Ok(Vec::new()),
        _ => Err(libc::ENOSYS),
    }
}

/// `struct fuse_init_out`, as of 7.23, without optional features.
fn init() -> Vec<u8> {
    const BIG_WRITES: u32 = 1 << 5;
    const MAX_BACKGROUND_AND_THRESHOLD: u32 = 64 | 48 << 16;
    const GRANULARITY_NS: u32 = 1;
    let mut out = u32s_to_bytes(&[7, 31, MAX_WRITE, BIG_WRITES, MAX_BACKGROUND_AND_THRESHOLD, MAX_WRITE, GRANULARITY_NS]);
    out.resize(64, 0);
    out
}

/// `struct fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    const BLOCK: u32 = 4096;
    let (mode, len) = if node == ROOT { (libc::S_IFDIR | 0o755, 0) } else { (libc::S_IFREG | 0o666, LEN) };
    [u64s_to_bytes(&[node, len, len / 512, 0, 0, 0]), u32s_to_bytes(&[0, 0, 0, mode, 1, 0, 0, 0, BLOCK, 0])].concat()
}

fn u32s_to_bytes(u32s_to_bytes: &[u32]) -> Vec<u8> {
    u32s_to_bytes.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn u64s_to_bytes(u64s_to_bytes: &[u64]) -> Vec<u8> {
    u64s_to_bytes.iter().flat_map(|long| long.to_le_bytes()).collect()
}

fn send_reply(fuse: &File, unique: u64, reply: &Result<Vec<u8>, i32>) -> anyhow::Result<()> {
    let (error, body) = match reply {
        Ok(body) => (0_i32, body.as_slice()),
        Err(errno) => (-errno, &[][..]),
    };
    let len = OUT_HEADER + u32::try_from(body.len())?;
    let message = [&u32s_to_bytes(&[len, error.cast_unsigned()]), &u64s_to_bytes(&[unique])[..], body].concat();
    let mut fuse = fuse;
    match fuse.write(&message) {
        Ok(n) if n == message.len() => Ok(()),
        Ok(n) => bail!("/dev/fuse accepted {n} of {} bytes", message.len()),
        // The request was interrupted.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        Err(error) => Err(error).context("writing /dev/fuse"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_have_the_lengths_of_the_protocol() {
        let len = |opcode, node, body: &[u8]| reply_body(opcode, node, body).map(|bytes| bytes.len());
        assert_eq!(len(op::INIT, 0, &[]), Ok(64));
        assert_eq!(len(op::LOOKUP, ROOT, b"slow\0"), Ok(128));
        assert_eq!(len(op::LOOKUP, ROOT, b"fast\0"), Err(libc::ENOENT));
        assert_eq!(len(op::GETATTR, SLOW, &[]), Ok(104));
        assert_eq!(len(op::OPEN, SLOW, &[]), Ok(16));
        assert_eq!(len(99, ROOT, &[]), Err(libc::ENOSYS));
    }

    #[test]
    fn short_requests_are_errors() {
        assert!(u32_at(&[1, 2, 3], 0).is_err() && u64_at(&[0; 8], 1).is_err());
        assert_eq!(u32_at(&[1, 0, 0, 0], 0).unwrap(), 1);
    }
}
