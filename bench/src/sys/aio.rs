//! The older interfaces for several writes in flight: Linux AIO and POSIX AIO.

use anyhow::{Context, ensure};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// An interface that takes a batch of writes and then waits for all of them.
pub(crate) trait BatchWriter {
    /// Writes the block once for each request of the batch, at offsets from `next_offset`.
    fn write_all(&mut self, next_offset: &mut dyn FnMut() -> u64) -> anyhow::Result<()>;
}

/// `struct io_event`, which libc lacks.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct LibaioEvent {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

const _: () = assert!(size_of::<LibaioEvent>() == 32);

/// Linux AIO: io_submit(2) and io_getevents(2), as libaio calls them.
pub(crate) struct LinuxAio {
    context: libc::c_ulong,
    iocbs: Box<[libc::iocb]>,
    pointers: Box<[*mut libc::iocb]>,
    events: Box<[LibaioEvent]>,
    block: Box<[u8]>,
}

fn checked(answer: libc::c_long, what: &'static str) -> anyhow::Result<libc::c_long> {
    if answer < 0 { Err(io::Error::last_os_error()).context(what) } else { Ok(answer) }
}

impl LinuxAio {
    pub(crate) fn new(file: &File, block: &[u8], depth: u32) -> anyhow::Result<Self> {
        const IOCB_CMD_PWRITE: u16 = 1;
        let block: Box<[u8]> = block.into();
        // SAFETY: all zeroes is a `struct iocb`.
        let mut iocb: libc::iocb = unsafe { std::mem::zeroed() };
        iocb.aio_lio_opcode = IOCB_CMD_PWRITE;
        iocb.aio_fildes = file.as_raw_fd().cast_unsigned();
        (iocb.aio_buf, iocb.aio_nbytes) = (block.as_ptr() as u64, block.len() as u64);
        let mut iocbs = vec![iocb; depth as usize].into_boxed_slice();
        let pointers = iocbs.iter_mut().map(std::ptr::from_mut).collect();
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context.
        checked(unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) }, "io_setup")?;
        Ok(Self { context, iocbs, pointers, events: vec![LibaioEvent::default(); depth as usize].into(), block })
    }
}

impl BatchWriter for LinuxAio {
    fn write_all(&mut self, next_offset: &mut dyn FnMut() -> u64) -> anyhow::Result<()> {
        self.iocbs.iter_mut().for_each(|iocb| iocb.aio_offset = next_offset().cast_signed());
        let depth = self.iocbs.len() as libc::c_long;
        // SAFETY: `depth` pointers to requests, whose block lives as long as `self`, which waits
        // for all of them.
        let submitted = unsafe { libc::syscall(libc::SYS_io_submit, self.context, depth, self.pointers.as_mut_ptr()) };
        ensure!(checked(submitted, "io_submit")? == depth, "io_submit took {submitted} of {depth}");
        // SAFETY: room for `depth` events.
        let done = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                depth,
                depth,
                self.events.as_mut_ptr(),
                std::ptr::null_mut::<libc::timespec>(),
            )
        };
        ensure!(checked(done, "io_getevents")? == depth, "io_getevents gave {done} of {depth}");
        let unexpected = self.events.iter().find(|event| usize::try_from(event.res) != Ok(self.block.len()));
        ensure!(unexpected.is_none(), "a completion has result {}", unexpected.map_or(0, |event| event.res));
        Ok(())
    }
}

impl Drop for LinuxAio {
    fn drop(&mut self) {
        // SAFETY: a context that was set up; nothing is in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// POSIX AIO: aio_write(3), which in glibc is a pool of threads.
pub(crate) struct PosixAio {
    requests: Box<[libc::aiocb]>,
    block: Box<[u8]>,
}

impl PosixAio {
    pub(crate) fn new(file: &File, block: &[u8], depth: u32) -> Self {
        let mut block: Box<[u8]> = block.into();
        // SAFETY: all zeroes is a `struct aiocb`.
        let mut request: libc::aiocb = unsafe { std::mem::zeroed() };
        request.aio_fildes = file.as_raw_fd();
        request.aio_buf = block.as_mut_ptr().cast();
        request.aio_nbytes = block.len();
        request.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
        Self { requests: vec![request; depth as usize].into(), block }
    }

    fn wait(&mut self, index: usize) -> anyhow::Result<()> {
        let request = &raw mut self.requests[index];
        // SAFETY: a request that was queued, and stays where it is.
        let (error, written) = unsafe {
            while libc::aio_error(request) == libc::EINPROGRESS {
                let list = [request.cast_const()];
                libc::aio_suspend(list.as_ptr(), 1, std::ptr::null());
            }
            (libc::aio_error(request), libc::aio_return(request))
        };
        ensure!(error == 0, "aio_write: {}", io::Error::from_raw_os_error(error));
        ensure!(written == self.block.len().cast_signed(), "a write of {written} bytes");
        Ok(())
    }
}

impl BatchWriter for PosixAio {
    fn write_all(&mut self, next_offset: &mut dyn FnMut() -> u64) -> anyhow::Result<()> {
        let mut queued = 0;
        let mut submit_error = None;
        for request in &mut self.requests {
            request.aio_offset = next_offset().cast_signed();
            // SAFETY: the block and the request live as long as `self`; all queued requests are
            // waited for below.
            if unsafe { libc::aio_write(std::ptr::from_mut(request)) } != 0 {
                submit_error = Some(io::Error::last_os_error());
                break;
            }
            queued += 1;
        }
        let mut done = Ok(());
        for index in 0..queued {
            done = done.and(self.wait(index));
        }
        match submit_error {
            Some(error) => Err(error).context("aio_write"),
            None => done,
        }
    }
}
