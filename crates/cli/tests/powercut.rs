//! `uringlet powercut`: logs that survive, logs that forget an fsync, and what a cut leaves.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn powercut(directory: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uringlet"));
    command.env("URINGLET_LIB", common::object()).env("URINGLET_CACHE", directory).env_remove("LD_PRELOAD");
    command.current_dir(directory).args(["powercut", "--dir", "data"]).args(options);
    command
}

/// A directory with the folder `data` and the log's program.
fn with_log(test: &str) -> PathBuf {
    let directory = common::directory(test);
    std::fs::create_dir(directory.join("data")).expect("a folder");
    common::compile("cc", &directory, "wal", &["wal.c"], &["-luring"]);
    directory
}

/// Cuts under the log, written in this way.
fn log(directory: &Path, options: &[&str], how: &str) -> Output {
    let acknowledged = directory.join("acknowledged");
    let acknowledged = acknowledged.to_str().expect("UTF-8");
    let check = format!("./wal data verify {acknowledged}");
    common::finish(powercut(directory, options).args(["--check", &check, "--", "./wal", "data", how, acknowledged]))
}

/// What a shell's command leaves after a cut, with these options.
fn left_by(test: &str, options: &[&str], script: &str) -> Vec<(String, String)> {
    let directory = common::directory(test);
    let data = directory.join("data");
    std::fs::create_dir(&data).expect("a folder");
    std::fs::write(data.join("old"), "old").expect("a file");
    let output = common::finish(powercut(&directory, options).args(["--", "sh", "-c", script]));
    assert!(output.status.success(), "{}", common::stderr(&output));
    let mut files: Vec<(String, String)> = std::fs::read_dir(&data)
        .expect("a folder")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).unwrap_or_default())
        })
        .collect();
    files.sort();
    files
}

fn pair(name: &str, text: &str) -> (String, String) {
    (name.to_owned(), text.to_owned())
}

#[test]
fn a_log_that_is_right_survives() {
    let directory = with_log("powercut-right");
    let output = log(&directory, &["--cuts=150"], "right");
    let shown = common::stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}{}", common::stderr(&output));
    assert!(shown.starts_with("150 cuts survived: ") && !shown.contains(" 0 lost") && !shown.contains(" 0 torn"), "{shown}");
}

#[test]
#[ignore = "takes a quarter of an hour"]
fn a_log_that_is_right_survives_ten_thousand_cuts() {
    let directory = with_log("powercut-many");
    let output = log(&directory, &["--cuts=10000"], "right");
    assert_eq!(output.status.code(), Some(0), "{}{}", common::stdout(&output), common::stderr(&output));
}

#[test]
fn a_log_that_forgets_an_fsync_is_found() {
    for (how, said) in [("no-fsync", "was acknowledged"), ("no-dir-fsync", "was acknowledged"), ("late-fsync", "the state is cut off")] {
        let directory = with_log("powercut-wrong");
        let output = log(&directory, &["--cuts=400"], how);
        let shown = common::stdout(&output);
        assert!(output.status.code() == Some(1) && shown.contains(said), "{how}: {shown}{}", common::stderr(&output));
        // The command makes the same cut again.
        let repeat = shown.lines().find_map(|line| line.trim().strip_prefix("repeat: uringlet ")).expect("a command");
        std::fs::remove_dir_all(directory.join("data")).and_then(|()| std::fs::create_dir(directory.join("data"))).expect("a folder");
        let script = format!("{} {repeat}", env!("CARGO_BIN_EXE_uringlet"));
        let mut again = Command::new("sh");
        again.env("URINGLET_LIB", common::object()).env("URINGLET_CACHE", &directory).current_dir(&directory).args(["-c", &script]);
        let again = common::finish(&mut again);
        assert!(again.status.code() == Some(1) && common::stdout(&again).contains(said), "{how}: {again:?}");
    }
}

