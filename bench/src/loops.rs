//! The loops that are measured, each for a fixed time.

use crate::calls;
use crate::liburing::Ring;
use anyhow::{Context, bail, ensure};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const WARM_UP: Duration = Duration::from_millis(60);
const TIME: Duration = Duration::from_millis(300);
const BLOCK: usize = 1024;
const FILE_LEN: u64 = 10 << 20;
const OP_NOP: u8 = 0;
const OP_WRITE: u8 = 23;

/// A rate is taken over each of these; the median of them is told, so that a moment in which another program had the CPU does not count.
const SLICE: Duration = Duration::from_millis(2);

/// Runs `step` again and again; what it counts, a second.
fn a_second(mut step: impl FnMut() -> anyhow::Result<u64>) -> anyhow::Result<f64> {
    let mut run = |time: Duration| -> anyhow::Result<Vec<f64>> {
        let begun = Instant::now();
        let mut rates = Vec::new();
        while begun.elapsed() < time {
            rates.push(rate_of_a_slice(&mut step)?);
        }
        Ok(rates)
    };
    run(WARM_UP)?;
    let mut rates = run(TIME)?;
    rates.sort_by(f64::total_cmp);
    Ok(rates[rates.len() / 2])
}

fn rate_of_a_slice(step: &mut impl FnMut() -> anyhow::Result<u64>) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let mut count = 0;
    loop {
        count += step()?;
        let elapsed = begun.elapsed();
        if elapsed >= SLICE {
            return Ok(count as f64 / elapsed.as_secs_f64());
        }
    }
}

/// ns for a call that does nothing.
pub(crate) fn enter(road: &str) -> anyhow::Result<f64> {
    if road == "liburing" {
        let ring = Ring::new(8)?;
        return ns_a_call(ring.enter()?);
    }
    let fd = calls::setup()?;
    match road {
        "symbol" => ns_a_call(|| calls::by_symbol(fd)),
        "const" => ns_a_call(|| calls::by_const_site(fd)),
        "generic" => ns_a_call(|| calls::by_generic_site(fd)),
        _ => bail!("there is no road `{road}`"),
    }
}

fn ns_a_call(call: impl Fn() -> i64) -> anyhow::Result<f64> {
    let answer = call();
    ensure!(answer == 0, "io_uring_enter answers {answer}");
    let calls = a_second(|| {
        for _ in 0..1000 {
            call();
        }
        Ok(1000)
    })?;
    Ok(1e9 / calls)
}

/// Submits so many NOPs, reaps as many.
pub(crate) fn nop(batch: u32) -> anyhow::Result<f64> {
    let mut ring = Ring::new(batch.next_power_of_two())?;
    a_second(|| {
        for _ in 0..(256 / batch).max(1) {
            for _ in 0..batch {
                let sqe = ring.next_sqe();
                (sqe.opcode, sqe.flags, sqe.op_flags, sqe.fd) = (OP_NOP, 0, 0, -1);
            }
            go(&mut ring, batch, 0)?;
        }
        Ok(u64::from(batch * (256 / batch).max(1)))
    })
}

/// Submits, waits and reaps: all of them, each with this result.
fn go(ring: &mut Ring, n: u32, expected: i32) -> anyhow::Result<()> {
    let submitted = ring.submit_and_wait(n);
    ensure!(submitted == n as i32, "submitted {submitted} of {n}");
    let (mut reaped, mut worst) = ring.reap();
    while reaped < n {
        ensure!(ring.submit_and_wait(1) >= 0, "waiting failed");
        let (more, other) = ring.reap();
        (reaped, worst) = (reaped + more, worst.min(other));
    }
    ensure!(worst == expected, "a completion says {worst}, not {expected}");
    Ok(())
}

/// The file, full of zeroes, in the page cache.
fn target(path: &Path) -> anyhow::Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    file.write_all_at(&vec![0; FILE_LEN as usize], 0).context("filling the file")?;
    Ok(file)
}

/// Offsets of blocks, by xorshift.
fn offsets() -> impl FnMut() -> u64 {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % (FILE_LEN / BLOCK as u64) * BLOCK as u64
    }
}

pub(crate) fn pwrites(path: &Path) -> anyhow::Result<f64> {
    let file = target(path)?;
    let mut next = offsets();
    let block = [0x5a; BLOCK];
    a_second(|| {
        for _ in 0..64 {
            let n = file.write_at(&block, next())?;
            ensure!(n == BLOCK, "a write of {n} bytes");
        }
        Ok(64)
    })
}

pub(crate) fn ring_writes(path: &Path, depth: u32) -> anyhow::Result<f64> {
    let file = target(path)?;
    let mut ring = Ring::new(depth.next_power_of_two())?;
    let mut next = offsets();
    let block = [0x5a_u8; BLOCK];
    let rounds = (64 / depth).max(1);
    a_second(|| {
        for _ in 0..rounds {
            for _ in 0..depth {
                let sqe = ring.next_sqe();
                (sqe.opcode, sqe.flags, sqe.ioprio, sqe.op_flags, sqe.rest) = (OP_WRITE, 0, 0, 0, [0; 3]);
                (sqe.fd, sqe.off, sqe.addr, sqe.len) = (file.as_raw_fd(), next(), block.as_ptr() as u64, BLOCK as u32);
            }
            go(&mut ring, depth, BLOCK as i32)?;
        }
        Ok(u64::from(rounds * depth))
    })
}
