//! Static programs by C and Go compilers on rings, where the kernel's io_uring is blocked: as this
//! user and, where that is root, as an ordinary one. Rust's and Zig's: `cargo xtask programs`.

mod common;

use common::executable::copy_executable;
use common::oracle::{NO_RING, has_ring, is_kernel_new_enough, must_succeed};
use common::{compile, finish, object, stdout};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ROOT: u32 = 0;
const NOBODY: u32 = 65534;

/// Everything that programs need, in a folder that every user may enter: the checkout may be
/// readable by its owner only.
struct Place {
    folder: PathBuf,
    blocked: PathBuf,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("uringlet-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("a folder for temporary files");
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).expect("its mode");
        for (file, name) in [(Path::new(env!("CARGO_BIN_EXE_uringlet")), "uringlet"), (object(), "liburinglet.so")] {
            let copy = folder.join(name);
            if std::fs::hard_link(file, &copy).is_err() {
                copy_executable(file, &copy, 0o755);
            }
        }
        let blocked = compile("cc", &folder, "blocked", &["blocked_exec.c"], &[]);
        Self { folder, blocked }
    }

    /// The users that programs are run as.
    fn users(&self) -> &'static [u32] {
        let own = std::fs::metadata(&self.folder).expect("the folder").uid();
        if own == ROOT { &[ROOT, NOBODY] } else { &[NOBODY] }
    }

    /// A program in the filter as this user, in a folder of the user's own. `uringlet` are options
    /// of `uringlet run`; `None`: without uringlet.
    fn command(&self, user: u32, uringlet: Option<&[&str]>) -> Command {
        let own = self.folder.join(format!("of-{user}"));
        std::fs::create_dir_all(&own).expect("the user's folder");
        let mut command = Command::new(&self.blocked);
        if self.users().len() > 1 {
            chown(&own, Some(user), Some(user)).expect("its owner");
            command.args(["--user", &user.to_string()]);
        }
        if let Some(options) = uringlet {
            command.arg(self.folder.join("uringlet")).arg("run").args(options).arg("--");
        }
        command.env("URINGLET_LIB", self.folder.join("liburinglet.so")).env("URINGLET_CACHE", own.join("cache")).env("TMPDIR", &own);
        command.env("HOME", &own).env_remove("LD_PRELOAD").current_dir(own);
        command
    }

    /// The program has no ring without uringlet, works with it (scanned, then from the cache), and
    /// works on the kernel's ring.
    fn check(&self, program: &Path, expected: &str) {
        let is_right = |output: &Output, what: &str| {
            must_succeed(output, &format!("{}, {what}", program.display()));
            assert!(stdout(output).contains(expected), "{}, {what}: {}", program.display(), stdout(output));
        };
        for &user in self.users() {
            let plain = finish(self.command(user, None).arg(program));
            assert_eq!(plain.status.code(), Some(NO_RING), "{} without uringlet: {}", program.display(), stdout(&plain));
            for time in ["first", "second"] {
                let attached = finish(self.command(user, Some(&[])).arg(program));
                is_right(&attached, &format!("attached as user {user}, the {time} time"));
            }
        }
        let kernel = finish(Command::new(program).current_dir(&self.folder));
        if has_ring(&kernel) && is_kernel_new_enough() {
            is_right(&kernel, "on the kernel's ring");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn c_programs_with_liburings_archive_use_rings() {
    let place = Place::new("static-c");
    for (name, kind) in [("fixed", "-static"), ("pie", "-static-pie")] {
        let program = compile("cc", &place.folder, name, &["static_liburing.c"], &[kind, "-l:liburing.a"]);
        place.check(&program, "as expected");
    }
}

/// Go's tool, if it is here.
fn go() -> Option<Command> {
    let names = ["go", "/usr/local/go/bin/go"];
    let found = names.into_iter().find(|go| Command::new(go).arg("version").output().is_ok_and(|output| output.status.success()));
    let Some(go) = found else {
        eprintln!("skipped: there is no Go compiler (Debian: golang-go)");
        return None;
    };
    let mut command = Command::new(go);
    command.env("GOPROXY", "off").env("GOFLAGS", "").current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/wrapper"));
    Some(command)
}

/// The tests of a Go module that wraps rings, as a program.
fn tests_of_a_module_pass(name: &str, cgo: &str, options: &[&str]) {
    let place = Place::new(name);
    let Some(mut build) = go() else { return };
    let program = place.folder.join(name);
    build.args(["test", "-c", "-o"]).arg(&program).args(options).env("CGO_ENABLED", cgo);
    must_succeed(&finish(&mut build), "go test -c");
    place.check(&program, "PASS");
}

#[test]
fn go_module_without_c_uses_rings() {
    tests_of_a_module_pass("static-go", "0", &[]);
}

#[test]
fn go_module_with_c_uses_rings() {
    tests_of_a_module_pass("go-c", "1", &[]);
}

#[test]
fn go_module_linked_statically_with_c_uses_rings() {
    tests_of_a_module_pass("static-go-c", "1", &["-ldflags", "-linkmode=external -extldflags=-static"]);
}

#[test]
fn go_module_linked_to_a_static_pie_uses_rings() {
    tests_of_a_module_pass("static-go-pie", "1", &["-buildmode", "pie", "-ldflags", "-linkmode=external -extldflags=-static-pie"]);
}

/// The tool is a static program itself. It runs compiler, linker and the tests as its children.
#[test]
fn go_test_of_a_module_passes_under_uringlet() {
    let place = Place::new("go-test");
    let Some(tool) = go() else { return };
    for cgo in ["0", "1"] {
        let run = |uringlet: Option<&[&str]>| {
            let mut command = place.command(place.users()[0], uringlet);
            // Its cache holds the standard library, which takes long to build.
            command.env_remove("HOME").envs(std::env::var_os("HOME").map(|home| ("HOME", home)));
            command.arg(tool.get_program()).args(["test", "-count=1", "."]).env("CGO_ENABLED", cgo);
            for (name, value) in tool.get_envs() {
                command.envs(value.map(|value| (name, value)));
            }
            finish(command.current_dir(tool.get_current_dir().expect("the module")))
        };
        let plain = run(None);
        assert!(!plain.status.success() && stdout(&plain).contains("no ring"), "CGO_ENABLED={cgo}: {}", stdout(&plain));
        let attached = run(Some(&[]));
        must_succeed(&attached, &format!("go test, CGO_ENABLED={cgo}"));
        assert!(stdout(&attached).starts_with("ok "), "{}", stdout(&attached));
    }
}
