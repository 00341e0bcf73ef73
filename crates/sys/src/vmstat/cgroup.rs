//! The memory cgroup (v2) of this process, and the limits of it and those above it.

use super::text::{number, pick, read_file};

/// Where cgroup v2 is mounted: by systemd's convention, and inside containers.
const ROOT: &[u8] = b"/sys/fs/cgroup";
/// Age at which cgroup and limits are looked up again, ns: a process may move to another cgroup,
/// and limits may change.
const STALE_NS: u64 = 5_000_000_000;
const LEVELS: usize = 8;

/// What a cgroup uses, and how much more it could get, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    /// Page cache on its LRU lists.
    pub(super) file_bytes: u64,
    /// Dirty or being written out.
    pub(super) dirty_bytes: u64,
    /// Distance to the nearest limit of the cgroup and those above.
    pub(super) headroom_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Cgroup {
    path: CgroupPath,
    /// Bytes of the path that are the mount's.
    root_len: usize,
    /// Bit n: the n-th level, counted upwards from the process' own, has a limit. 0: nothing to
    /// read.
    limited: u8,
    /// Time of the last look-up.
    seen_ns: Option<u64>,
}

impl Cgroup {
    pub(super) const fn new() -> Self {
        Self { path: CgroupPath::new(), root_len: 0, limited: 0, seen_ns: None }
    }

    /// `None` if no level has a limit, or the files cannot be read.
    pub(super) fn usage(&mut self, now_ns: u64) -> Option<Usage> {
        if self.seen_ns.is_none_or(|seen| now_ns.saturating_sub(seen) > STALE_NS) {
            self.seen_ns = Some(now_ns);
            self.limited = 0;
            let mut text = [0_u8; 1024];
            if let Some(path) = read_file(b"/proc/self/cgroup\0", &mut text).and_then(v2_path) {
                self.look_up(ROOT, path);
            }
        }
        self.read()
    }

    /// Finds the levels with limits.
    fn look_up(&mut self, root: &[u8], path: &[u8]) {
        self.path = CgroupPath::new();
        self.limited = 0;
        if !(self.path.push(root) && self.path.push(path)) {
            return;
        }
        self.root_len = root.len();
        let levels = levels(self.path.bytes(), self.root_len);
        self.limited = levels.enumerate().filter(|(_, level)| limit(level).is_some()).fold(0, |bits, (n, _)| bits | 1 << n);
    }

    fn read(&self) -> Option<Usage> {
        if self.limited == 0 {
            return None;
        }
        let is_limited = |n: &usize| self.limited >> n & 1 == 1;
        let levels = levels(self.path.bytes(), self.root_len).enumerate().filter(|(n, _)| is_limited(n));
        let headrooms = levels.filter_map(|(_, level)| Some(limit(level)?.saturating_sub(value(level, b"/memory.current")?)));
        let headroom_bytes = headrooms.min()?;
        let mut text = [0_u8; 4096];
        let stat = read_file(with(self.path.bytes(), b"/memory.stat")?.bytes(), &mut text)?;
        let [mut inactive, mut active, mut dirty, mut writeback] = [0; 4];
        pick(
            stat,
            &mut [
                (b"inactive_file", &mut inactive),
                (b"active_file", &mut active),
                (b"file_dirty", &mut dirty),
                (b"file_writeback", &mut writeback),
            ],
        );
        Some(Usage { file_bytes: inactive + active, dirty_bytes: dirty + writeback, headroom_bytes })
    }
}

/// The process' path in /proc/self/cgroup. A path outside the root of its namespace cannot be
/// reached.
fn v2_path(text: &[u8]) -> Option<&[u8]> {
    let path = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
    match path {
        b"/" => Some(b""),
        path => (!path.starts_with(b"/..")).then_some(path),
    }
}

/// The path, and those above it up to the root.
fn levels(path: &[u8], root_len: usize) -> impl Iterator<Item = &[u8]> {
    core::iter::successors(Some(path), move |at| parent(at, root_len)).take(LEVELS)
}

