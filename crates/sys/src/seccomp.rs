//! seccomp(2): a filter that raises SIGSYS for chosen system calls of code at chosen addresses.
//!
//! A filter is permanent, and children inherit it, also those that execute another program. There
//! no handler may wait for the signal, and it kills. So a filter looks at the addresses of code
//! last, and allows whatever comes from elsewhere: in another program nothing is at the same
//! addresses, as a rule.

use alloc::vec::Vec;
use core::ops::Range;

use crate::arch::AUDIT_ARCH;
use crate::io;
use crate::linux::prctl::{PR_GET_NO_NEW_PRIVS, PR_SET_NO_NEW_PRIVS};
use crate::linux::ptrace::{
    BPF_ABS, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_FILTER_FLAG_NEW_LISTENER,
    SECCOMP_FILTER_FLAG_TSYNC, SECCOMP_RET_ALLOW, SECCOMP_RET_TRAP, SECCOMP_RET_USER_NOTIF, SECCOMP_SET_MODE_FILTER, sock_filter,
    sock_fprog,
};
use syscalls::{Errno, Sysno, syscall};

/// `si_code` of a SIGSYS that a filter raised.
pub const SYS_SECCOMP: i32 = 1;

/// Offsets in `struct seccomp_data` of a little-endian machine.
const NR: u32 = 0;
const ARCH: u32 = 4;
const PROGRAM_COUNTER: u32 = 8;
const ARGS: u32 = 16;

/// What a part of a [`TrapRule`] decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Trap the call if it comes from one of the address ranges.
    Trap,
    /// Let the kernel execute it.
    Allow,
}

/// A condition on the low half of an argument.
#[derive(Clone, Copy, Debug)]
pub enum ArgTest {
    /// It has one of these bits.
    AnyBit(u32),
    /// It is this.
    Equals(u32),
}

/// Which calls of one number are trapped. The first test that holds decides.
#[derive(Clone, Copy, Debug)]
pub struct TrapRule {
    /// The number.
    pub nr: Sysno,
    /// An argument's index, the condition, and what is decided where it holds.
    pub tests: &'static [(u32, ArgTest, Verdict)],
    /// What is decided where none holds.
    pub otherwise: Verdict,
}

/// The threads that a filter applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilteredThreads {
    /// All of the process.
    All,
    /// The others have filters that this one lacks.
    CallingThread,
}

/// Whether this thread and its children can gain no privileges by execve(2).
#[must_use]
pub fn has_no_new_privs() -> bool {
    // SAFETY: no addresses.
    unsafe { syscall!(Sysno::prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == Ok(1) }
}

/// Installs a filter: calls that `rules` name raise SIGSYS with `data` as `si_errno` if their code
/// is in one of `ranges`. Sets `no_new_privs` where the kernel asks for it.
///
/// # Errors
/// `ENOMEM` too many filters; those of prctl(2); `EPERM` and others where a filter denies the
/// calls.
pub fn trap(rules: &[TrapRule], ranges: &[Range<u64>], data: u16) -> Result<FilteredThreads, Errno> {
    let filter = build(rules, ranges, data);
    match install(&filter, SECCOMP_FILTER_FLAG_TSYNC) {
        Err(Errno::EACCES) => {
            // SAFETY: no addresses.
            unsafe { syscall!(Sysno::prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }?;
            install(&filter, SECCOMP_FILTER_FLAG_TSYNC)
        }
        result => result,
    }
}

/// Installs a filter for the calling thread and its children: the kernel asks the returned
/// descriptor before it executes the calls that `rules` name ([`crate::seccomp_notify`]). Sets
/// `no_new_privs`.
///
/// # Errors
/// As [`trap`]; `EBUSY` another such filter is there.
pub(crate) fn ask(rules: &[TrapRule]) -> Result<i32, Errno> {
    let filter = build_asking(rules);
    let len = u16::try_from(filter.len()).map_err(|_| Errno::EINVAL)?;
    let program = sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // SAFETY: no addresses; the kernel reads the live filter.
    unsafe {
        syscall!(Sysno::prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)?;
        let fd = syscall!(Sysno::seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &raw const program)?;
        Ok(io::number_of(fd))
    }
}

fn install(filter: &[sock_filter], flags: u32) -> Result<FilteredThreads, Errno> {
    let len = u16::try_from(filter.len()).map_err(|_| Errno::EINVAL)?;
    let program = sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel reads the live filter. What it traps is the caller's to answer.
    match unsafe { syscall!(Sysno::seccomp, SECCOMP_SET_MODE_FILTER, flags, &raw const program) }? {
        0 if flags == 0 => Ok(FilteredThreads::CallingThread),
        0 => Ok(FilteredThreads::All),
        // The number of a thread with other filters.
        _ => install(filter, 0),
    }
}

/// A length or a distance in a filter, which has a few dozen instructions.
fn small<T: TryFrom<usize> + Default>(count: usize) -> T {
    T::try_from(count).unwrap_or_default()
}

/// Where an instruction jumps that is emitted before its target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    /// Where the address is looked at.
    Look,
    Allow,
    Trap,
}

impl From<Verdict> for Label {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Trap => Self::Look,
            Verdict::Allow => Self::Allow,
        }
    }
}

