//! NBD clients: libnbd's tools, QEMU's, fio's engine.

use super::server::{self, NbdProcess};
use crate::programs::program_cases::ProgramCases;
use anyhow::ensure;

/// The device's size, bytes, as the server is started.
const SIZE: usize = 64 << 20;

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let program = server::build("nbd_ram")?;
    // Requests complete on the connection's own thread, or on others.
    for threads in ["0", "2"] {
        let mut server = NbdProcess::start(&program, cases.dir(), threads)?;
        for (transport, uri) in ["unix", "tcp"].iter().zip(server.uris.clone()) {
            clients(cases, &format!("{transport}, {threads} threads"), &uri);
        }
        cases.case(&format!("the server is still there, {threads} threads"), |_| {
            ensure!(server.is_alive()?, "it ended");
            Ok(())
        });
    }
    Ok(())
}

/// All clients on device 0: [`SIZE`] bytes of zeroes, its server's only device.
pub(super) fn clients(cases: &mut ProgramCases, transport: &str, uri: &str) {
    let name = |what: &str| format!("{what}, {transport}");
    cases.case(&name("nbdinfo"), |cases| info(cases, uri));
    cases.case(&name("nbdcopy"), |cases| copy(cases, uri));
    cases.case(&name("nbdsh"), |cases| shell(cases, uri));
    cases.case(&name("qemu-img"), |cases| qemu_img(cases, uri));
    cases.case(&name("qemu-io"), |cases| qemu_io(cases, uri));
    cases.case(&name("fio verify, four connections"), |cases| fio(cases, uri));
}

fn info(cases: &ProgramCases, uri: &str) -> anyhow::Result<()> {
    let all = cases.run_outside(&["nbdinfo", uri])?.ok()?;
    for fact in [
        "protocol: newstyle-fixed without TLS, using structured packets",
        "export-size: 67108864",
        "can_cache: true",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "base:allocation",
        "block_size_minimum: 512",
        "block_size_maximum: 33554432",
    ] {
        ensure!(all.contains(fact), "no `{fact}` in\n{all}");
    }
    let list = cases.run_outside(&["nbdinfo", "--list", &uri.replace("ublkb0", "")])?.ok()?;
    ensure!(list.contains("export=\"ublkb0\""), "{list}");
    let map = cases.run_outside(&["nbdinfo", "--map", uri])?.ok()?;
    ensure!(map.split_whitespace().collect::<Vec<_>>() == ["0", "67108864", "0", "data"], "{map}");
    let wrong = cases.run_outside(&["nbdinfo", &uri.replace("ublkb0", "ublkb7")])?;
    ensure!(wrong.ok().is_err(), "there is an export that should not be");
    Ok(())
}

/// A copy to the device and back, over several connections.
fn copy(cases: &ProgramCases, uri: &str) -> anyhow::Result<()> {
    let bytes: Vec<u8> = (0..SIZE).map(|i| if i >> 20 & 3 == 3 { 0 } else { (i / 5 + i / 4096) as u8 }).collect();
    std::fs::write(cases.dir().join("there"), &bytes)?;
    for options in [&["--connections=4", "--requests=16"][..], &["--synchronous"], &["--destination-is-zero", "--request-size=4194304"]] {
        cases.run_outside(&[&NBDSH[..], &["-u", uri, "-c", "h.zero(h.get_size(), 0)"]].concat())?.ok()?;
        cases.run_outside(&[&["nbdcopy"], options, &["there", uri]].concat())?.ok()?;
        cases.run_outside(&[&["nbdcopy"], &options[..1], &[uri, "back"]].concat())?.ok()?;
        ensure!(std::fs::read(cases.dir().join("back"))? == bytes, "what came back differs ({options:?})");
    }
    Ok(())
}

/// What `nbdsh` runs, with the system's Python, which has libnbd.
const NBDSH: [&str; 3] = ["/usr/bin/python3", "-m", "nbd"];

const SCRIPT: &str = r#"
def refused(number, call):
    try:
        call()
    except nbd.Error as error:
        assert error.errno == number, error
    else:
        raise AssertionError("not refused")
