//! Loops of calls that do nothing, each for a fixed time.

use crate::sys::enter::{enter_via_immediate, enter_via_libc, enter_via_register, made_enter, setup};
use crate::sys::liburing::LibRing;
use crate::timing::{DEFAULT_TIME, throughput};
use anyhow::{bail, ensure};
use uringlet_abi::{Opcode, Sqe};

/// Duration of an io_uring_enter(2) that does nothing, ns.
pub(crate) fn enter(via: &str) -> anyhow::Result<f64> {
    if via == "liburing" {
        let ring = LibRing::new(8)?;
        return ns_per_call(ring.enter()?);
    }
    let fd = setup()?;
    match via {
        "symbol" => ns_per_call(|| enter_via_libc(fd)),
        "const" => ns_per_call(|| enter_via_immediate(fd)),
        "generic" => ns_per_call(|| enter_via_register(fd)),
        "made" => {
            let enter = made_enter()?;
            ns_per_call(|| enter(fd))
        }
        _ => bail!("there is no call path `{via}`"),
    }
}

fn ns_per_call(call: impl Fn() -> i64) -> anyhow::Result<f64> {
    let ret = call();
    ensure!(ret == 0, "io_uring_enter returns {ret}");
    let calls = throughput(DEFAULT_TIME, || {
        for _ in 0..1000 {
            call();
        }
        Ok(1000)
    })?;
    Ok(1e9 / calls.median)
}

/// NOPs per second, submitted and reaped in batches.
pub(crate) fn nop(batch: u32) -> anyhow::Result<f64> {
    let mut ring = LibRing::new(batch.next_power_of_two())?;
    let nops = throughput(DEFAULT_TIME, || {
        for _ in 0..(256 / batch).max(1) {
            for _ in 0..batch {
                let sqe: &mut Sqe = ring.get_sqe();
                (sqe.opcode, sqe.flags, sqe.op_flags, sqe.fd) = (Opcode::Nop as u8, 0, 0, -1);
            }
            ring.submit_all(batch, 0)?;
        }
        Ok(u64::from(batch * (256 / batch).max(1)))
    })?;
    Ok(nops.median)
}
