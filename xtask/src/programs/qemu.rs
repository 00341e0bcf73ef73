//! QEMU's block layer: `aio=io_uring` through liburing.so.2, woken by a poll on the ring.

use super::program_cases::{Isolation, ProgramCases};
use anyhow::ensure;

const IMAGE: &str = "disk.raw";
const MIB: usize = 1 << 20;

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    cases.run_outside(&["qemu-img", "create", "-q", "-f", "raw", IMAGE, "64M"])?.ok()?;
    let bench = |extra: &[&'static str]| {
        let mut argv = vec!["qemu-img", "bench", "-f", "raw", "-i", "io_uring", "-c", "4000"];
        argv.extend(extra);
        argv.push(IMAGE);
        argv
    };
    for &isolation in cases.isolations() {
        cases.needs_uringlet(isolation, &bench(&["-d", "16"]));
        for extra in [&["-d", "1"][..], &["-d", "64"], &["-d", "16", "-w", "-t", "none"], &["-d", "16", "-w", "--flush-interval=64"]] {
            let argv = bench(extra);
            cases.case(&format!("{} qemu-img bench {}", isolation.option(), extra.join(" ")), |cases| {
                let output = cases.run(isolation, &argv)?.ok()?;
                ensure!(output.contains("Run completed"), "{output}");
                Ok(())
            });
        }
        for cache in ["writeback", "none"] {
            cases.case(&format!("{} qemu-io patterns, cache={cache}", isolation.option()), |cases| patterns(cases, isolation, cache));
        }
    }
    Ok(())
}

/// Writes patterns by single and scattered requests, reads them back in QEMU and again here.
fn patterns(cases: &ProgramCases, isolation: Isolation, cache: &str) -> anyhow::Result<()> {
    let commands = [
        "write -P 0x11 0 1M",
        "aio_write -P 0x22 1M 1M",
        "aio_write -P 0x33 2M 512k",
        "aio_write -P 0x44 2560k 512k",
        "aio_flush",
        "flush",
        "read -P 0x11 0 1M",
        "aio_read -P 0x22 1M 1M",
        "aio_read -P 0x33 2M 512k",
        "aio_read -P 0x44 2560k 512k",
        "aio_flush",
        "discard 0 64k",
        "write -z 3M 64k",
        "read -P 0 3M 64k",
    ];
    let mut argv = vec!["qemu-io", "-f", "raw", "-i", "io_uring", "-t", cache];
    commands.iter().for_each(|command| argv.extend(["-c", command]));
    argv.push(IMAGE);
    let output = cases.run(isolation, &argv)?.ok()?;
    ensure!(!output.contains("verification failed") && !output.contains("error"), "{output}");
    let image = std::fs::read(cases.dir().join(IMAGE))?;
    for (range, byte) in [(MIB..2 * MIB, 0x22), (2 * MIB..2560 * 1024, 0x33), (2560 * 1024..3 * MIB, 0x44)] {
        ensure!(image[range.clone()].iter().all(|is| *is == byte), "the file lacks pattern {byte:#x} at {range:?}");
    }
    Ok(())
}