/// A filter under construction.
#[derive(Default)]
struct FilterBuilder {
    code: Vec<sock_filter>,
    /// Unconditional jumps to be completed.
    jumps: Vec<(usize, Label)>,
}

impl FilterBuilder {
    /// Begins a filter with the rules; what they trap continues at [`Label::Look`].
    fn of_rules(rules: &[TrapRule]) -> Self {
        let mut filter = Self::default();
        filter.load(ARCH);
        filter.unless_skip(BPF_JEQ, AUDIT_ARCH, 1);
        filter.put(BPF_JMP | BPF_JA, 1, 0, 0);
        filter.jump(Label::Allow);
        filter.load(NR);
        rules.iter().for_each(|rule| filter.put_rule(rule));
        filter
    }

    fn put(&mut self, code: u32, k: u32, if_true: u8, if_false: u8) {
        self.code.push(sock_filter { code: (code & 0xffff) as u16, jt: if_true, jf: if_false, k });
    }

    fn load(&mut self, offset: u32) {
        self.put(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0);
    }

    /// Continues with the next instruction if the comparison holds, `skipped` further if not.
    fn unless_skip(&mut self, comparison: u32, value: u32, skipped: u8) {
        self.put(BPF_JMP | comparison | BPF_K, value, 0, skipped);
    }

    fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.put(BPF_JMP | BPF_JA, 0, 0, 0);
    }

    /// The label is here.
    fn place(&mut self, label: Label) {
        let here = self.code.len();
        for &(at, _) in self.jumps.iter().filter(|(_, to)| *to == label) {
            self.code[at].k = small(here - at - 1);
        }
    }

    fn put_rule(&mut self, rule: &TrapRule) {
        // Each test takes three instructions, the rest one.
        self.unless_skip(BPF_JEQ, rule.nr as u32, small(3 * rule.tests.len() + 1));
        for &(argument, test, verdict) in rule.tests {
            self.load(ARGS + 8 * argument);
            match test {
                ArgTest::AnyBit(bits) => self.unless_skip(BPF_JSET, bits, 1),
                ArgTest::Equals(value) => self.unless_skip(BPF_JEQ, value, 1),
            }
            self.jump(verdict.into());
        }
        self.jump(rule.otherwise.into());
    }

    /// Addresses with the same high half.
    fn put_range(&mut self, high: u32, first: u32, last: u32) {
        self.load(PROGRAM_COUNTER + 4);
        self.unless_skip(BPF_JEQ, high, 4);
        self.load(PROGRAM_COUNTER);
        self.unless_skip(BPF_JGE, first, 2);
        self.put(BPF_JMP | BPF_JGT | BPF_K, last, 1, 0);
        self.jump(Label::Trap);
    }
}

fn halves(address: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = address.to_le_bytes();
    (u32::from_le_bytes([e, f, g, h]), u32::from_le_bytes([a, b, c, d]))
}

fn build(rules: &[TrapRule], ranges: &[Range<u64>], data: u16) -> Vec<sock_filter> {
    let mut filter = FilterBuilder::of_rules(rules);
    filter.jump(Label::Allow);
    filter.place(Label::Look);
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        // The program counter is behind the instruction: at most at the end of the range.
        let ((high, first), (last_high, last)) = (halves(range.start + 1), halves(range.end));
        if high == last_high {
            filter.put_range(high, first, last);
        } else {
            filter.put_range(high, first, u32::MAX);
            (high + 1..last_high).for_each(|whole| filter.put_range(whole, 0, u32::MAX));
            filter.put_range(last_high, 0, last);
        }
    }
    filter.place(Label::Allow);
    filter.put(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    filter.place(Label::Trap);
    filter.put(BPF_RET | BPF_K, SECCOMP_RET_TRAP | u32::from(data), 0, 0);
    filter.code
}

