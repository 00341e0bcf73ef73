//! A broker, a store on a port of its own, and a device between them: in one process, over real
//! sockets.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use uringlet_abi::ublk::{feature, state};
use uringlet_ublk::blocking::BlockingClient;
use uringlet_ublk::frontend::{BlockDevice, FrontEnd};
use uringlet_ublk_rpc::listen::StoreListener;
use uringlet_ublk_rpc::remote::RemoteBackend;
use uringlet_ublk_rpc::store::BlockStore;
use uringlet_ublk_rpc::{StoreClaim, StoreEndpoint};
use uringlet_ublk_server::async_server::{AbortSignal, add, serve};
use uringlet_ublk_server::buffers::BufferMode;
use uringlet_ublk_server::device::DeviceSpec;
use uringlet_ublk_server::device_map::DeviceMap;
use uringlet_ublk_server::volume::Volume;
use uringlet_ublkd::broker::{Broker, BrokerHandle};
use uringlet_ublkd::client::BrokerClient;

/// A time-out beyond any healthy run.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
pub(crate) const SIZE: u64 = 16 << 20;

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A free port.
pub(crate) fn port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A listening store. Dropping it kills it: its connections end, whatever its requests do.
pub(crate) struct ServedStore(Option<Runtime>);

impl ServedStore {
    pub(crate) fn new(address: &str, volume: impl Volume) -> Self {
        let runtime = runtime();
        let store = BlockStore::new(volume);
        let listener = runtime.block_on(async { StoreListener::bind(address).unwrap() });
        runtime.spawn(async move { listener.serve(&store).await });
        Self(Some(runtime))
    }
}

impl Drop for ServedStore {
    fn drop(&mut self) {
        self.0.take().unwrap().shutdown_background();
    }
}

pub(crate) struct RpcFixture {
    dir: PathBuf,
    devices: Arc<DeviceMap>,
    pub(crate) client: BrokerClient,
    handle: BrokerHandle,
    thread: Option<JoinHandle<()>>,
}

/// A device with its server on a thread.
pub(crate) struct ServedDevice {
    pub(crate) id: u32,
    client: BrokerClient,
    server: Option<JoinHandle<()>>,
}

impl Drop for ServedDevice {
    fn drop(&mut self) {
        self.client.delete(self.id).unwrap();
        self.server.take().unwrap().join().unwrap();
    }
}

impl RpcFixture {
    pub(crate) fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ublk-rpc-{name}-{}", std::process::id()));
        let devices = Arc::new(DeviceMap::default());
        let broker = Broker::new(&dir, vec![Arc::clone(&devices) as Arc<dyn FrontEnd>]).unwrap();
        let handle = broker.handle();
        let thread = Some(std::thread::spawn(move || broker.run(None).unwrap()));
        Self { client: BrokerClient::new(&dir), dir, devices, handle, thread }
    }

    /// A device on the store at `address`, live when this returns.
    pub(crate) fn device(&self, address: &str, buffers: BufferMode, timeout: Duration) -> ServedDevice {
        let endpoint = StoreEndpoint::parse(address).unwrap();
        self.serve(buffers, move || async move { RemoteBackend::open(endpoint, StoreClaim::IfUnused, timeout).await.unwrap() })
    }

    pub(crate) fn serve<F: Future<Output = RemoteBackend>>(&self, buffers: BufferMode, open: impl FnOnce() -> F) -> ServedDevice {
        let runtime = runtime();
        let remote = runtime.block_on(open());
        let info = remote.info().clone();
        let flags = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;
        let is_read_only = info.is_read_only;
        let spec = DeviceSpec { id: u32::MAX, size: info.size, queues: 2, depth: 8, flags, identity: 0, is_read_only, block_shift: 9 };
        let (id, device) = add(&self.client, &spec, buffers, info.has_cache).unwrap();
        let client = self.client.clone();
        let server = std::thread::spawn(move || {
            let how = (runtime.handle(), AbortSignal::default());
            serve(device, Arc::new(remote), buffers, how, move || client.start(id).unwrap()).unwrap();
            runtime.shutdown_background();
        });
        wait_until("it is live", || self.client.info(id).unwrap().state == state::LIVE && self.block(id).is_some());
        ServedDevice { id, client: self.client.clone(), server: Some(server) }
    }

    fn block(&self, id: u32) -> Option<Arc<dyn BlockDevice>> {
        self.devices.get(id)
    }

    pub(crate) fn local(&self, device: &ServedDevice, queue: u16) -> BlockingClient {
        BlockingClient::new(self.block(device.id).unwrap(), queue)
    }
}

impl Drop for RpcFixture {
    fn drop(&mut self) {
        self.handle.stop();
        self.thread.take().unwrap().join().unwrap();
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| (i / 3 + i / 512 + seed * 31) as u8).collect()
}
