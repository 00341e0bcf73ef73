//! Whether the program has a seccomp filter that would end it for the system calls made here. The
//! filter is run, before the kernel does: the program may allow itself nothing but an execve(2).
//!
//! Filters that the process was started with are not known. They let a dynamic linker read files,
//! and so do not kill for the calls of an ordinary execve(2).

use core::sync::atomic::{AtomicBool, Ordering};

use uringlet_core::IdentityChange;
use uringlet_sys::user::read_mapped;
use uringlet_sys::{Sysno, UserPtr};

use crate::arch::AUDIT_ARCH;
use crate::convert::address;

static IS_CONFINED: AtomicBool = AtomicBool::new(false);

/// Whether a call of ours would be the end.
pub(super) fn is_confined() -> bool {
    IS_CONFINED.load(Ordering::Relaxed)
}

/// The calls that are made before an execve(2).
const CALLS: [Sysno; 19] = [
    Sysno::newfstatat,
    Sysno::openat,
    Sysno::pread64,
    Sysno::close,
    Sysno::prctl,
    Sysno::set_tid_address,
    Sysno::getpid,
    Sysno::rt_sigprocmask,
    Sysno::getuid,
    Sysno::geteuid,
    Sysno::getgid,
    Sysno::getegid,
    Sysno::fgetxattr,
    Sysno::execve,
    Sysno::execveat,
    Sysno::faccessat,
    Sysno::readlink,
    Sysno::fcntl,
    Sysno::sched_yield,
];

/// The calling thread has made this call, which may install a filter.
pub(crate) fn note_filter(nr: Sysno, args: [usize; 3], result: isize) {
    let is_filter = IdentityChange::of(nr, args).is_some_and(|change| change.is_filter);
    // Both calls have the address of a `struct sock_fprog` as their third argument.
    if is_filter && result >= 0 && matches!(nr, Sysno::prctl | Sysno::seccomp) {
        examine(args[2]);
    }
}

/// Runs the filter whose `struct sock_fprog` the kernel has just read.
fn examine(program: usize) {
    let len: u64 = read_mapped::<u64>(UserPtr::new(program)) & 0xffff;
    let code = address(read_mapped(UserPtr::new(program + 8)));
    let insn = |at: usize| (at < address(len)).then(|| FilterInsn(read_mapped(UserPtr::new(code + 8 * at))));
    let ends = |nr: &Sysno| run(&insn, &data_of(*nr)).is_none_or(is_end);
    if CALLS.iter().any(ends) {
        IS_CONFINED.store(true, Ordering::Relaxed);
    }
}

/// Whether a filter's answer kills, raises a signal or asks another process.
fn is_end(answer: u32) -> bool {
    const ACTION: u32 = 0xffff_0000;
    const ERRNO: u32 = 0x0005_0000;
    const TRACE: u32 = 0x7ff0_0000;
    const LOG: u32 = 0x7ffc_0000;
    const ALLOW: u32 = 0x7fff_0000;
    ![ERRNO, TRACE, LOG, ALLOW].contains(&(answer & ACTION))
}

/// The words of a `struct seccomp_data`.
const DATA_WORDS: usize = 16;

/// What the kernel shows a filter; arguments and instruction pointer are 0.
fn data_of(nr: Sysno) -> [u32; DATA_WORDS] {
    let mut data = [0; DATA_WORDS];
    (data[0], data[1]) = (nr as u32, AUDIT_ARCH);
    data
}

/// An instruction of the classic BPF machine, as the kernel's `struct sock_filter` holds it.
#[derive(Clone, Copy)]
struct FilterInsn(u64);

impl FilterInsn {
    fn code(self) -> u32 {
        (self.0 & 0xffff) as u32
    }

    fn jump(self, is_true: bool) -> usize {
        (self.0 >> if is_true { 16 } else { 24 } & 0xff) as usize
    }

