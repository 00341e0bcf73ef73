//! The FUSE file, loop device and node of one device.

use super::serve::FuseFile;
use super::stale;
use crate::sync::lock;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev};
use rustix::io::Errno as IoErrno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{ThreadId, current};
use std::time::{Duration, Instant};
use uringlet_sys::Errno;
use uringlet_sys::loop_device::{self, LoopConfig};
use uringlet_ublk::frontend::BlockDevice;

/// Threads that read requests.
const THREADS_MAX: u16 = 2;
/// Attempts to bind a loop device, as other processes may take the free one first.
const BIND_ATTEMPTS: u32 = 64;
/// How long a stop waits for the kernel to close the file, which other processes may keep open.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits for the end of its input, a pipe from this process, and then removes the node if it still
/// is the same device.
///
/// Its output is the loop device, so that the guard and not this process holds it open. A dying
/// process closes its descriptors in order: were the loop device closed before `/dev/fuse`, its
/// last writes would wait for this process, which waits for them.
const GUARD: &str = r#"read -r _; [ "$(stat -c %t:%T "$1" 2>/dev/null)" = "$2" ] && rm -f "$1""#;

/// Falls back to sync of all filesystems where blockdev(8) is missing.
const WRITE_BACK: &str = r#"[ "$(stat -c %t:%T "$1" 2>/dev/null)" = "$2" ] && { blockdev --flushbufs "$1" && sync -d "$1" || sync; }"#;

/// See the module. Removed when dropped; if it is in use then, when the last user closes it.
#[derive(Debug)]
pub(super) struct LoopDisk {
    node: PathBuf,
    rdev: u64,
    /// The filesystem, whose root is the file. `None` once it ends.
    mount: Option<OwnedFd>,
    guard: Child,
    threads: Arc<ServingThreads>,
}

/// The threads that read requests.
#[derive(Debug, Default)]
struct ServingThreads {
    live: Mutex<Vec<ThreadId>>,
    thread_ended: Condvar,
}

fn errno(error: IoErrno) -> Errno {
    Errno::new(error.raw_os_error())
}

impl LoopDisk {
    pub(super) fn new(device: Arc<dyn BlockDevice>, node: &Path) -> Result<Self, Errno> {
        let limits = device.limits();
        let id = device.id();
        check_name(node)?;
        let fuse = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(errno)?;
        let threads = Arc::new(ServingThreads::default());
        let mount = mount(fuse, device, &threads)?;
        let file = open_root(&mount, limits.is_read_only)?;
        let config = LoopConfig {
            file: file.as_raw_fd(),
            block_size: limits.logical_block,
            is_read_only: limits.is_read_only,
            name: &format!("ublk{id}"),
        };
        let (loop_device, rdev) = bind(node, &config)?;
        let guard = guard(node, rdev, loop_device).map_err(|error| {
            let _ = std::fs::remove_file(node);
            Errno::new(error.raw_os_error().unwrap_or(Errno::ENOMEM.into_raw()))
        })?;
        Ok(Self { node: node.to_owned(), rdev, mount: Some(mount), guard, threads })
    }

    /// The node, and its device number while it belongs to this device.
    pub(super) fn node_and_rdev(&self) -> (PathBuf, u64) {
        (self.node.clone(), self.rdev)
    }

