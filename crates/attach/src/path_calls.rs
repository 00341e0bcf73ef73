//! Calls of a static program that take a path, which only the system call shows.
//!
//! Two kinds of paths are not left to the kernel: those of ublk devices (`virtual_paths`), and
//! those by which the program finds its own file. There the kernel would find the loader, which is
//! what execve(2) was given. An exact `/proc/self/exe`, `/proc/thread-self/exe` or `/proc/PID/exe`
//! counts.
//!
//! The path is read before the call: one on the program's stack or in its image by plain loads,
//! else after one rt_sigprocmask(2) that tells whether its page can be read (`safe_read`). Other
//! paths are the kernel's, and so are bad addresses: the call is made where the program makes it.
//!
//! Differs: another process that looks at `/proc/PID/exe` sees the loader. A program whose file has
//! been removed does not find it.

use uringlet_sys::linux::general::{O_ACCMODE, O_NOFOLLOW, O_RDONLY, O_TRUNC, RESOLVE_CACHED, open_how};
use uringlet_sys::process::pid_now;
use uringlet_sys::{Errno, Sysno, UserPtr, user};

use crate::arch::CallFrame;
use crate::convert::{Register, address, int, low_u32};
use crate::disposition::Disposition;
use crate::kernel_call::issue;
use crate::path_call_table::{PATH_CALLS, PathCall, PathUse};
use crate::safe_read::ProgramReader;
use crate::static_file::{StaticProgram, static_program};
use crate::virtual_paths::{self, LOOKED_UP, OPENED};

/// Paths that are not the kernel's alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    OwnFile,
    Virtual,
}

/// The longest string that [`Special::of`] has to tell from others, and one byte more.
const LONGEST: usize = 24;

impl Special {
    /// `path` without its NUL, cut to [`LONGEST`].
    fn of(path: &[u8]) -> Option<Self> {
        if is_own_file(path) {
            return Some(Self::OwnFile);
        }
        OPENED.iter().chain(&LOOKED_UP).any(|prefix| path.starts_with(prefix)).then_some(Self::Virtual)
    }

    /// The string at `path`. Most paths are told by their first two bytes.
    fn at(path: usize, stack: usize) -> Option<Self> {
        let mut reader = ProgramReader::with_stack(stack);
        let mut text = [0; LONGEST];
        let is_candidate = reader.string(path, &mut text[..2]) == 2 && text[0] == b'/' && b"dps".contains(&text[1]);
        if !is_candidate {
            return None;
        }
        let len = reader.string(path, &mut text);
        Self::of(&text[..len])
    }
}

fn is_own_file(path: &[u8]) -> bool {
    let Some(name) = path.strip_prefix(b"/proc/").and_then(|rest| rest.strip_suffix(b"/exe")) else { return false };
    name == b"self" || name == b"thread-self" || number(name).is_some_and(|pid| pid == pid_now())
}

/// A process id as /proc writes it: without leading zeros.
fn number(digits: &[u8]) -> Option<u32> {
    let is_canonical = digits.first().is_some_and(|&first| first != b'0') && digits.iter().all(u8::is_ascii_digit);
    core::str::from_utf8(digits).ok().filter(|_| is_canonical)?.parse().ok()
}

/// A call of a static program. `None`: not one that takes a path.
pub(crate) fn call(nr: Sysno, args: [usize; 6], frame: &CallFrame) -> Option<Disposition> {
    let call = PATH_CALLS.iter().find(|call| call.nr == nr)?;
    let disposition = match (Special::at(args[call.at], core::ptr::from_ref(frame).addr()), static_program()) {
        (Some(Special::OwnFile), Some(program)) => call.on_own_file(args, program),
        (Some(Special::Virtual), _) => call.on_virtual(args),
        _ => Disposition::Passthrough,
    };
    Some(disposition)
}

impl PathCall {
    /// The call for the program's own file.
    fn on_own_file(&self, mut args: [usize; 6], program: &StaticProgram) -> Disposition {
        let is_redirected = match self.path_use {
            PathUse::ReadLink => return read_link(program.path.to_bytes(), args[self.at + 1], args[self.at + 2]),
            PathUse::Open => reads_through_link(low_u32(args[self.at + 1])),
            PathUse::OpenHow => self
                .how(args)
                .is_some_and(|how| how.resolve & !u64::from(RESOLVE_CACHED) == 0 && reads_through_link(low_u32(address(how.flags)))),
            PathUse::Ask(follow) | PathUse::Change(follow) => follow.is_followed(args),
            PathUse::Look => false,
        };
        if !is_redirected {
            return Disposition::Passthrough;
        }
        args[self.at] = program.path.as_ptr().reg();
        Disposition::Handled(issue(self.nr, args))
    }

