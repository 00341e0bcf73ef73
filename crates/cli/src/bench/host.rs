//! What the numbers were measured on.

use std::fmt;
use std::fs;
use std::path::Path;

#[derive(Debug)]
pub(super) struct Host {
    pub(super) kernel: String,
    pub(super) filesystem: String,
    pub(super) cpu: String,
    pub(super) cpus: usize,
}

impl Host {
    /// Looks at the machine; `directory` is where files are written.
    pub(super) fn look(directory: &Path) -> Self {
        let uname = rustix::system::uname();
        let words = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let directory = directory.canonicalize().unwrap_or_default();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(": ")));
        Self {
            kernel: format!("{} {} {}", words(uname.sysname()), words(uname.release()), words(uname.machine())),
            filesystem: filesystem(&mounts, &directory).unwrap_or("of an unknown kind").to_owned(),
            cpu: model.map_or("an unknown CPU", |(_, model)| model).to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; files on {}; {} CPUs, {}", self.kernel, self.filesystem, self.cpus, self.cpu)
    }
}

/// The kind of filesystem that a path lies on, from the text of mountinfo: the deepest mount point, of those the last.
fn filesystem<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let Some(point) = left.split(' ').nth(4) else { continue };
        let is_deeper = best.is_none_or(|(len, _)| point.len() >= len);
        if path.starts_with(point) && is_deeper {
            best = right.split(' ').next().map(|kind| (point.len(), kind));
        }
    }
    best.map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_holds_the_file() {
        let mounts = "20 1 8:1 / / rw - ext4 /dev/a rw\n21 20 0:5 / /tmp rw shared:1 - tmpfs tmpfs rw\n";
        assert_eq!(filesystem(mounts, Path::new("/tmp/x")), Some("tmpfs"));
        assert_eq!(filesystem(mounts, Path::new("/tmpx")), Some("ext4"));
        assert_eq!(filesystem("", Path::new("/")), None);
    }
}
