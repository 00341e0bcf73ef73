//! The sandbox, seen from inside: a C probe makes one system call and prints what it answered.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const PROBE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
/* probe NR [ARG0]: one raw call, the rest of its arguments 0; prints 0 or the errno. NR -1: prints whether capability ARG0
   is in the bounding set. */
int main(int argc, char **argv) {
    long nr = strtol(argv[1], 0, 0), arg = argc > 2 ? strtol(argv[2], 0, 0) : 0;
    long r = nr < 0 ? prctl(PR_CAPBSET_READ, arg, 0, 0, 0) : syscall(nr, arg, 0, 0, 0, 0, 0);
    printf("%ld\n", nr < 0 ? r : r < 0 ? errno : 0);
    return 0;
}
"#;

const EPERM: i32 = 1;
const EFAULT: i32 = 14;
const ESOCKTNOSUPPORT: i32 = 94;
const ENOSYS: i32 = 38;
const EBADF: i32 = 9;
const SIGSYS: i32 = 31;

fn probe() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (source, program) = (dir.join("probe.c"), dir.join("probe"));
        std::fs::write(&source, PROBE).unwrap();
        let status = Command::new("cc").arg("-o").arg(&program).arg(&source).status().expect("cc must be installed");
        assert!(status.success());
        program
    })
}

fn sandbox(walls: &[&str], program: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).arg("sandbox").args(walls).arg("--").args(program).output().unwrap()
}

/// The errno (0: none) of one call inside the walls.
fn errno_inside(walls: &[&str], nr: i64, arg: i64) -> i32 {
    let (nr, arg) = (nr.to_string(), arg.to_string());
    let out = sandbox(walls, &[probe().to_str().unwrap(), &nr, &arg]);
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap().trim().parse().unwrap()
}

fn number(name: &str) -> i64 {
    name.parse::<syscalls::Sysno>().unwrap().id().into()
}

#[test]
fn docker_refuses_io_uring_with_eperm() {
    for name in ["io_uring_setup", "io_uring_enter", "io_uring_register"] {
        assert_eq!(errno_inside(&["--docker"], number(name), 1), EPERM, "{name}");
    }
}

#[test]
fn docker_refuses_what_needs_more_rights() {
    for name in ["unshare", "setns", "bpf", "keyctl", "userfaultfd", "perf_event_open", "mount", "init_module"] {
        assert_eq!(errno_inside(&["--docker"], number(name), 0), EPERM, "{name}");
    }
}

#[test]
fn docker_looks_at_arguments() {
    const CLONE_NEWNET: i64 = 0x4000_0000;
    const AF_ALG: i64 = 38;
    const AF_VSOCK: i64 = 40;
    assert_eq!(errno_inside(&["--docker"], number("clone3"), 0), ENOSYS);
    assert_eq!(errno_inside(&["--docker"], number("clone"), CLONE_NEWNET), EPERM);
    assert_eq!(errno_inside(&["--docker"], number("socket"), AF_VSOCK), EPERM);
    assert_eq!(errno_inside(&["--docker"], number("socket"), AF_ALG), EPERM);
    assert_eq!(errno_inside(&["--docker"], number("personality"), 0x40_0000), EPERM);
    assert_eq!(errno_inside(&["--docker"], number("personality"), 0xffff_ffff), 0);
}

#[test]
fn docker_leaves_ordinary_calls_and_linux_aio_alone() {
    // The kernel's own answers to these arguments, not the filter's.
    assert_eq!(errno_inside(&["--docker"], number("getpid"), 0), 0);
    assert_eq!(errno_inside(&["--docker"], number("io_setup"), 1), EFAULT);
    assert_eq!(errno_inside(&["--docker"], number("ptrace"), 0x4200), 3);
    assert_eq!(errno_inside(&["--docker"], number("socket"), 1), ESOCKTNOSUPPORT);
    assert_eq!(errno_inside(&["--docker"], number("fsync"), -1), EBADF);
}

#[test]
fn docker_as_root_keeps_fourteen_capabilities() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("needs root");
        return;
    }
    let kept = (0..41).filter(|cap| errno_inside(&["--docker"], -1, *cap) == 1).count();
    assert_eq!(kept, 14);
}

#[test]
fn kill_ends_the_process_at_the_first_ring_call() {
    for name in ["io_uring_setup", "io_uring_enter", "io_uring_register"] {
        let out = sandbox(&["--kill"], &[probe().to_str().unwrap(), &number(name).to_string()]);
        assert_eq!(out.status.signal(), Some(SIGSYS), "{name}: {out:?}");
    }
}

#[test]
fn kill_takes_nothing_else_away() {
    for name in ["getpid", "unshare", "fsync", "userfaultfd", "keyctl"] {
        let inside = errno_inside(&["--kill"], number(name), 0);
        let outside = errno_inside(&[], number(name), 0);
        assert_eq!(inside, outside, "{name}");
    }
}

#[test]
fn the_walls_reach_grandchildren() {
    let command = format!("{} {}", probe().display(), number("io_uring_setup"));
    let out = sandbox(&["--docker"], &["sh", "-c", &command]);
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), EPERM.to_string());
}

#[test]
fn uid_drops_user_groups_and_capabilities() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("needs root");
        return;
    }
    let out = sandbox(&["--docker", "--uid", "65534"], &["sh", "-c", "id -u; id -G; grep CapEff /proc/self/status"]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(text, "65534\n65534\nCapEff:\t0000000000000000\n");
}

#[test]
fn exit_status_is_the_programs() {
    assert_eq!(sandbox(&["--kill"], &["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(sandbox(&["--kill"], &["/nowhere/at/all"]).status.code(), Some(127));
    assert_eq!(sandbox(&["--kill"], &["/etc/passwd"]).status.code(), Some(126));
}