    /// The call for a path that the kernel may not have.
    fn on_virtual(&self, mut args: [usize; 6]) -> Disposition {
        if matches!(self.path_use, PathUse::Change(_)) {
            return Disposition::Passthrough;
        }
        let path = args[self.at];
        let result = issue(self.nr, args);
        let Some(errno) = failure(result) else { return Disposition::Handled(result) };
        let flags = match self.path_use {
            PathUse::Open => Some(low_u32(args[self.at + 1])),
            PathUse::OpenHow => self.how(args).map(|how| low_u32(address(how.flags))),
            _ => None,
        };
        if let Some(flags) = flags {
            let opened = virtual_paths::may_be_opened(path, errno).then(|| virtual_paths::open(path, flags, errno)).flatten();
            if let Some(result) = opened {
                return Disposition::Handled(result);
            }
        }
        // Of what is opened, folders have a stand-in.
        let may_stand_in = match flags {
            Some(flags) => virtual_paths::may_be_listed(path, flags, errno),
            None => !matches!(self.path_use, PathUse::ReadLink) && virtual_paths::may_have_stand_in(path, errno),
        };
        if may_stand_in && let Some(stand_in) = virtual_paths::stand_in(path) {
            args[self.at] = stand_in.as_ptr().reg();
            return Disposition::Handled(issue(self.nr, args));
        }
        Disposition::Handled(result)
    }

    /// The structure behind the path, if it can be read and the kernel knows all of it.
    fn how(&self, args: [usize; 6]) -> Option<open_how> {
        let (at, size) = (args[self.at + 1], args[self.at + 2]);
        let [flags, mode, resolve] = user::read::<[u64; 3]>(UserPtr::new(at)).ok()?;
        (size == size_of::<open_how>()).then_some(open_how { flags, mode, resolve })
    }
}

/// Whether these flags of open(2) only read what a symbolic link leads to. A running program's file
/// is not opened for writing: the kernel says so of the loader's.
fn reads_through_link(flags: u32) -> bool {
    flags & (O_ACCMODE | O_NOFOLLOW | O_TRUNC) == O_RDONLY
}

/// readlink(2) of a link to `target`.
fn read_link(target: &[u8], buffer: usize, size: usize) -> Disposition {
    let size = int(size.cast_signed());
    if size <= 0 {
        return Disposition::Passthrough;
    }
    let text = &target[..target.len().min(size.cast_unsigned().reg())];
    let result = match user::write_slice(UserPtr::new(buffer), text) {
        Ok(()) => text.len().cast_signed(),
        Err(errno) => -(errno.into_raw() as isize),
    };
    Disposition::Handled(result)
}

fn failure(result: isize) -> Option<Errno> {
    (result < 0).then(|| Errno::new(int(-result)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_own_file_are_told_from_others() {
        let of_pid = format!("/proc/{}/exe", std::process::id());
        for path in ["/proc/self/exe", "/proc/thread-self/exe", &of_pid] {
            assert_eq!(Special::of(path.as_bytes()), Some(Special::OwnFile), "{path}");
        }
        for path in ["/proc/1/exe", "/proc/self/exe2", "/proc/self/fd", "/proc//exe", "/proc/0/exe", "/proc/self/task/exe", "proc/self/exe"]
        {
            assert_eq!(Special::of(path.as_bytes()), None, "{path}");
        }
        assert_eq!(Special::of(of_pid.replace("/proc/", "/proc/0").as_bytes()), None);
        assert!("/proc/thread-self/exe".len() < LONGEST && "/proc/4194304/exe".len() < LONGEST);
    }

    #[test]
    fn paths_of_devices_are_told_by_their_beginning() {
        for path in ["/dev/ublk-control", "/dev/ublkc12", "/sys/class/ublk-char", "/sys/module/ublk_drv"] {
            let path = &path.as_bytes()[..path.len().min(LONGEST)];
            assert_eq!(Special::of(path), Some(Special::Virtual));
        }
        assert_eq!(Special::of(b"/dev/null"), None);
    }

    #[test]
    fn string_is_read_where_it_is() {
        let local = *b"/proc/self/exe\0";
        let stack = 0_u8;
        assert_eq!(Special::at(local.as_ptr().addr(), (&raw const stack).addr()), Some(Special::OwnFile));
        assert_eq!(Special::at(c"/dev/ublkb0".as_ptr().addr(), 0), Some(Special::Virtual));
        assert_eq!(Special::at(c"/dev/zero".as_ptr().addr(), 0), None);
        for bad in [0, 8, usize::MAX, 1 << 63] {
            assert_eq!(Special::at(bad, 0), None);
        }
    }

    #[test]
    fn only_plain_reads_are_redirected() {
        use uringlet_sys::linux::general::{O_CLOEXEC, O_PATH, O_RDWR, O_WRONLY};
        assert!(reads_through_link(O_RDONLY | O_CLOEXEC) && reads_through_link(O_PATH));
        assert!(![O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC, O_PATH | O_NOFOLLOW].into_iter().any(reads_through_link));
    }

    #[test]
    fn link_is_cut_to_the_buffer() {
        let mut buffer = [7_u8; 8];
        let at = buffer.as_mut_ptr().addr();
        assert_eq!(read_link(b"/bin/program", at, 4), Disposition::Handled(4));
        assert_eq!(buffer, *b"/bin\x07\x07\x07\x07");
        assert_eq!(read_link(b"/a/b", at, 8), Disposition::Handled(4));
        assert_eq!(buffer, *b"/a/b\x07\x07\x07\x07");
        assert_eq!(read_link(b"/a", at, 0), Disposition::Passthrough);
        assert_eq!(read_link(b"/a", at, (-1_isize).cast_unsigned()), Disposition::Passthrough);
        assert_eq!(read_link(b"/a", 8, 4), Disposition::Handled(-14));
    }
}
