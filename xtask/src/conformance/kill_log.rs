//! Deaths at a real io_uring call, read from the kernel's log. A test that only waits for its
//! children to end would count such a death of a child as success.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// The kernel's log from now on.
#[derive(Debug)]
pub(super) struct KillLog {
    kmsg: File,
}

impl KillLog {
    /// `None` where this user may not read the log; then only tests that die themselves are
    /// noticed.
    pub(super) fn open() -> Option<Self> {
        let flags = rustix::fs::OFlags::NONBLOCK.bits();
        let mut kmsg = OpenOptions::new().read(true).custom_flags(flags as i32).open("/dev/kmsg").ok()?;
        kmsg.seek(SeekFrom::End(0)).ok()?;
        Some(Self { kmsg })
    }

    /// Paths of the programs killed since the last look.
    pub(super) fn drain(&mut self) -> BTreeSet<String> {
        let mut killed = BTreeSet::new();
        let mut record = [0; 8192];
        loop {
            match self.kmsg.read(&mut record) {
                Ok(0) => return killed,
                Ok(len) => killed.extend(victim(&String::from_utf8_lossy(&record[..len]))),
                // Records were overwritten before we came; the next read goes on behind them.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                Err(_) => return killed,
            }
        }
    }
}

/// The program's path, if the record tells of a death at one of io_uring's calls.
fn victim(record: &str) -> Option<String> {
    let field = |key: &str| record.split([' ', '\n']).find_map(|word| word.strip_prefix(key));
    let is_io_uring = field("syscall=").is_some_and(|nr| ["425", "426", "427"].contains(&nr));
    if field("type=") != Some("1326") || field("sig=") != Some("31") || !is_io_uring {
        return None;
    }
    field("exe=").map(|path| path.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_is_told_from_other_records() {
        let death = "5,9,26,-;audit: type=1326 audit(17:85): pid=48 comm=\"a.t\" exe=\"/x/test/a.t\" sig=31 syscall=425 compat=0\n";
        assert_eq!(victim(death).as_deref(), Some("/x/test/a.t"));
        assert_eq!(victim(&death.replace("425", "39")), None);
        assert_eq!(victim("6,1,2,-;eth0: link up\n"), None);
    }
}
