//! Buffered writes in each mode of `uringlet run` and on the kernel's own ring, and the file that a
//! killed program leaves.
//!
//! The C programs contain the expectations; the kernel's ring checks them. On the engine a real
//! io_uring call kills the program.

mod common;

use common::oracle::{has_ring, is_kernel_new_enough, must_succeed};
use common::{compile, directory, finish, stderr, stdout, uringlet};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const MODES: [&str; 3] = ["adaptive", "uringlet", "workers"];

/// The filesystem that programs run on: that of the build directory, or a loop image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filesystem {
    Checkout,
    Image { name: &'static str, mkfs: &'static [&'static str] },
}

const IMAGES: [Filesystem; 2] =
    [Filesystem::Image { name: "xfs", mkfs: &["mkfs.xfs", "-q"] }, Filesystem::Image { name: "btrfs", mkfs: &["mkfs.btrfs", "-q"] }];

/// A filesystem that every Debian has.
const EXT4: Filesystem = Filesystem::Image { name: "ext4", mkfs: &["mkfs.ext4", "-q", "-F"] };

impl Filesystem {
    /// Makes the filesystem. Returns a launcher that runs a command in it, in its own mount
    /// namespace: the mount ends with the command.
    fn launcher(self, folder: &Path) -> Result<Vec<String>, String> {
        let Self::Image { name, mkfs } = self else { return Ok(vec![]) };
        let (image, mounted) = (folder.join("image"), folder.join("mounted"));
        let _ = fs::remove_file(&image);
        File::create(&image).and_then(|file| file.set_len(512 << 20)).map_err(|error| error.to_string())?;
        fs::create_dir_all(&mounted).map_err(|error| error.to_string())?;
        let made = Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image).output().map_err(|error| format!("{}: {error}", mkfs[0]))?;
        if !made.status.success() {
            return Err(format!("no {name}: {}", stderr(&made)));
        }
        let script = "mount -o loop \"$1\" \"$2\" && cd \"$2\" && shift 2 && exec \"$@\"";
        let mut words: Vec<String> =
            ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", script, "sh"].map(String::from).into();
        words.extend([&image, &mounted].map(|path| path.to_str().expect("a path in UTF-8").to_owned()));
        let probe = Command::new(&words[0]).args(&words[1..]).arg("true").output().map_err(|error| error.to_string())?;
        if probe.status.success() { Ok(words) } else { Err(format!("{name} cannot be mounted here: {}", stderr(&probe))) }
    }
}

