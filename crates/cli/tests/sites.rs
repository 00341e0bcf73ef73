//! Programs whose system calls are not C's: they lie in functions that no unwind table lists.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{directory, finish, stderr, stdout, success, uringlet};

/// The Go program of tests/go/`name`, built with a C compiler; `None` where there is no Go.
fn build_go(name: &str, directory: &Path, options: &[&str]) -> Option<PathBuf> {
    let output = directory.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go").join(name);
    let path = [std::env::var("PATH").unwrap_or_default(), "/usr/local/go/bin".into()].join(":");
    let go = path.split(':').map(|folder| Path::new(folder).join("go")).find(|go| go.exists())?;
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&output).args(options).arg(".").current_dir(source).env("CGO_ENABLED", "1");
    let done = build.output().expect("go starts");
    assert!(done.status.success(), "{}", stderr(&done));
    Some(output)
}

#[test]
fn go_program_linked_with_c_uses_rings_by_its_own_system_calls() {
    for mode in ["exe", "pie"] {
        let directory = directory(&format!("go-{mode}"));
        let Some(program) = build_go("ring", &directory, &["-buildmode", mode]) else { return eprintln!("skipped: there is no Go") };
        let outside = finish(&mut Command::new(&program));
        // Each goroutine says so until the first of them has ended the program.
        assert!(stdout(&outside).starts_with("setup operation not permitted\n"), "{}", stdout(&outside));
        let cache = directory.join("cache");
        assert_eq!(success(uringlet(&cache).arg(&program)), "rings ok\n", "{mode}");
        let again = finish(uringlet(&cache).arg("--explain").arg(&program));
        assert_eq!(stdout(&again), "rings ok\n", "{mode}");
        let explained = stderr(&again);
        let line = explained.lines().find(|line| line.contains("the program")).expect("a line about the program");
        assert!(line.contains("with the number in a register") && line.contains("known from an earlier start"), "{line}");
        assert!(!explained.contains("left as it is"), "{explained}");
    }
}