#[test]
fn a_cut_loses_no_older_change_alone() {
    let script = "printf new > data/new; mv data/old data/moved; sync";
    // Events: the name, the bytes, the rename, the sync.
    assert_eq!(left_by("powercut-none", &["--at=1"], script), [pair("old", "old")]);
    let all = [pair("moved", "old"), pair("new", "new")];
    assert_eq!(left_by("powercut-all", &["--at=5"], script), all);
    assert_eq!(left_by("powercut-end", &["--at=1000"], script), all);
    let torn: std::collections::BTreeSet<Vec<(String, String)>> =
        (1..12).map(|seed| left_by("powercut-some", &["--at=4", &format!("--seed={seed}")], script)).collect();
    assert!(torn.len() > 2 && torn.contains(&vec![pair("old", "old")]), "{torn:?}");
    // A rename is never there without the name before it.
    assert!(
        torn.iter().all(|files| !files.iter().any(|(name, _)| name == "moved") || files.iter().any(|(name, _)| name == "new")),
        "{torn:?}"
    );
}

#[test]
fn files_keep_their_modes_links_and_directories() {
    let script = "mkdir data/d; printf x > data/d/f; chmod 751 data/old; ln data/old data/hard; ln -s d/f data/soft; sync";
    let directory = common::directory("powercut-tree");
    let data = directory.join("data");
    std::fs::create_dir(&data).expect("a folder");
    std::fs::write(data.join("old"), "old").expect("a file");
    let mode = |path: &str| std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(data.join(path)).expect("a file")) & 0o777;
    std::fs::set_permissions(data.join("old"), std::os::unix::fs::PermissionsExt::from_mode(0o640)).expect("a mode");
    let output = common::finish(powercut(&directory, &["--at=99"]).args(["--", "sh", "-c", script]));
    assert!(output.status.success(), "{}", common::stderr(&output));
    assert_eq!(std::fs::read_to_string(data.join("soft")).expect("a link"), "x");
    // Modes are those from before: chmod(2) is no event.
    assert_eq!([mode("old"), mode("hard")], [0o640, 0o640]);
    let inode = |path: &str| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(data.join(path)).expect("a file"));
    assert_eq!(inode("old"), inode("hard"));
}

#[test]
fn a_cut_kills_what_the_program_has_started() {
    let directory = common::directory("powercut-children");
    std::fs::create_dir(directory.join("data")).expect("a folder");
    let script = "setsid sh -c 'while :; do echo x >> outside; sleep 0.05; done' & sleep 0.3; echo y > data/y; sleep 60";
    let output = common::finish(powercut(&directory, &["--at=2"]).args(["--", "sh", "-c", script]));
    assert!(output.status.success(), "{}", common::stderr(&output));
    let len = || std::fs::metadata(directory.join("outside")).map_or(0, |metadata| metadata.len());
    let before = len();
    std::thread::sleep(std::time::Duration::from_millis(400));
    assert!(before > 0 && before == len(), "{before} {}", len());
}

#[test]
fn a_cut_that_cannot_be_made_is_refused() {
    let directory = common::directory("powercut-refused");
    std::fs::create_dir(directory.join("data")).expect("a folder");
    let said = |options: &[&str], command: &[&str]| {
        let output = common::finish(powercut(&directory, options).arg("--").args(command));
        (output.status.code(), common::stderr(&output))
    };
    let (status, text) = said(&[], &["sh", "-c", "exit 3"]);
    assert!(status == Some(125) && text.contains("without a cut the program ends with status 3 already"), "{text}");
    let (status, text) = said(&["--at=0"], &["true"]);
    assert!(status == Some(2) && text.contains("a number from 1, or `random`"), "{text}");
    let (status, text) = said(&["--at=9", "--timeout=1"], &["sleep", "60"]);
    assert!(status == Some(125) && text.contains("takes longer than 1 s"), "{text}");
    std::fs::remove_dir(directory.join("data")).expect("a folder");
    let (status, text) = said(&["--at=1"], &["true"]);
    assert!(status == Some(125) && text.contains("data: "), "{text}");
}

#[test]
fn ctrl_c_leaves_the_directory_as_it_was() {
    let directory = common::directory("powercut-interrupt");
    std::fs::create_dir(directory.join("data")).expect("a folder");
    std::fs::write(directory.join("data/old"), "old").expect("a file");
    let script = "echo new > data/new; echo changed > data/old; sleep 60";
    let child = powercut(&directory, &["--at=99"]).args(["--", "sh", "-c", script]).spawn().expect("powercut starts");
    while std::fs::read_to_string(directory.join("data/old")).is_ok_and(|text| text != "changed\n") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    let output = common::finish_child(child, "powercut");
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(std::fs::read_to_string(directory.join("data/old")).expect("a file"), "old");
    assert!(!directory.join("data/new").exists());
}