size = h.get_size()
h.set_strict_mode(0)
h.pwrite(b"\x11" * 4096, 0, nbd.CMD_FLAG_FUA)
assert h.pread(4096, 0) == b"\x11" * 4096
h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE)
assert h.pread(4096, 0) == bytes(4096)
h.trim(1 << 20, 1 << 20, nbd.CMD_FLAG_FUA)
h.cache(1 << 20, 0)
h.flush()
chunks = []
h.pread_structured(4 << 20, 0, lambda data, at, kind, error: chunks.append((at, len(data))))
assert sum(length for _, length in chunks) == 4 << 20 and len(chunks) > 1, chunks
whole = []
h.pread_structured(4 << 20, 0, lambda data, at, kind, error: whole.append(len(data)), nbd.CMD_FLAG_DF)
assert whole == [4 << 20], whole
extents = []
h.block_status(1 << 20, 4096, lambda context, at, entries, error: extents.append((context, at, entries)), nbd.CMD_FLAG_REQ_ONE)
assert extents == [("base:allocation", 4096, [1 << 20, 0])], extents
refused("EINVAL", lambda: h.pread(512, size))
refused("ENOSPC", lambda: h.pwrite(b"x" * 1024, size - 512))
h.zero(8192, 4096)
h.pwrite(b"\x22" * 1000, 8191)
assert h.pread(1002, 8190) == b"\0" + b"\x22" * 1000 + b"\0"
h.zero(3, 8193)
assert h.pread(7, 8191) == b"\x22\x22\0\0\0\x22\x22"
refused("EINVAL", lambda: h.trim(4096, size))
assert h.pread(512, size - 512) is not None
"#;

fn shell(cases: &ProgramCases, uri: &str) -> anyhow::Result<()> {
    cases.run_outside(&[&NBDSH[..], &["--base-allocation", "-u", uri, "-c", SCRIPT]].concat())?.ok().map(drop)
}

fn qemu_img(cases: &ProgramCases, uri: &str) -> anyhow::Result<()> {
    let bytes: Vec<u8> = (0..SIZE).map(|i| if i >> 21 & 1 == 1 { 0 } else { (i / 11 + i / 512) as u8 }).collect();
    std::fs::write(cases.dir().join("image"), &bytes)?;
    cases.run_outside(&["qemu-img", "convert", "-f", "raw", "-O", "raw", "-n", "image", uri])?.ok()?;
    let same = cases.run_outside(&["qemu-img", "compare", "-f", "raw", "-F", "raw", "image", uri])?.ok()?;
    ensure!(same.contains("identical"), "{same}");
    let map = cases.run_outside(&["qemu-img", "map", "-f", "raw", "--output=json", uri])?.ok()?;
    ensure!(map.contains("\"length\": 67108864"), "{map}");
    for options in [&["-d", "1"][..], &["-d", "64"], &["-w", "-d", "16", "--flush-interval=64"], &["-s", "1M", "-d", "8"]] {
        let argv = [&["qemu-img", "bench", "-f", "raw", "-c", "2000"], options, &[uri]].concat();
        let output = cases.run_outside(&argv)?.ok()?;
        ensure!(output.contains("Run completed"), "{output}");
    }
    Ok(())
}

fn qemu_io(cases: &ProgramCases, uri: &str) -> anyhow::Result<()> {
    let commands = [
        "write -P 0x11 0 1M",
        "aio_write -f -P 0x22 1M 1M",
        "aio_write -P 0x33 2M 8M",
        "aio_flush",
        "flush",
        "write -z 512k 64k",
        "write -z -u 640k 64k",
        "discard 16M 1M",
        "read -P 0x11 0 512k",
        "read -P 0 512k 64k",
        "read -P 0 640k 64k",
        "aio_read -P 0x22 1M 1M",
        "aio_read -P 0x33 2M 8M",
        "aio_flush",
    ];
    let mut argv = vec!["qemu-io", "-f", "raw"];
    commands.iter().for_each(|command| argv.extend(["-c", command]));
    argv.push(uri);
    let output = cases.run_outside(&argv)?.ok()?;
    ensure!(!output.contains("verification failed") && !output.contains("error"), "{output}");
    Ok(())
}

fn fio(cases: &ProgramCases, uri: &str) -> anyhow::Result<()> {
    let uri = format!("--uri={uri}");
    let common = ["fio", "--name=verify", "--ioengine=nbd", &uri, "--rw=randrw", "--bsrange=512-256k", "--iodepth=16", "--size=8M"];
    let verify = ["--numjobs=4", "--offset_increment=8M", "--verify=crc32c", "--verify_fatal=1", "--io_size=16M", "--end_fsync=1"];
    cases.run_outside(&[&common[..], &verify].concat())?.ok().map(drop)
}