/// `command`, started by the launcher.
fn launched(launcher: &[String], command: Command) -> Command {
    let Some((first, rest)) = launcher.split_first() else { return command };
    let mut outer = Command::new(first);
    outer.args(rest).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Runs the program in a mode of the engine.
fn in_mode(mode: &str, cache: &Path, program: &Path) -> Command {
    let mut command = uringlet(cache);
    command.arg(format!("--mode={mode}")).arg("--").arg(program).env("BLOCK_IO_URING", "1");
    command
}

/// Runs a program in each mode and on the kernel's ring.
fn behaves(name: &str, filesystem: Filesystem, asks_kernel: bool) {
    let folder = directory(&format!("{name}-{}", if let Filesystem::Image { name, .. } = filesystem { name } else { "checkout" }));
    let program = compile("cc", &folder, name, &[&format!("{name}.c")], &[]);
    for mode in MODES.map(Some).into_iter().chain([None]).filter(|mode| mode.is_some() || asks_kernel) {
        let launcher = match filesystem.launcher(&folder) {
            Ok(launcher) => launcher,
            Err(why) => return println!("skipped: {why}"),
        };
        let work = folder.join(mode.unwrap_or("kernel"));
        fs::create_dir_all(&work).expect("a folder to work in");
        let command = mode.map_or_else(|| Command::new(&program), |mode| in_mode(mode, &folder.join("cache"), &program));
        let output = finish(launched(&launcher, command).current_dir(work));
        match mode {
            None if !has_ring(&output) => {}
            None => must_succeed(&output, "on the kernel's ring"),
            Some(mode) => must_succeed(&output, &format!("mode {mode}")),
        }
    }
    let _ = fs::remove_dir_all(folder);
}

/// Whether the build directory is on ext4, where the kernel's ring writes by workers. On other
/// filesystems the submitter gets the signals of its writes.
fn is_ext4() -> bool {
    let kind = Command::new("stat").args(["-f", "-c", "%T", env!("CARGO_TARGET_TMPDIR")]).output();
    kind.is_ok_and(|output| stdout(&output).starts_with("ext2/ext3"))
}

#[test]
fn blocked_writes_delay_no_other_request() {
    // The kernel's ring is not asked: a file may wait there for another one of the same hash bucket
    // (64).
    behaves("write_frozen", EXT4, false);
}

#[test]
fn blocked_writes_delay_no_other_request_with_nowait() {
    behaves("write_frozen", IMAGES[0], false);
}

#[test]
fn writes_stop_at_limits() {
    behaves("write_limits", Filesystem::Checkout, is_kernel_new_enough() && is_ext4());
}

#[test]
fn writes_stop_at_limits_on_images() {
    IMAGES.into_iter().for_each(|image| behaves("write_limits", image, false));
}

#[test]
fn writes_reach_their_position() {
    behaves("write_places", Filesystem::Checkout, is_kernel_new_enough());
}

#[test]
fn writes_reach_their_position_on_images() {
    IMAGES.into_iter().for_each(|image| behaves("write_places", image, is_kernel_new_enough()));
}

#[test]
fn partial_writes_complete_with_the_whole_count() {
    behaves("write_partial", Filesystem::Checkout, is_kernel_new_enough());
}

#[test]
fn partial_writes_complete_with_the_whole_count_on_images() {
    IMAGES.into_iter().for_each(|image| behaves("write_partial", image, is_kernel_new_enough()));
}

/// A launcher whose command sees this file as /proc/vmstat; other processes do not.
fn with_vmstat(file: &Path) -> Result<Vec<String>, String> {
    // Of its final size: a reader never sees half of it.
    fs::write(file, [b'\n'; 512]).map_err(|error| error.to_string())?;
    let script = "mount --bind \"$1\" /proc/vmstat && shift && exec \"$@\"";
    let mut words: Vec<String> =
        ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", script, "sh"].map(String::from).into();
    words.push(file.to_str().expect("a path in UTF-8").to_owned());
    let probe = Command::new(&words[0]).args(&words[1..]).arg("true").output().map_err(|error| error.to_string())?;
    if probe.status.success() { Ok(words) } else { Err(format!("no mounts here: {}", stderr(&probe))) }
}

#[test]
fn writes_near_the_dirty_limits_are_throttled() {
    let folder = directory("write_throttled");
    let program = compile("cc", &folder, "write_throttled", &["write_throttled.c"], &[]);
    for mode in MODES {
        let vmstat = folder.join(format!("vmstat-{mode}"));
        let launcher = match with_vmstat(&vmstat) {
            Ok(launcher) => launcher,
            Err(why) => return println!("skipped: {why}"),
        };
        let mut command = in_mode(mode, &folder.join("cache"), &program);
        command.env("VMSTAT", &vmstat).env("UNDER_TEST", env!("CARGO_BIN_EXE_uringlet"));
        must_succeed(&finish(launched(&launcher, command).current_dir(&folder)), &format!("mode {mode}"));
    }
    let _ = fs::remove_dir_all(folder);
}

/// Bytes of a record of `write_kill`.
const RECORD: usize = 700;
const RECORDS: u32 = 50_000;
const KILLS: u32 = 24;

/// The messages of a killed writer.
#[derive(Debug, Default)]
struct WriterMessages {
    may_be_submitted: u32,
    answered: Vec<u32>,
    synced: u32,
}

impl WriterMessages {
    fn parse(bytes: &[u8]) -> Self {
        let mut messages = Self::default();
        let word = |field: &[u8]| u32::from_le_bytes(field.try_into().expect("four bytes"));
        for message in bytes.chunks_exact(8) {
            let number = word(&message[4..]);
            match word(&message[..4]) as u8 {
                b'U' => messages.may_be_submitted = messages.may_be_submitted.max(number),
                b'A' => messages.answered.push(number),
                b'S' => messages.synced = messages.synced.max(number),
                kind => panic!("a message of kind {kind}"),
            }
        }
        messages
    }

    /// Every answered record is in the file, and no record that was not submitted. `is_fresh`: the
    /// file was empty before.
    fn check(&self, file: &File, generation: u32, is_fresh: bool) {
        let mut found = vec![0; RECORD];
        for number in &self.answered {
            let whole = file.read_exact_at(&mut found, u64::from(*number) * RECORD as u64);
            assert!(whole.is_ok() && found == record(*number, generation), "record {number} of generation {generation} was answered");
        }
        let answered: std::collections::HashSet<_> = self.answered.iter().collect();
        assert_eq!(answered.len(), self.answered.len(), "a record was answered twice");
        assert!((0..self.synced).all(|number| answered.contains(&number)), "synced before it was answered");
        let size = file.metadata().expect("its size").len();
        let most = u64::from(self.may_be_submitted) * RECORD as u64;
        assert!(!is_fresh || size <= most, "{size} bytes, and {most} were submitted");
    }
}

/// The record as `write_kill` makes it.
fn record(number: u32, generation: u32) -> Vec<u8> {
    let word = |i: u32| number.wrapping_mul(2_654_435_761).wrapping_add(generation.wrapping_mul(40_503)).wrapping_add(i);
    let words = [number, generation].into_iter().chain((2..RECORD as u32 / 4).map(word));
    words.flat_map(u32::to_le_bytes).collect()
}

/// Starts a writer and kills it `delay` after its first message. Returns all its messages.
fn messages_before_the_kill(mut command: Command, delay: Duration) -> Vec<u8> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the writer starts");
    let mut pipe = child.stdout.take().expect("a pipe");
    let mut said = vec![0; 8];
    if pipe.read_exact(&mut said).is_err() {
        panic!("the writer said nothing: {:?}", child.wait());
    }
    // A full pipe would stop the writer.
    let reader = std::thread::spawn(move || pipe.read_to_end(&mut said).map(|_| said));
    std::thread::sleep(delay);
    child.kill().expect("it is there to be killed");
    let status = child.wait().expect("its end");
    assert_eq!(status.signal(), Some(9), "the writer failed by itself: {status}");
    reader.join().expect("the reader").expect("what it said")
}

