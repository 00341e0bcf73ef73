//! A server with a backend. One thread receives requests; those that have to wait are tokio tasks.

use crate::backend::Backend;
use crate::backing::{BackingStore, Unmap};
use crate::buffers::{BufferMode, SharedSlot, TagBuffer};
use crate::device::{DeviceSpec, IO_BYTES_MAX, create};
use crate::volume::Durability;
use anyhow::bail;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use uringlet_abi::ublk::{DevInfo, IoCmd, IoDesc, feature, io, iod, param};
use uringlet_sys::Errno;
use uringlet_ublk::adaptive_spin::AdaptiveSpin;
use uringlet_ublk::frontend::SECTOR;
use uringlet_ublk::io_channel::IoEvent;
use uringlet_ublk::wire::Submission;
use uringlet_ublkd::client::{BrokerClient, BrokerGone, CharDevice};

/// The driver's name for the task that serves all tags.
const TASK: u64 = 1;

/// Adds a device, sets its parameters and opens its char device. `has_cache`: writes are durable
/// only after a flush.
///
/// # Errors
/// The broker's, with advice.
pub fn add(client: &BrokerClient, spec: &DeviceSpec, buffers: BufferMode, has_cache: bool) -> anyhow::Result<(u32, CharDevice)> {
    let info = spec.info();
    let info = DevInfo { flags: info.flags & !feature::USER_COPY | buffers.flags(), ..info };
    let mut params = spec.params(&BackingStore::Null);
    if has_cache {
        params.basic.attrs |= param::ATTR_VOLATILE_CACHE | param::ATTR_FUA;
    }
    create(client, &info, params)
}

/// Aborts a server's requests that wait for their backend.
#[derive(Clone, Debug, Default)]
pub struct AbortSignal(Arc<watch::Sender<bool>>);

impl AbortSignal {
    /// Requests in flight and later ones fail with EIO.
    pub fn abort(&self) {
        self.0.send_replace(true);
    }

    /// The result of `work`, or EIO once aborted.
    async fn run_or_abort<T>(&self, work: impl Future<Output = Result<T, Errno>>) -> Result<T, Errno> {
        let mut receiver = self.0.subscribe();
        let (mut work, mut given_up) = (pin!(work), pin!(receiver.wait_for(|given_up| *given_up)));
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Pending => given_up.as_mut().poll(cx).map(|_| Err(Errno::EIO)),
            ready => ready,
        })
        .await
    }
}

#[derive(Debug)]
struct AsyncServer<B> {
    device: CharDevice,
    backend: Arc<B>,
    tags: Vec<TagBuffer>,
    abort_signal: AbortSignal,
}

/// Serves an open char device until it is stopped. Requests are tasks of `runtime`. `on_armed` runs
/// on a thread of its own once all FETCH commands are submitted, and starts the device. Returns
/// without waiting for requests that the driver has aborted, but after a loss of the broker only
/// when none is being executed any more: the device may then be added again.
///
/// # Errors
/// [`BrokerGone`]; its rings are corrupt.
pub fn serve<B: Backend>(
    device: CharDevice,
    backend: Arc<B>,
    buffers: BufferMode,
    (runtime, abort_signal): (&Handle, AbortSignal),
    on_armed: impl FnOnce() + Send + 'static,
) -> anyhow::Result<()> {
    let count = usize::from(device.queues) * usize::from(device.depth);
    let tags = (0..count).map(|_| TagBuffer::new(buffers, IO_BYTES_MAX as usize)).collect();
    let server = Arc::new(AsyncServer { device, backend, tags, abort_signal });
    server.arm()?;
    std::thread::Builder::new().name("ublk-start".into()).spawn(on_armed)?;
    // Dropping the set aborts its tasks.
    let mut requests = JoinSet::new();
    let (mut receiver, mut spin, mut events) = (server.device.lock_events(), AdaptiveSpin::new(), Vec::new());
    loop {
        receiver.wait_events(usize::MAX, &mut spin, &mut events)?;
        if events.is_empty() {
            runtime.block_on(async { while requests.join_next().await.is_some() {} });
            return Err(BrokerGone.into());
        }
        if events.iter().any(|event| event.completion.res == io::RES_ABORT) {
            return Ok(());
        }
        let mut data_requests = Vec::new();
        for event in events.drain(..) {
            match event.completion.res {
                io::RES_OK => begin(Arc::clone(&server).request(event), &mut requests, runtime),
                io::RES_NEED_GET_DATA => data_requests.push(server.ask(&event)),
                res => bail!("the driver refuses a command: {}", std::io::Error::from_raw_os_error(-res)),
            }
        }
        if !data_requests.is_empty() {
            server.device.submit(&data_requests)?;
        }
        while requests.try_join_next().is_some() {}
    }
}

