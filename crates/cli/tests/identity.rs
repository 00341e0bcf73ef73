//! What a request acts as: the user, groups, capabilities, sandbox and folder of the thread that
//! submitted it, whichever thread executes it. The kernel's ring is asked too.
//!
//! The programs run as root and give something up; elsewhere they are skipped.

mod common;

use common::oracle::{NO_RING, is_kernel_new_enough, must_succeed};
use common::{compile, directory, finish, stdout, uringlet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program and, if it uses one, the library whose system calls are its own instructions.
fn build(directory: &Path, name: &str, has_library: bool) -> PathBuf {
    let mut options = vec!["-ldl".to_owned()];
    if has_library {
        let library = compile("cc", directory, "libidentity_raw.so", &["identity_raw.c"], &["-shared", "-fPIC"]);
        options.extend([library.display().to_string(), format!("-Wl,-rpath,{}", directory.display())]);
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    compile("cc", directory, name, &[&format!("{name}.c")], &options)
}

fn must_succeed_unless_skipped(output: &Output, what: &str) {
    if output.status.code() == Some(NO_RING) {
        return eprintln!("{what}: {}", stdout(output));
    }
    must_succeed(output, what);
}

fn on_engine(name: &str, section: &str) {
    let directory = directory(&format!("{name}-engine-{section}"));
    let program = build(&directory, name, name == "identity_roads");
    let mut command = uringlet(&directory.join("cache"));
    let output = finish(command.arg("--").arg(program).arg(section).env("BLOCK_IO_URING", "1").current_dir(&directory));
    must_succeed_unless_skipped(&output, &format!("{name} {section} on the engine"));
}

fn on_kernel(name: &str, section: &str) {
    if !is_kernel_new_enough() {
        return eprintln!("skipped: this kernel is older than the expectations");
    }
    let directory = directory(&format!("{name}-kernel-{section}"));
    let program = build(&directory, name, name == "identity_roads");
    let output = finish(Command::new(program).arg(section).current_dir(&directory));
    must_succeed_unless_skipped(&output, &format!("{name} {section} on the kernel's ring"));
}

macro_rules! on_both_rings {
    ($program:literal: $($name:ident = $section:literal;)*) => {
        $(mod $name {
            #[test]
            fn engine() {
                super::on_engine($program, $section);
            }

            #[test]
            fn kernel() {
                super::on_kernel($program, $section);
            }
        })*
    };
}

on_both_rings! {
    "identity_roads":
    a_user_given_up_by_libc = "libc";
    a_user_given_up_by_a_raw_call = "syscall";
    a_user_given_up_by_an_instruction_in_an_object_without_rings = "instruction";
    a_user_given_up_by_libcs_function_found_by_its_handle = "handle";
    a_file_system_user_that_comes_back = "setfsuid";
    a_capability_given_up = "capset";
    a_landlock_domain_entered = "landlock";
    an_effective_user_that_comes_back = "seteuid";
    a_group_that_comes_back = "setgroups";
}

on_both_rings! {
    "identity_threads":
    two_users_on_rings_of_their_own = "own-rings";
    two_users_on_one_ring = "one-ring";
    a_user_given_up_in_all_threads = "libc-changes-all";
    two_threads_in_two_folders = "own-folder";
    a_folder_that_workers_share = "shared-folder";
    a_vfork_child_that_gives_up_its_user = "vfork-child";
}

on_both_rings! {
    "identity_spaces":
    namespaces_entered_beside_a_ring = "all";
}

/// The kernel's ring asks no filter, and opens. Ours is refused what its submitter is refused.
#[test]
fn a_filter_of_the_submitter_is_asked_by_the_engine_alone() {
    const EPERM: &str = "-1";
    on_engine("identity_seccomp", EPERM);
    on_kernel("identity_seccomp", "0");
}