/// As [`build`], wherever the code of the call is.
fn build_asking(rules: &[TrapRule]) -> Vec<sock_filter> {
    let mut filter = FilterBuilder::of_rules(rules);
    filter.place(Label::Allow);
    filter.put(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    filter.place(Label::Look);
    filter.put(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF, 0, 0);
    filter.code
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    const RULES: [TrapRule; 3] = [
        TrapRule { nr: Sysno::io_uring_enter, tests: &[], otherwise: Verdict::Trap },
        TrapRule {
            nr: Sysno::mmap,
            tests: &[
                (2, ArgTest::AnyBit(4), Verdict::Trap),
                (3, ArgTest::AnyBit(0x20), Verdict::Allow),
                (3, ArgTest::AnyBit(1), Verdict::Trap),
            ],
            otherwise: Verdict::Allow,
        },
        TrapRule { nr: Sysno::dup, tests: &[(5, ArgTest::Equals(77), Verdict::Allow)], otherwise: Verdict::Trap },
    ];

    /// Executes a filter as the kernel does; `None`: it leaves its end.
    fn run(filter: &[sock_filter], arch: u32, nr: u32, ip: u64, args: [u64; 6]) -> Option<u32> {
        let mut words = std::vec![nr, arch, halves(ip).1, halves(ip).0];
        words.extend(args.iter().flat_map(|&arg| [halves(arg).1, halves(arg).0]));
        let (mut at, mut a) = (0, 0);
        loop {
            let insn = filter.get(at)?;
            let code = u32::from(insn.code);
            at += 1;
            let holds = match code {
                c if c == BPF_LD | BPF_W | BPF_ABS => {
                    a = words[insn.k as usize / 4];
                    continue;
                }
                c if c == BPF_JMP | BPF_JA => {
                    at += insn.k as usize;
                    continue;
                }
                c if c == BPF_RET | BPF_K => return Some(insn.k),
                c if c == BPF_JMP | BPF_JEQ | BPF_K => a == insn.k,
                c if c == BPF_JMP | BPF_JGE | BPF_K => a >= insn.k,
                c if c == BPF_JMP | BPF_JGT | BPF_K => a > insn.k,
                c if c == BPF_JMP | BPF_JSET | BPF_K => a & insn.k != 0,
                _ => return None,
            };
            at += usize::from(if holds { insn.jt } else { insn.jf });
        }
    }

    fn is_trapped(ranges: &[Range<u64>], nr: Sysno, ip: u64, args: [u64; 6]) -> bool {
        match run(&build(&RULES, ranges, 7), AUDIT_ARCH, nr as u32, ip, args) {
            Some(SECCOMP_RET_ALLOW) => false,
            Some(other) if other == SECCOMP_RET_TRAP | 7 => true,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn calls_are_trapped_by_the_address_of_their_code() {
        let ranges = [0x7f12_3000_1000..0x7f12_3000_2000, 0x4_ffff_f000..0x7_0000_1000];
        let enter = |ip| is_trapped(&ranges, Sysno::io_uring_enter, ip, [0; 6]);
        for inside in [0x7f12_3000_1002, 0x7f12_3000_2000, 0x4_ffff_f002, 0x5_0000_0000, 0x6_1234_5678, 0x7_0000_1000] {
            assert!(enter(inside), "{inside:x}");
        }
        for outside in [0x7f12_3000_1000, 0x7f12_3000_2002, 0x7f13_3000_1800, 0x4_ffff_f000, 0x7_0000_1002, 0x8_0000_0000, 8] {
            assert!(!enter(outside), "{outside:x}");
        }
        assert!(!is_trapped(&[], Sysno::io_uring_enter, 0x1000, [0; 6]));
    }

    #[test]
    fn calls_are_trapped_by_number_and_arguments() {
        let code = 0x1000..0x2000;
        let range = core::slice::from_ref(&code);
        let mmap = |prot, flags| is_trapped(range, Sysno::mmap, 0x1800, [0, 4096, prot, flags, 3, 0]);
        assert_eq!([mmap(3, 1), mmap(3, 3), mmap(3, 2), mmap(3, 0x21), mmap(5, 0x22)], [true, true, false, false, true]);
        assert!(is_trapped(range, Sysno::dup, 0x1800, [1, 0, 0, 0, 0, 78]));
        assert!(!is_trapped(range, Sysno::dup, 0x1800, [1, 0, 0, 0, 0, 77]));
        assert!(!is_trapped(range, Sysno::getpid, 0x1800, [0; 6]));
        let foreign = run(&build(&RULES, range, 7), AUDIT_ARCH ^ 1, Sysno::io_uring_enter as u32, 0x1800, [0; 6]);
        assert_eq!(foreign, Some(SECCOMP_RET_ALLOW));
    }
}