/// Polls a request once where it arrives, which often completes it; a pending one becomes a task.
/// The task polls it again, so no wake-up in between is lost.
fn begin(request: impl Future<Output = ()> + Send + 'static, requests: &mut JoinSet<()>, runtime: &Handle) {
    let _inside = runtime.enter();
    let mut request = Box::pin(request);
    if request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        requests.spawn_on(request, runtime);
    }
}

impl<B: Backend> AsyncServer<B> {
    fn buffer(&self, queue: u16, tag: u16) -> &TagBuffer {
        &self.tags[usize::from(queue) * usize::from(self.device.depth) + usize::from(tag)]
    }

    fn arm(&self) -> anyhow::Result<()> {
        let tags = (0..self.device.queues).flat_map(|queue| (0..self.device.depth).map(move |tag| (queue, tag)));
        let fetches: Vec<_> = tags.map(|(queue, tag)| command(io::FETCH_REQ, queue, tag, 0, self.buffer(queue, tag).address())).collect();
        self.device.submit(&fetches)
    }

    /// A WRITE has arrived: submits the address for its data.
    fn ask(&self, IoEvent { completion, iod, .. }: &IoEvent) -> Submission {
        let (queue, tag) = (completion.queue, completion.tag);
        let len = u64::from(iod.nr_sectors) * SECTOR;
        let address = self.buffer(queue, tag).allocate(len.min(IO_BYTES_MAX.into()) as usize);
        command(io::NEED_GET_DATA, queue, tag, 0, address)
    }

    async fn request(self: Arc<Self>, event: IoEvent) {
        let (queue, tag) = (event.completion.queue, event.completion.tag);
        let (result, address) = match self.abort_signal.run_or_abort(self.execute(&event)).await {
            Ok((len, address)) => (len as i32, address),
            Err(errno) => (-errno.into_raw(), None),
        };
        let address = address.unwrap_or_else(|| self.buffer(queue, tag).address());
        // An error means that the broker is gone.
        let _ = self.device.submit(&[command(io::COMMIT_AND_FETCH_REQ, queue, tag, result, address)]);
    }

    /// Bytes done, and for a READ the address from which the driver copies.
    async fn execute(&self, IoEvent { completion, iod, .. }: &IoEvent) -> Result<(u32, Option<u64>), Errno> {
        let slot = SharedSlot::new(&self.device, completion);
        let buffer = self.buffer(completion.queue, completion.tag);
        // A flush has no position: the descriptor says -1.
        let (at, len) = (iod.start_sector.saturating_mul(SECTOR), u64::from(iod.nr_sectors) * SECTOR);
        match iod.op_flags & 0xff {
            iod::READ => {
                let data = self.backend.read(at, len as u32).await?;
                buffer.give(&slot, &data).map(|address| (len as u32, Some(address)))
            }
            iod::WRITE => {
                let data = buffer.take(&slot, len as usize)?;
                self.backend.write(at, data, Durability::of(iod.op_flags)).await.map(|()| (len as u32, None))
            }
            _ => self.execute_without_data(iod, at, len).await.map(|()| (0, None)),
        }
    }

    async fn execute_without_data(&self, iod: &IoDesc, at: u64, len: u64) -> Result<(), Errno> {
        match iod.op_flags & 0xff {
            iod::FLUSH => return self.backend.flush().await,
            iod::DISCARD => self.backend.discard(at, len).await?,
            iod::WRITE_ZEROES => self.backend.write_zeroes(at, len, Unmap::of(iod.op_flags)).await?,
            _ => return Err(Errno::EOPNOTSUPP),
        }
        // Stores support FUA for writes only, the driver for every change: flush instead.
        if iod.op_flags & iod::F_FUA != 0 { self.backend.flush().await } else { Ok(()) }
    }
}

fn command(nr: u8, q_id: u16, tag: u16, result: i32, addr: u64) -> Submission {
    Submission { cmd_op: Some(nr.into()), task: TASK, cmd: IoCmd { q_id, tag, result, addr } }
}