    fn k(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The registers of the machine.
#[derive(Default)]
struct Machine {
    a: u32,
    x: u32,
    memory: [u32; 16],
}

/// The answer of a filter; `None`: it is none that the kernel accepts.
fn run(insn: &dyn Fn(usize) -> Option<FilterInsn>, data: &[u32; DATA_WORDS]) -> Option<u32> {
    let mut machine = Machine::default();
    let mut at = 0;
    loop {
        let now = insn(at)?;
        at += 1;
        match now.code() & 7 {
            5 => at += machine.jump(now)?,
            6 => return Some(if now.code() & 0x18 == 0x10 { machine.a } else { now.k() }),
            _ => machine.step(now, data)?,
        }
    }
}

impl Machine {
    /// What an instruction works with besides `a`: `x`, or its constant.
    fn operand(&self, insn: FilterInsn) -> u32 {
        if insn.code() & 8 == 0 { insn.k() } else { self.x }
    }

    /// The number of instructions that a jump skips.
    fn jump(&self, insn: FilterInsn) -> Option<usize> {
        let operand = self.operand(insn);
        let is_true = match insn.code() & 0xf0 {
            0x00 => return usize::try_from(insn.k()).ok(),
            0x10 => self.a == operand,
            0x20 => self.a > operand,
            0x30 => self.a >= operand,
            0x40 => self.a & operand != 0,
            _ => return None,
        };
        Some(insn.jump(is_true))
    }

    fn step(&mut self, insn: FilterInsn, data: &[u32; DATA_WORDS]) -> Option<()> {
        match insn.code() & 7 {
            0 => self.a = self.load(insn, data)?,
            1 => self.x = self.load(insn, data)?,
            2 => *self.memory.get_mut(insn.k() as usize)? = self.a,
            3 => *self.memory.get_mut(insn.k() as usize)? = self.x,
            4 => self.a = compute(insn.code() & 0xf0, self.a, self.operand(insn))?,
            7 if insn.code() & 0x80 == 0 => self.x = self.a,
            7 => self.a = self.x,
            _ => return None,
        }
        Some(())
    }

    fn load(&self, insn: FilterInsn, data: &[u32; DATA_WORDS]) -> Option<u32> {
        let index = insn.k() as usize;
        match insn.code() & 0xe0 {
            0x00 => Some(insn.k()),
            0x20 if index.is_multiple_of(4) => data.get(index / 4).copied(),
            0x60 => self.memory.get(index).copied(),
            0x80 => u32::try_from(size_of_val(data)).ok(),
            _ => None,
        }
    }
}

fn compute(operation: u32, a: u32, operand: u32) -> Option<u32> {
    Some(match operation {
        0x00 => a.wrapping_add(operand),
        0x10 => a.wrapping_sub(operand),
        0x20 => a.wrapping_mul(operand),
        0x30 => a.checked_div(operand)?,
        0x40 => a | operand,
        0x50 => a & operand,
        0x60 => a.wrapping_shl(operand),
        0x70 => a.wrapping_shr(operand),
        0x80 => a.wrapping_neg(),
        0xa0 => a ^ operand,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insn(code: u16, jumps: [u8; 2], k: u32) -> FilterInsn {
        FilterInsn(u64::from(code) | u64::from(jumps[0]) << 16 | u64::from(jumps[1]) << 24 | u64::from(k) << 32)
    }

    fn answer(program: &[FilterInsn], nr: Sysno) -> Option<u32> {
        run(&|at| program.get(at).copied(), &data_of(nr))
    }

    #[test]
    fn a_list_of_numbers_is_decided_as_the_kernel_decides_it() {
        const ALLOW: u32 = 0x7fff_0000;
        const KILL: u32 = 0x8000_0000;
        let program = [
            insn(0x20, [0, 0], 4),
            insn(0x15, [1, 0], AUDIT_ARCH),
            insn(0x06, [0, 0], KILL),
            insn(0x20, [0, 0], 0),
            insn(0x15, [0, 1], Sysno::close as u32),
            insn(0x06, [0, 0], ALLOW),
            insn(0x35, [0, 1], 500),
            insn(0x06, [0, 0], ALLOW),
            insn(0x06, [0, 0], KILL),
        ];
        assert_eq!(answer(&program, Sysno::close), Some(ALLOW));
        assert_eq!(answer(&program, Sysno::openat), Some(KILL));
        assert!(is_end(KILL) && is_end(0) && is_end(0x0003_0000) && is_end(0x7fc0_0000));
        assert!(!is_end(ALLOW) && !is_end(0x0005_0001));
    }

    #[test]
    fn arithmetic_memory_and_registers_work() {
        let program = [
            insn(0x00, [0, 0], 6),
            insn(0x02, [0, 0], 3),
            insn(0x61, [0, 0], 3),
            insn(0x0c, [0, 0], 0),
            insn(0x54, [0, 0], 0xc),
            insn(0x74, [0, 0], 2),
            insn(0x07, [0, 0], 0),
            insn(0x80, [0, 0], 0),
            insn(0x1c, [0, 0], 0),
            insn(0x16, [0, 0], 0),
        ];
        assert_eq!(answer(&program, Sysno::close), Some(61));
    }

    #[test]
    fn invalid_filter_has_no_answer() {
        assert_eq!(answer(&[], Sysno::close), None);
        assert_eq!(answer(&[insn(0x05, [0, 0], 9)], Sysno::close), None);
        assert_eq!(answer(&[insn(0x20, [0, 0], 64), insn(0x06, [0, 0], 0)], Sysno::close), None);
        assert_eq!(answer(&[insn(0x34, [0, 0], 0), insn(0x06, [0, 0], 0)], Sysno::close), None);
    }
}
