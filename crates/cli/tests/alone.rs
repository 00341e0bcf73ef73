//! A process without a ring is left alone: the engine makes no system call in it after the start,
//! and changes no result.

mod common;

use common::{compile, directory, finish, object, oracle, success, trace, uringlet};
use std::path::Path;
use std::process::Command;

/// Runs the program as it is and attached. As it is it must succeed: it is its own oracle.
fn compare(program: &Path, arguments: &[&Path]) {
    let directory = program.parent().expect("a directory");
    success(Command::new(program).args(arguments));
    success(uringlet(&directory.join("cache")).arg(program).args(arguments));
}

#[test]
fn a_filter_for_the_programs_own_calls_kills_nothing() {
    let directory = directory("alone-sandbox");
    let program = compile("cc", &directory, "sandbox", &["alone_sandbox.c"], &[]);
    let exit = compile("cc", &directory, "exit", &["alone_exit.S"], &["-nostdlib", "-static"]);
    let library = compile("cc", &directory, "library.so", &["alone_library.c"], &["-shared", "-fPIC"]);
    compare(&program, &[&exit, &library]);
}

/// A program with a sanitizer's runtime uses a ring. Skipped where the compiler has no such
/// runtime, or the runtime does not even start by itself.
fn sanitized(compiler: &str, options: &[&str]) {
    let directory = directory(&format!("alone-{compiler}{}", options.concat()));
    let nothing = directory.join("nothing.c");
    std::fs::write(&nothing, "int main(void) { return 0; }").expect("a source file");
    let probe = directory.join("nothing");
    let compiled = Command::new(compiler).args(options).arg("-o").arg(&probe).arg(&nothing).output();
    let starts = || Command::new(&probe).output().is_ok_and(|output| output.status.success());
    if !compiled.is_ok_and(|output| output.status.success()) || !starts() {
        return eprintln!("skipped: no program starts with {compiler} {options:?}");
    }
    let options: Vec<&str> = options.iter().copied().chain(["-g"]).collect();
    let program = compile(compiler, &directory, "sanitized", &["alone_sanitized.c"], &options);
    let attached = finish(uringlet(&directory.join("cache")).arg(&program).env("BLOCK_IO_URING", "1"));
    oracle::must_succeed(&attached, "attached");
    let kernel = finish(&mut Command::new(&program));
    if oracle::has_ring(&kernel) {
        oracle::must_succeed(&kernel, "on the kernel's ring");
    }
}

#[test]
fn a_program_with_a_static_thread_sanitizer_uses_a_ring() {
    sanitized("clang", &["-fsanitize=thread"]);
}

#[test]
fn a_program_with_a_shared_thread_sanitizer_uses_a_ring() {
    sanitized("gcc", &["-fsanitize=thread"]);
}

#[test]
fn a_program_with_a_static_address_sanitizer_uses_a_ring() {
    sanitized("clang", &["-fsanitize=address"]);
    sanitized("gcc", &["-fsanitize=address", "-static-libasan"]);
}

/// Ordinary programs that need no network and no terminal, as a shell runs them. Those that are not
/// installed are skipped. Not here: what reads the state of other processes (ps).
const PROGRAMS: [&str; 33] = [
    "true",
    "for i in 1 2 3; do echo $i | cat; done; test -d /nowhere",
    "bash -c 'x=$(echo a; echo b); printf %s \"$x\" | wc -l; exec 9</etc/passwd; read -u 9 y; (exit 0)'",
    "git --version; git init -q repository; cd repository; git status --short; git log",
    "/usr/bin/python3 -c 'import os, hashlib; os.fork() or os._exit(0); os.wait(); open(\"/etc/passwd\").read()'",
    "/usr/bin/python3 -c 'import json, select, socket, subprocess as s; s.run([\"true\"]); s.run([\"true\"], env={}, close_fds=False)'",
    "perl -e 'print `true`; open(F, \"<\", \"/etc/passwd\"); @l = <F>; close F; system(\"true\")'",
    "java --version",
    "node --version",
    "ls -la /etc",
    "cat /etc/passwd",
    "cp /etc/passwd copy; mv copy moved; rm moved",
    "sort /etc/passwd | uniq -c | head -c 100",
    "tar cf archive.tar /etc/passwd /etc/group; tar tf archive.tar",
    "tar czf archive.tar.gz /etc/passwd; gzip -t archive.tar.gz",
    "sed -n 1,3p /etc/passwd",
    "awk -F: '{ print $1 | \"cat\" }' /etc/passwd",
    "find /etc/apt -name '*.list' -exec true {} ';'",
    "echo a b c | xargs -n 1 true",
    "grep -r nothing-like-this /etc/apt",
    "ssh-keygen -q -t ed25519 -N '' -f key",
    "openssl dgst -sha256 /etc/passwd",
    "sqlite3 data.db 'create table t (a); insert into t values (1); select * from t;'",
    "make --version; printf 'all:\\n\\ttrue\\n' > Makefile; make -s",
    "env -i true; env A=b true",
    "timeout 10 true",
    "nice true; nohup true",
    "dd if=/etc/passwd of=copy bs=64 count=2 status=none; cmp /etc/passwd copy",
    "cc --version",
    "id; uname -a; date",
    "mkdir d; chmod 700 d; ln -s d e; stat e; readlink e; rmdir d",
    "touch f; flock f true; mktemp -u; tee g < f; cut -c 1 g; tr a b < g; wc g; od g",
    "echo 1 | bc; xz --version; file /etc/passwd; expr 1 + 1; diff /etc/passwd /etc/group",
];

/// Runs a third of the programs without and with the engine, and compares their system calls.
fn same_calls(first: usize) {
    let directory = directory(&format!("alone-programs{first}"));
    if !trace::is_possible(&directory) {
        return eprintln!("skipped: strace does not trace here");
    }
    let compared = PROGRAMS.iter().skip(first).step_by(3).flat_map(|command| {
        let differences = trace::compare(&directory, command, object());
        differences.into_iter().map(move |difference| format!("{command}: {difference}"))
    });
    let differences: Vec<String> = compared.collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn ordinary_programs_make_the_same_calls() {
    same_calls(0);
}

#[test]
fn more_ordinary_programs_make_the_same_calls() {
    same_calls(1);
}

#[test]
fn yet_more_ordinary_programs_make_the_same_calls() {
    same_calls(2);
}

/// The comparison itself: an object that makes one call more in close(2) is found out.
#[test]
fn one_call_more_is_a_difference() {
    let directory = directory("alone-trace");
    if !trace::is_possible(&directory) {
        return eprintln!("skipped: strace does not trace here");
    }
    let meddler = compile("cc", &directory, "meddler.so", &["alone_meddler.c"], &["-shared", "-fPIC"]);
    let differences = trace::compare(&directory, "cat /etc/passwd", &meddler);
    assert!(differences.iter().any(|difference| difference.contains("getppid")), "{differences:?}");
}
