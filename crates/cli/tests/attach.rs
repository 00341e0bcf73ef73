//! Programs under `uringlet run`. Each installs a filter that answers EPERM to io_uring calls: any
//! other answer comes from the engine.

mod common;

use common::{compile, directory, finish, stderr, stdout, success, uringlet};

#[test]
fn io_uring_is_blocked_without_uringlet() {
    let directory = directory("wall");
    let program = compile("cc", &directory, "calls", &["calls.c"], &[]);
    let output = stdout(&finish(&mut std::process::Command::new(program)));
    assert!(output.starts_with("setup kernel\nsetup with all signals blocked kernel\n"), "{output}");
}

#[test]
fn every_kind_of_site_reaches_the_engine_and_keeps_all_registers() {
    let directory = directory("sites");
    let program = compile("cc", &directory, "sites", &["sites.c", "sites.S"], &[]);
    let output = finish(uringlet(&directory.join("cache")).arg("--explain").arg(&program));
    let sites = ["load_setup", "load_gap", "load_long", "before_any", "over_any", "after_any", "after_jump", "joined"];
    let expected: String = sites.iter().map(|site| format!("{site} engine\n")).collect();
    assert_eq!(stdout(&output), expected + "interrupted and kept\n", "{}", stderr(&output));
    let explained = "8 sites rewritten: 3 io_uring, 5 with the number in a register, 0 other, 2 before the call, 3 at the number, 1 over the call, 2 behind the call; scanned";
    assert!(stderr(&output).contains(explained), "{}", stderr(&output));
}

#[test]
fn programs_at_fixed_addresses_are_rewritten_too() {
    let directory = directory("no-pie");
    let program = compile("cc", &directory, "sites", &["sites.c", "sites.S"], &["-no-pie"]);
    let output = success(uringlet(&directory.join("cache")).arg(&program));
    assert!(output.contains("joined engine") && output.ends_with("interrupted and kept\n"), "{output}");
}

#[test]
fn sites_that_only_an_address_leads_to_need_a_constant_number_without_unwind_tables() {
    let directory = directory("no-tables");
    let program = compile("cc", &directory, "sites", &["sites.c", "sites.S"], &["-Wl,--no-eh-frame-hdr"]);
    let output = success(uringlet(&directory.join("cache")).arg(&program));
    assert!(output.starts_with("load_setup engine\nload_gap engine\nload_long engine\nbefore_any kernel\n"), "{output}");
    assert!(output.ends_with("interrupted and kept\n"), "{output}");
}

#[test]
fn text_that_mprotect_refuses_is_written_through_proc_mem() {
    sites_are_redirected_where_mprotect_denies("PROT_WRITE");
}

#[test]
fn trampolines_are_mapped_from_a_file_where_mprotect_makes_no_code() {
    sites_are_redirected_where_mprotect_denies("PROT_EXEC");
}

fn sites_are_redirected_where_mprotect_denies(protection: &str) {
    let directory = directory(protection);
    let deny = compile("cc", &directory, "deny", &["deny.c"], &[&format!("-DDENIED={protection}")]);
    let program = compile("cc", &directory, "sites", &["sites.c", "sites.S"], &[]);
    let run = uringlet(&directory.join("cache"));
    let mut command = std::process::Command::new(deny);
    command.arg(run.get_program()).args(run.get_args()).arg(&program);
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = success(&mut command);
    assert!(output.contains("joined engine") && output.ends_with("interrupted and kept\n"), "{output}");
}

#[test]
fn interposed_libc_calls_behave_as_libc() {
    let directory = directory("calls");
    let expected = "setup engine\nsetup with all signals blocked engine\ncalls ok\n";
    let program = compile("cc", &directory, "calls", &["calls.c"], &[]);
    assert_eq!(success(uringlet(&directory).arg(program)), expected);
    let fortified = compile("cc", &directory, "fortified", &["calls.c"], &["-D_FORTIFY_SOURCE=2"]);
    assert_eq!(success(uringlet(&directory).arg(fortified)), expected);
}

#[test]
fn musl_programs_are_attached_too() {
    let directory = directory("musl");
    let program = compile(
        "musl-gcc",
        &directory,
        "sites",
        &["sites.c", "sites.S"],
        &["-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"],
    );
    let output = success(uringlet(&directory.join("cache")).arg(&program));
    assert!(output.contains("load_setup engine") && output.ends_with("interrupted and kept\n"), "{output}");
}