/// The writer of a generation, which decides its depth and the kind of its ring.
fn writer(mode: &str, folder: &Path, program: &Path, file: &Path, generation: u32) -> Command {
    let mut command = in_mode(mode, &folder.join("cache"), program);
    let round = generation / MODES.len() as u32;
    let numbers = [1, generation, [1, 4, 32][round as usize % 3], round / 3 % 3, RECORDS];
    command.arg(file).args(numbers.map(|number| number.to_string()));
    command
}

#[test]
fn answered_writes_survive_a_kill() {
    let folder = directory("write_kill");
    let program = compile("cc", &folder, "write_kill", &["write_kill.c"], &[]);
    let file = folder.join("records");
    let mut answered = 0;
    for (generation, mode) in (1..).zip(MODES.iter().cycle().take(MODES.len() * KILLS as usize)) {
        // Every other generation overwrites the file of the last one.
        let is_fresh = (generation / MODES.len() as u32).is_multiple_of(2);
        if is_fresh {
            let _ = fs::remove_file(&file);
        }
        let writer = writer(mode, &folder, &program, &file, generation);
        let messages =
            WriterMessages::parse(&messages_before_the_kill(writer, Duration::from_micros(u64::from(generation * 7919 % 23_000))));
        let written = File::open(&file).expect("the file");
        messages.check(&written, generation, is_fresh);
        answered += messages.answered.len();
    }
    eprintln!("{answered} records were answered in {} rounds", MODES.len() * KILLS as usize);
    assert!(answered > 0);
    let _ = fs::remove_dir_all(folder);
}