    /// Applies the device's new size.
    ///
    /// # Errors
    /// Those of stat(2) and of the loop device.
    pub(super) fn resize(&self) -> Result<(), Errno> {
        // stat(2) makes the kernel refresh the file's size, which the loop device does not ask for.
        let file = open_root(self.mount.as_ref().ok_or(Errno::ENXIO)?, true)?;
        rustix::fs::fstat(&file).map_err(errno)?;
        let loop_device = rustix::fs::open(&self.node, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(errno)?;
        loop_device::update_size(loop_device.as_raw_fd())
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if rustix::fs::stat(&self.node).is_ok_and(|stat| stat.st_rdev == self.rdev) {
            // An error means that it is gone already.
            let _ = std::fs::remove_file(&self.node);
        }
        // Closing the guard's input ends it, and the loop device is unbound with its last user.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        self.mount = None;
        if !stale::is_mounted(self.rdev, &self.node) {
            self.threads.wait(CLOSE_TIMEOUT);
        }
    }
}

/// Opens the file. The mount's own descriptor cannot be read.
fn open_root(mount: &OwnedFd, is_read_only: bool) -> Result<OwnedFd, Errno> {
    let access = if is_read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
    rustix::fs::open(&path, access | OFlags::CLOEXEC, Mode::empty()).map_err(errno)
}

/// `EEXIST` if the name is taken by anything but the stale node of a killed process.
pub(super) fn check_name(node: &Path) -> Result<(), Errno> {
    let is_free = std::fs::symlink_metadata(node).is_err() || (stale::is_loop(node) && !stale::is_alive(node));
    if is_free { Ok(()) } else { Err(Errno::EEXIST) }
}

/// Writes back cached data of the node and of a filesystem on it, and has the server flush.
///
/// In a process of its own: a thread that waits for the device cannot be killed, and as a thread of
/// this process it would keep `/dev/fuse` open, whose close ends its wait.
pub(super) fn write_back(node: &Path, rdev: u64) -> std::io::Result<()> {
    let script = [WRITE_BACK, "ublk-write-back"];
    let mut command = Command::new("sh");
    command.arg("-c").args(script).arg(node).arg(numbers(rdev)).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().map(drop)
}

/// As stat(1) prints it.
fn numbers(rdev: u64) -> String {
    format!("{:x}:{:x}", rustix::fs::major(rdev), rustix::fs::minor(rdev))
}

/// Starts the threads, then the filesystem, which sends requests at once. It is mounted nowhere.
fn mount(fuse: OwnedFd, device: Arc<dyn BlockDevice>, threads: &Arc<ServingThreads>) -> Result<OwnedFd, Errno> {
    let number = fuse.as_raw_fd();
    let filesystem = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).map_err(errno)?;
    let filesystem = filesystem.as_fd();
    for (key, value) in [
        ("source", format!("ublk{}", device.id())),
        ("fd", number.to_string()),
        ("rootmode", "100600".to_owned()),
        ("user_id", rustix::process::geteuid().as_raw().to_string()),
        ("group_id", rustix::process::getegid().as_raw().to_string()),
    ] {
        fsconfig_set_string(filesystem, key, value).map_err(errno)?;
    }
    fsconfig_set_flag(filesystem, "allow_other").map_err(errno)?;
    let queues = device.queues().0;
    let file = Arc::new(FuseFile::new(fuse, device));
    fsconfig_create(filesystem).map_err(errno)?;
    for number in 0..THREADS_MAX {
        let (file, ending) = (Arc::clone(&file), Arc::clone(threads));
        // A thread that ends at once finds itself in the list.
        let mut live = lock(&threads.live);
        let serve = move || {
            file.serve(number % queues);
            drop(file);
            lock(&ending.live).retain(|id| *id != current().id());
            ending.thread_ended.notify_all();
        };
        let thread = std::thread::Builder::new().name("ublk-fuse".into()).spawn(serve).map_err(|_| Errno::ENOMEM)?;
        live.push(thread.thread().id());
    }
    let flags = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(filesystem, FsMountFlags::FSMOUNT_CLOEXEC, flags).map_err(errno)
}

impl ServingThreads {
    /// Waits for their end, unless this is one of them: then the kernel may still wait for a reply
    /// that only this thread can give.
    fn wait(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        let mut live = lock(&self.live);
        let is_one = live.contains(&current().id());
        while !is_one && !live.is_empty() && Instant::now() < until {
            live = self.thread_ended.wait_timeout(live, until - Instant::now()).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Binds a loop device to the file and makes a node for it, which gets its final name once bound.
fn bind(node: &Path, config: &LoopConfig<'_>) -> Result<(OwnedFd, u64), Errno> {
    let control = rustix::fs::open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(errno)?;
    let mut name = node.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    for _ in 0..BIND_ATTEMPTS {
        let number = loop_device::free_number(control.as_raw_fd())?;
        let rdev = makedev(stale::LOOP_MAJOR, number);
        rustix::fs::mknodat(CWD, &name, FileType::BlockDevice, Mode::from_raw_mode(0o600), rdev).map_err(errno)?;
        let access = if config.is_read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let bound = rustix::fs::open(&name, access | OFlags::CLOEXEC, Mode::empty())
            .map_err(errno)
            .and_then(|device| loop_device::configure(device.as_raw_fd(), config).map(|()| device));
        let renamed = bound.and_then(|device| rustix::fs::rename(&name, node).map(|()| device).map_err(errno));
        match renamed {
            Ok(device) => return Ok((device, rdev)),
            Err(error) => {
                let _ = std::fs::remove_file(&name);
                if error != Errno::EBUSY {
                    return Err(error);
                }
            }
        }
    }
    Err(Errno::EBUSY)
}

/// Starts the guard in a process group of its own, so that Ctrl-C ends this process but not the
/// guard.
fn guard(node: &Path, rdev: u64, loop_device: OwnedFd) -> std::io::Result<Child> {
    Command::new("sh")
        .args(["-c", GUARD, "ublk-guard"])
        .arg(node)
        .arg(numbers(rdev))
        .stdin(Stdio::piped())
        .stdout(Stdio::from(loop_device))
        .stderr(Stdio::null())
        .current_dir("/")
        .process_group(0)
        .spawn()
}
