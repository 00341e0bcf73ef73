//! The system calls of a shell command, by strace, without and with a preloaded object.
//!
//! What differs from one run to the next (addresses, numbers, times) is not compared: of each call
//! there remain its name, its first path, and the error. Processes are compared one by one, and
//! each program that a process executes for itself: its calls after the dynamic linker's.

use super::{finish, stderr};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Calls of one program from its start on, in normal form.
type Image = Vec<String>;
/// The programs that each process executed, one after the other.
type Processes = Vec<Vec<Image>>;

/// Whether processes may be traced here.
pub(crate) fn is_possible(directory: &Path) -> bool {
    let traced = Command::new("strace").args(["-f", "-o"]).arg(directory.join("probe")).arg("true").output();
    traced.is_ok_and(|output| output.status.success())
}

/// Runs `command` in a fresh directory and returns its calls.
fn run(directory: &Path, command: &str, preload: Option<&Path>) -> Processes {
    let place = directory.join("place");
    let traces = directory.join("traces");
    for fresh in [&place, &traces] {
        let _ = std::fs::remove_dir_all(fresh);
        std::fs::create_dir_all(fresh).expect("a directory");
    }
    let mut strace = Command::new("strace");
    strace.args(["-ff", "-qq", "-s", "200", "-e", "signal=none", "-o"]).arg(traces.join("t"));
    if let Some(object) = preload {
        strace.arg("-E").arg(format!("LD_PRELOAD={}", object.display()));
        strace.arg("-E").arg(format!("URINGLET_CACHE={}", directory.join("cache").display()));
    }
    strace.args(["sh", "-c", command]).current_dir(&place).env("PYTHONHASHSEED", "0").env_remove("LD_PRELOAD");
    let output = finish(&mut strace);
    assert!(output.status.code().is_some(), "{command}: {}", stderr(&output));
    let mut files: Vec<(u32, String)> = std::fs::read_dir(&traces)
        .expect("the traces")
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let pid = path.extension()?.to_str()?.parse().ok()?;
            Some((pid, std::fs::read_to_string(path).ok()?))
        })
        .collect();
    files.sort();
    files.iter().map(|(_, text)| images(text)).collect()
}

/// The programs of one process: a successful execve begins the next.
fn images(trace: &str) -> Vec<Image> {
    /// What the exec hook asks for before an execve(2), after the object's own file.
    const OF_EXEC_HOOK: [&str; 7] = ["newfstatat ", "openat ", "pread64 ", "close ", "prctl ", "getpid ", "set_tid_address "];
    let mut images = vec![Image::new()];
    let mut reads_maps = false;
    let mut is_exec_hook = false;
    for line in trace.lines() {
        let Some(call) = normal_form(line) else { continue };
        let begins_hook = call.starts_with("newfstatat ") && call.contains("liburinglet_attach.so");
        is_exec_hook = begins_hook || is_exec_hook && OF_EXEC_HOOK.iter().any(|name| call.starts_with(name));
        // A search in PATH may be made by the hook.
        if is_exec_hook || call.starts_with("execve ") && call.ends_with(" ENOENT") {
            continue;
        }
        // How often a program reads its own map depends on the map's length.
        if reads_maps {
            reads_maps = !call.starts_with("close ");
            continue;
        }
        reads_maps = call == "openat /proc/self/maps ok";
        if call.starts_with("execve ") && call.ends_with(" ok") {
            images.push(Image::new());
        }
        images.last_mut().expect("one").push(call);
    }
    images
}

/// A call's name, its first string, and `ok` or its error. `None`: no call, one that depends on
/// when a child ends, or the one by which the exec hook looks at memory that it does not know.
fn normal_form(line: &str) -> Option<String> {
    const BY_TIME: [&str; 4] = ["rt_sigreturn", "wait4", "waitid", "restart_syscall"];
    let (name, rest) = line.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ").unwrap_or((rest, "?"));
    let is_check_of_exec_hook = name == "rt_sigprocmask" && result.contains("EINVAL");
    if result.contains("ERESTART") || BY_TIME.contains(&name) || is_check_of_exec_hook || name.contains(' ') {
        return None;
    }
    let takes_path = name.contains("open") || name.contains("exec") || name.contains("stat") || name.contains("access");
    let path = arguments.split('"').nth(1).filter(|_| takes_path).unwrap_or_default();
    let path: String = path.chars().filter(|c| !c.is_ascii_digit()).collect();
    let mut words = result.split(' ');
    let outcome = if words.next() == Some("-1") { words.next().unwrap_or_default() } else { "ok" };
    Some(format!("{name} {path} {outcome}"))
}

/// The calls after the dynamic linker or libc has started a program: last it asks for the limit of
/// the stack, and gives up the linker's cache. All calls if there is no libc.
fn body(image: &[String]) -> &[String] {
    let is_last = |call: &String| call.starts_with("prlimit64 ") || call.starts_with("munmap ");
    let Some(has_thread) = image.iter().position(|call| call.starts_with("set_robust_list ")) else { return image };
    let Some(last) = image[has_thread..].iter().position(is_last) else { return image };
    let calls = &image[has_thread + last..];
    &calls[calls.iter().take_while(|call| is_last(call)).count()..]
}

/// How the calls under `object` differ from those without; none if they do not.
pub(crate) fn compare(directory: &Path, command: &str, object: &Path) -> Vec<String> {
    // The first start fills caches.
    let first = run(directory, command, None);
    let plain = run(directory, command, None);
    run(directory, command, Some(object));
    let attached = run(directory, command, Some(object));
    if first != plain {
        return compare_names(&plain, &attached);
    }
    if plain.len() != attached.len() {
        return vec![format!("{} processes, not {}", attached.len(), plain.len())];
    }
    let pairs = plain.iter().zip(&attached).flat_map(|(plain, attached)| plain.iter().zip(attached));
    pairs.filter_map(|(plain, attached)| difference(body(plain), body(attached))).collect()
}

/// The object's own start comes first; then the same calls must follow.
fn difference(plain: &[String], attached: &[String]) -> Option<String> {
    let Some(start) = attached.len().checked_sub(plain.len()) else {
        return Some(format!("calls are missing:\n  alone    {plain:?}\n  attached {attached:?}"));
    };
    let at = plain.iter().zip(&attached[start..]).rposition(|(plain, attached)| plain != attached)?;
    Some(format!("alone: {:?}, attached: {:?}, then {:?}", plain[at], attached[start + at], plain.get(at + 1)))
}

/// For a program whose calls differ from run to run: only which calls there are, but for those that
/// the object itself makes at its start.
fn compare_names(plain: &Processes, attached: &Processes) -> Vec<String> {
    const AT_START: [&str; 16] = [
        "madvise", "getpid", "eventfd2", "fcntl", "close", "mmap", "munmap", "mprotect", "mkdirat", "openat", "fstat", "geteuid", "read",
        "gettid", "write", "renameat",
    ];
    let names = |processes: &Processes| -> BTreeSet<String> {
        let calls = processes.iter().flatten().flat_map(|image| body(image));
        calls.map(|call| call.split(' ').next().unwrap_or_default().to_owned()).collect()
    };
    let known = names(plain);
    let new = names(attached).into_iter().filter(|name| !known.contains(name) && !AT_START.contains(&name.as_str()));
    new.map(|name| format!("{name} is new")).collect()
}
