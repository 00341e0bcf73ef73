//! stress-ng: rings by libc's `syscall`, a dozen opcodes in turn, its own comparison of what it read.

use super::stage::Stage;
use anyhow::ensure;

pub(super) fn check(stage: &mut Stage) -> anyhow::Result<()> {
    let argv = ["stress-ng", "--io-uring", "2", "--io-uring-ops", "2000", "--timeout", "40", "--verify", "--metrics-brief"];
    for &walls in stage.walls() {
        stage.needs_uringlet(walls, &argv);
        stage.case(&format!("{} 2000 rounds of two workers", walls.option()), |stage| {
            let output = stage.run(walls, &argv)?.ok()?;
            ensure!(output.contains(" successful run completed"), "{output}");
            ensure!(!output.contains("fail:") && !output.contains("skipped"), "{output}");
            let metrics = output.lines().find(|line| line.contains("io-uring  ")).unwrap_or_default();
            let rounds = metrics.split_ascii_whitespace().filter_map(|word| word.parse::<f64>().ok()).find(|n| *n >= 2000.0);
            ensure!(rounds.is_some(), "fewer than 2000 rounds: {output}");
            Ok(())
        });
    }
    Ok(())
}
