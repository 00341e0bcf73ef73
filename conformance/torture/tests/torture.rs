//! On the kernel's ring, if there is one: no check fails.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const NO_RING: i32 = 77;

#[test]
fn lives_on_the_kernels_ring_are_as_expected() {
    // All users must reach it.
    let dir = std::env::temp_dir().join(format!("torture-test-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for temporary files");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("its owner may");
    let mut command = Command::new(env!("CARGO_BIN_EXE_torture"));
    let output = command.args(["--lives", "4", "--seed", "7", "--dir"]).arg(&dir).output().expect("the program that was just built starts");
    if output.status.code() == Some(NO_RING) {
        eprintln!("this kernel gives no ring: not asked");
    } else {
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(output.status.success(), "{}: {text}", output.status);
    }
    std::fs::remove_dir_all(&dir).expect("its own directory");
}
