//! `liburinglet.so` as an object: it needs no libc, no thread-local storage and no registers that a
//! system call preserves and the engine does not save.

mod common;

use std::process::Command;

fn tool(name: &str, options: &[&str]) -> String {
    common::success(Command::new(name).args(options).arg(common::object()))
}

#[test]
fn the_object_needs_no_library() {
    let dynamic = tool("readelf", &["--dynamic", "--wide"]);
    assert!(!dynamic.contains("(NEEDED)"), "{dynamic}");
    assert!(dynamic.contains("INITFIRST"), "its constructor must run first\n{dynamic}");
    assert!(!dynamic.contains("(TEXTREL)"), "{dynamic}");
}

#[test]
fn the_object_has_no_thread_local_storage_and_no_executable_stack() {
    let headers = tool("readelf", &["--program-headers", "--wide"]);
    assert!(!headers.lines().any(|line| line.trim_start().starts_with("TLS")), "{headers}");
    let stack = headers.lines().find(|line| line.contains("GNU_STACK")).expect("a GNU_STACK header");
    assert!(!stack.contains("RWE"), "{stack}");
}

#[test]
fn the_object_uses_no_wide_vector_register() {
    let code = tool("objdump", &["--disassemble", "--no-show-raw-insn"]);
    assert!(code.lines().count() > 1000, "objdump shows no code");
    let wide = |line: &&str| ["%ymm", "%zmm", "%k1", "xsave", "fxsave", "%st("].iter().any(|register| line.contains(register));
    let found: Vec<&str> = code.lines().filter(wide).take(5).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_object_exports_interposed_symbols_and_imports_none() {
    let symbols = tool("nm", &["--dynamic"]);
    let named = |kinds: &[&str]| -> Vec<String> {
        let fields = symbols.lines().map(|line| line.split_whitespace().rev().collect::<Vec<_>>());
        fields.filter(|f| kinds.contains(&f[1])).map(|f| f[0].to_owned()).collect()
    };
    assert_eq!(named(&["U"]), Vec::<String>::new(), "these would have to be there, or the program would not start");
    let mut exported = named(&["T", "D", "B", "R", "W", "V"]);
    exported.sort();
    let expected = "_Exit __asan_default_options __fxstatat __fxstatat64 __lxstat __lxstat64 __open64_2 __open_2 __openat64_2 __openat_2 __poll_chk __ppoll_chk \
                    __sysv_signal __xstat __xstat64 _dl_find_object _exit access bsd_signal capset close close_range closedir closefrom \
                    dup dup2 dup3 endmntent epoll_ctl epoll_pwait epoll_pwait2 epoll_wait euidaccess execl execle execlp execv \
                    execve execveat execvp execvpe faccessat fclose fcntl fcntl64 fexecve freopen freopen64 fstatat fstatat64 \
                    initgroups lstat lstat64 mmap mmap64 mprotect mq_close open open64 openat openat64 opendir pclose pkey_mprotect poll popen \
                    posix_spawn posix_spawnp ppoll prctl prlimit prlimit64 pselect pthread_setcanceltype pthread_sigmask read readv scandir scandir64 scandirat scandirat64 select sendmmsg sendmsg setegid seteuid \
                    setfsgid setfsuid setgid setgroups setns setregid setresgid setresuid setreuid setrlimit setrlimit64 setuid \
                    sigaction signal sigprocmask sigset ssignal stat stat64 statx syscall system sysv_signal unshare uringlet_attached uringlet_engine_calls uringlet_program_entry write writev";
    assert_eq!(exported.join(" "), expected);
}
