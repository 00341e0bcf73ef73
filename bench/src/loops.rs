//! Loops of calls that do nothing, each for a fixed time.

use crate::calls;
use crate::liburing::Ring;
use crate::timing::{TIME, rate};
use anyhow::{bail, ensure};

const OP_NOP: u8 = 0;

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
    let calls = rate(TIME, || {
        for _ in 0..1000 {
            call();
        }
        Ok(1000)
    })?;
    Ok(1e9 / calls.median)
}

/// Submits so many NOPs, reaps as many.
pub(crate) fn nop(batch: u32) -> anyhow::Result<f64> {
    let mut ring = Ring::new(batch.next_power_of_two())?;
    let nops = rate(TIME, || {
        for _ in 0..(256 / batch).max(1) {
            for _ in 0..batch {
                let sqe = ring.next_sqe();
                (sqe.opcode, sqe.flags, sqe.op_flags, sqe.fd) = (OP_NOP, 0, 0, -1);
            }
            ring.round(batch, 0)?;
        }
        Ok(u64::from(batch * (256 / batch).max(1)))
    })?;
    Ok(nops.median)
}