#[test]
fn children_are_attached_too() {
    let directory = directory("family");
    let program = compile("cc", &directory, "family", &["family.c"], &[]);
    let roads = [
        "posix_spawn",
        "posix_spawn with another preload",
        "vfork, after a failure",
        "fork and fexecve",
        "a fork alone",
        "execv",
        "execvp",
        "execvpe",
        "execl",
        "execlp",
        "execle",
        "posix_spawnp",
        "popen",
        "system",
        "execve",
    ];
    let expected: String = roads.iter().map(|road| format!("{road}: engine\n")).collect();
    assert_eq!(success(uringlet(&directory).arg(&program)), expected);
    // musl's posix_spawn leaves its child five kilobytes of stack.
    let headers = ["-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"];
    let program = compile("musl-gcc", &directory, "musl-family", &["family.c"], &headers);
    assert_eq!(success(uringlet(&directory).arg(&program)), expected);
    // A static program, which a shell starts.
    let fixed = compile("cc", &directory, "fixed", &["calls.c"], &["-static"]);
    let output = success(uringlet(&directory).args(["sh", "-c"]).arg(format!("{} || true", fixed.display())));
    assert!(output.starts_with("setup engine\n"), "{output}");
}

#[test]
fn libraries_are_rewritten_at_each_dlopen() {
    let directory = directory("later");
    let library = compile("cc", &directory, "liblater.so", &["liblater.c"], &["-shared", "-fPIC"]);
    let program = compile("cc", &directory, "later", &["later.c"], &["-ldl"]);
    assert_eq!(success(uringlet(&directory.join("cache")).arg(&program).arg(&library)), "engine\n");
}

#[test]
fn threads_with_small_stacks_can_use_a_ring() {
    let directory = directory("threads");
    let program = compile("cc", &directory, "threads", &["threads.c"], &[]);
    assert_eq!(success(uringlet(&directory).arg(&program)), "engine\n");
}

#[test]
fn signal_handlers_run_after_the_engine_is_left() {
    let directory = directory("signals");
    let program = compile("cc", &directory, "signals", &["signals.c"], &[]);
    let expected = "interrupted work ok\ninterrupted wait ok\nhandlers ok\n";
    assert_eq!(success(uringlet(&directory.join("cache")).arg(&program)), expected);
}

/// The total that `--explain` prints last: (objects, known, sites).
fn total(explained: &str) -> [u32; 3] {
    let line = explained.lines().rfind(|line| line.contains(" objects, ")).unwrap_or_else(|| panic!("no total in\n{explained}"));
    let numbers: Vec<u32> = line.split([':', ',']).filter_map(|part| part.trim().split(' ').next()?.parse().ok()).collect();
    [numbers[0], numbers[1], numbers[2]]
}

#[test]
fn a_second_start_uses_the_cache_of_the_first() {
    let directory = directory("cache");
    let cache = directory.join("cache");
    let program = compile("cc", &directory, "sites", &["sites.c", "sites.S"], &["-lm"]);
    let explained = |more: &[&str]| stderr(&finish(uringlet(&cache).arg("--explain").args(more).arg(&program)));
    let [objects, known, sites] = total(&explained(&[]));
    assert_eq!((known, sites), (0, 8));
    assert_eq!(total(&explained(&[])), [objects, objects, 8]);
    assert_eq!(total(&explained(&["--no-cache"])), [objects, 0, 8]);

    for entry in std::fs::read_dir(&cache).expect("the cache") {
        let file = entry.expect("an entry").path();
        let mut content = std::fs::read(&file).expect("a record");
        let middle = content.len() / 2;
        content[middle] ^= 1;
        std::fs::write(&file, content).expect("a damaged record");
    }
    assert_eq!(total(&explained(&[])), [objects, 0, 8], "damaged records must be ignored");
    assert_eq!(total(&explained(&[])), [objects, objects, 8], "and replaced");
}

#[test]
fn a_cache_that_other_users_can_write_is_ignored() {
    use std::os::unix::fs::PermissionsExt;
    let directory = directory("foreign-cache");
    let cache = directory.join("cache");
    let program = compile("cc", &directory, "sites", &["sites.c", "sites.S"], &[]);
    let explained = || stderr(&finish(uringlet(&cache).arg("--explain").arg(&program)));
    explained();
    std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o777)).expect("chmod");
    assert_eq!(total(&explained()), [1, 0, 8]);
}

#[test]
fn an_object_without_a_build_id_is_identified_by_its_file() {
    let directory = directory("no-build-id");
    let cache = directory.join("cache");
    let program = compile("cc", &directory, "sites", &["sites.c", "sites.S"], &["-Wl,--build-id=none"]);
    let explained = || stderr(&finish(uringlet(&cache).arg("--explain").arg(&program)));
    assert!(explained().contains("the program (no build-id): 8 sites rewritten"));
    assert_eq!(total(&explained()), [1, 1, 8]);
}