fn parent(at: &[u8], root_len: usize) -> Option<&[u8]> {
    let end = at.iter().rposition(|&byte| byte == b'/').unwrap_or(0).max(root_len);
    (at.len() > root_len).then(|| &at[..end])
}

/// The lower of the two limits, bytes.
fn limit(level: &[u8]) -> Option<u64> {
    let (max, high) = (value(level, b"/memory.max"), value(level, b"/memory.high"));
    max.into_iter().chain(high).min()
}

/// The number in a file. `None` for "max".
fn value(level: &[u8], name: &[u8]) -> Option<u64> {
    let mut text = [0_u8; 32];
    number(read_file(with(level, name)?.bytes(), &mut text)?)
}

/// A file's path with its NUL.
fn with(level: &[u8], name: &[u8]) -> Option<CgroupPath> {
    let mut path = CgroupPath::new();
    (path.push(level) && path.push(name) && path.push(b"\0")).then_some(path)
}

/// Bytes of a path.
#[derive(Debug)]
struct CgroupPath {
    bytes: [u8; 512],
    len: usize,
}

impl CgroupPath {
    const fn new() -> Self {
        Self { bytes: [0; 512], len: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Appends. Returns whether it fits.
    fn push(&mut self, more: &[u8]) -> bool {
        let Some(room) = self.bytes.get_mut(self.len..self.len + more.len()) else { return false };
        room.copy_from_slice(more);
        self.len += more.len();
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::{env, format, fs, path::PathBuf, process};

    /// A tree of files like the kernel's, removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let root = env::temp_dir().join(format!("uringlet-cgroup-{name}-{}", process::id()));
            fs::create_dir_all(root.join("a/b")).unwrap();
            Self(root)
        }

        fn put(&self, file: &str, text: &str) {
            fs::write(self.0.join(file), text).unwrap();
        }

        fn look_up(&self, path: &[u8]) -> Cgroup {
            let mut cgroup = Cgroup::new();
            cgroup.look_up(self.0.to_str().unwrap().as_bytes(), path);
            cgroup
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_nearest_limit_of_all_levels_counts() {
        let tree = Tree::new("near");
        tree.put("a/b/memory.max", "max\n");
        tree.put("a/b/memory.high", "9000000\n");
        tree.put("a/b/memory.current", "2000000\n");
        tree.put("a/memory.max", "5000000\n");
        tree.put("a/memory.current", "4000000\n");
        tree.put("a/b/memory.stat", "anon 1\ninactive_file 300\nactive_file 200\nfile_dirty 70\nfile_writeback 30\n");
        let cgroup = tree.look_up(b"/a/b");
        assert_eq!(cgroup.limited, 0b11);
        assert_eq!(cgroup.read(), Some(Usage { file_bytes: 500, dirty_bytes: 100, headroom_bytes: 1_000_000 }));
    }

    #[test]
    fn a_cgroup_without_limits_is_not_read() {
        let tree = Tree::new("free");
        tree.put("a/b/memory.max", "max\n");
        tree.put("a/b/memory.high", "max\n");
        tree.put("a/b/memory.stat", "inactive_file 300\n");
        assert_eq!(tree.look_up(b"/a/b").read(), None);
        assert_eq!(tree.look_up(b"/nowhere").read(), None);
    }

    #[test]
    fn the_root_of_a_container_is_a_level() {
        let tree = Tree::new("root");
        tree.put("memory.max", "1000\n");
        tree.put("memory.current", "400\n");
        tree.put("memory.stat", "file_dirty 4\n");
        let usage = tree.look_up(b"").read().unwrap();
        assert_eq!((usage.headroom_bytes, usage.dirty_bytes), (600, 4));
    }

    #[test]
    fn v2_path_ignores_other_hierarchies() {
        assert_eq!(v2_path(b"4:memory:/x\n0::/user.slice/a\n"), Some(&b"/user.slice/a"[..]));
        assert_eq!(v2_path(b"0::/\n"), Some(&b""[..]));
        assert_eq!(v2_path(b"0::/../other\n"), None);
        assert_eq!(v2_path(b"4:memory:/x\n"), None);
    }
}
