//! The system calls of a Docker container: the default profile of Docker 25 and later, which
//! excludes io_uring, for a container with the default capabilities, on Linux 4.8 or later. It is
//! an allow-list; every other call answers EPERM.
//!
//! Calls are grouped by purpose. Differences from a real container: another library compiles the
//! filters (a chain instead of a tree), foreign personalities of the CPU (i386, x32) are killed
//! instead of filtered, and set-uid programs gain no rights.

use super::filter::{CallRules, compile, number};
use seccompiler::{BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// Calls that are allowed with any arguments. Names that this CPU does not have are ignored.
const ALLOWED: &[(&str, &str)] = &[
    (
        "read and write",
        "
        read readv pread64 preadv preadv2 write writev pwrite64 pwritev pwritev2 lseek sendfile copy_file_range splice tee
        vmsplice readahead fadvise64 cachestat",
    ),
    ("Linux AIO, which stays allowed", "io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents"),
    (
        "open and close",
        "
        open openat openat2 creat close close_range dup dup2 dup3 fcntl flock ioctl pipe pipe2 memfd_create memfd_secret
        name_to_handle_at",
    ),
    ("durability and space", "fsync fdatasync sync syncfs sync_file_range fallocate truncate ftruncate"),
    (
        "names",
        "
        access faccessat faccessat2 chdir fchdir getcwd chroot getdents getdents64 link linkat symlink symlinkat readlink
        readlinkat mkdir mkdirat rmdir mknod mknodat rename renameat renameat2 unlink unlinkat umask",
    ),
    (
        "attributes",
        "
        stat lstat fstat newfstatat statx statfs fstatfs statmount listmount chmod fchmod fchmodat fchmodat2 chown lchown
        fchown fchownat utime utimes utimensat futimesat getxattr lgetxattr fgetxattr getxattrat setxattr lsetxattr fsetxattr
        setxattrat listxattr llistxattr flistxattr listxattrat removexattr lremovexattr fremovexattr removexattrat",
    ),
    (
        "watching",
        "
        inotify_init inotify_init1 inotify_add_watch inotify_rm_watch fanotify_mark poll ppoll select pselect6 epoll_create
        epoll_create1 epoll_ctl epoll_ctl_old epoll_wait epoll_wait_old epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd
        signalfd4",
    ),
    (
        "sockets (socket itself: see by_argument)",
        "
        socketpair bind listen accept accept4 connect shutdown getsockname getpeername getsockopt setsockopt sendto sendmsg
        sendmmsg recvfrom recvmsg recvmmsg",
    ),
    (
        "memory",
        "
        brk mmap munmap mremap mprotect madvise mincore msync mlock mlock2 mlockall munlock munlockall mseal
        remap_file_pages map_shadow_stack membarrier pkey_alloc pkey_free pkey_mprotect process_mrelease",
    ),
    (
        "processes and threads (clone: see by_argument)",
        "
        fork vfork execve execveat exit exit_group wait4 waitid getpid getppid gettid getpgid getpgrp setpgid getsid setsid
        prctl arch_prctl modify_ldt set_thread_area get_thread_area set_tid_address set_robust_list get_robust_list rseq
        pidfd_open pidfd_send_signal times getrusage getcpu uretprobe restart_syscall",
    ),
    ("looking into other processes, allowed since Linux 4.8", "ptrace process_vm_readv process_vm_writev"),
    (
        "identity and rights",
        "
        getuid geteuid getresuid setuid setreuid setresuid setfsuid getgid getegid getresgid setgid setregid setresgid setfsgid
        getgroups setgroups capget capset seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self",
    ),
    (
        "limits and scheduling",
        "
        getrlimit setrlimit prlimit64 getpriority setpriority ioprio_get ioprio_set sched_yield sched_getaffinity
        sched_setaffinity sched_getattr sched_setattr sched_getparam sched_setparam sched_getscheduler sched_setscheduler
        sched_get_priority_max sched_get_priority_min sched_rr_get_interval",
    ),
    (
        "signals",
        "
        kill tkill tgkill pause alarm sigaltstack rt_sigaction rt_sigprocmask rt_sigpending rt_sigqueueinfo rt_tgsigqueueinfo
        rt_sigreturn rt_sigsuspend rt_sigtimedwait",
    ),
    (
        "time",
        "
        time gettimeofday clock_gettime clock_getres clock_nanosleep clock_adjtime adjtimex nanosleep getitimer setitimer
        timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime
        timerfd_settime",
    ),
    ("locks", "futex futex_wait futex_wake futex_waitv futex_requeue"),
    (
        "System V and POSIX queues",
        "
        msgctl msgget msgrcv msgsnd semctl semget semop semtimedop shmat shmctl shmdt shmget mq_getsetattr mq_notify mq_open
        mq_timedreceive mq_timedsend mq_unlink",
    ),
    ("facts about the machine", "uname sysinfo getrandom riscv_hwprobe riscv_flush_icache"),
    // The second filter answers ENOSYS.
    ("refused below in another way", "clone3"),
];

/// clone(2) may make no namespace: NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
const CLONE_NEW_ANYTHING: u64 = 0x7e02_0000;

/// Linux, UNAME26, their 32-bit kin, and the question "which one is it now?".
const PERSONALITIES: &[u64] = &[0, 0x0008, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Allowed address families from 12 up (all below are allowed). AF_VSOCK (hosts of virtual
/// machines), AF_ALG (the kernel's ciphers) and obsolete families are left out.
const FAMILIES: &[u64] = &[13, 14, 15, 16, 17, 18, 21, 22, 24, 26, 27, 28, 29, 30, 31, 32, 33, 35, 36, 39, 41, 42, 43, 44, 45];

/// The filters in the order of installation. If two of them refuse with an errno, the kernel
/// answers that of the filter installed last.
pub(super) fn filters() -> anyhow::Result<[BpfProgram; 2]> {
    let allow = compile(allowed()?, SeccompAction::Allow, SeccompAction::Errno(EPERM))?;
    // glibc takes ENOSYS as "old kernel, use clone(2)", whose flags a filter can see.
    let clone3 = number("clone3").map(|nr| (nr, vec![])).into_iter().collect();
    let no_clone3 = compile(clone3, SeccompAction::Errno(ENOSYS), SeccompAction::Allow)?;
    Ok([allow, no_clone3])
}

/// What the sandbox allows otherwise than Docker's profile, which allows these calls with some
/// arguments at least. `clone3` is refused by the second filter.
pub(crate) fn differences(allowed_there: &[&str]) -> anyhow::Result<Vec<String>> {
    let ours = allowed()?;
    let theirs: Vec<i64> = allowed_there.iter().filter_map(|name| number(name)).collect();
    let missing = allowed_there.iter().filter(|name| number(name).is_some_and(|nr| !ours.contains_key(&nr)));
    let clone3 = number("clone3");
    let surplus = ours.keys().filter(|nr| !theirs.contains(nr) && Some(**nr) != clone3);
    Ok(missing.map(|name| format!("{name} is allowed there")).chain(surplus.map(|nr| format!("call {nr} is not"))).collect())
}

fn allowed() -> anyhow::Result<CallRules> {
    let names = ALLOWED.iter().flat_map(|(_, names)| names.split_ascii_whitespace());
    let mut rules: CallRules = names.filter_map(number).map(|nr| (nr, vec![])).collect();
    for (name, conditions) in by_argument()? {
        rules.extend(number(name).map(|nr| (nr, conditions)));
    }
    Ok(rules)
}

/// Allowed only if the first argument (32 bits of it) passes one of the conditions.
fn by_argument() -> anyhow::Result<Vec<(&'static str, Vec<SeccompRule>)>> {
    let first = |op: SeccompCmpOp, value: u64| -> anyhow::Result<SeccompRule> {
        Ok(SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Dword, op, value)?])?)
    };
    let any_of = |values: &[u64]| values.iter().map(|v| first(SeccompCmpOp::Eq, *v)).collect::<anyhow::Result<Vec<_>>>();
    let mut families = any_of(FAMILIES)?;
    families.push(first(SeccompCmpOp::Lt, 12)?);
    Ok(vec![
        ("clone", vec![first(SeccompCmpOp::MaskedEq(CLONE_NEW_ANYTHING), 0)?]),
        ("personality", any_of(PERSONALITIES)?),
        ("socket", families),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::filter::IO_URING;
    use super::*;

    #[test]
    fn calls_refused_to_containers_are_not_listed() {
        let rules = allowed().unwrap();
        let refused = "bpf mount umount2 unshare setns keyctl add_key request_key userfaultfd perf_event_open pivot_root
            open_by_handle_at kcmp pidfd_getfd process_madvise fanotify_init swapon reboot init_module finit_module kexec_load
            iopl ioperm syslog acct settimeofday clock_settime mbind set_mempolicy get_mempolicy move_pages migrate_pages
            quotactl vhangup sethostname";
        for name in refused.split_ascii_whitespace().chain(IO_URING.iter().copied()) {
            let nr = number(name).unwrap_or_else(|| panic!("{name} has no number here"));
            assert!(!rules.contains_key(&nr), "{name} must not be allowed");
        }
    }

    #[test]
    fn no_name_is_misspelt() {
        // Calls of other CPUs or newer than the table of numbers.
        let elsewhere = ["riscv_hwprobe", "riscv_flush_icache"];
        let names = ALLOWED.iter().flat_map(|(_, names)| names.split_ascii_whitespace());
        let unknown: Vec<_> = names.filter(|name| number(name).is_none() && !elsewhere.contains(name)).collect();
        if cfg!(target_arch = "x86_64") {
            assert_eq!(unknown, Vec::<&str>::new());
        }
    }

    #[test]
    fn no_name_is_listed_twice() {
        let mut names: Vec<_> = ALLOWED.iter().flat_map(|(_, names)| names.split_ascii_whitespace()).collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect();
        assert_eq!(twice, Vec::<&str>::new());
    }
}
