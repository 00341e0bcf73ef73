//! stress-ng: rings by libc's `syscall`, a dozen opcodes in turn; it compares what it reads.

use super::program_cases::ProgramCases;
use anyhow::ensure;

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    let argv = ["stress-ng", "--io-uring", "2", "--io-uring-ops", "2000", "--timeout", "40", "--verify", "--metrics-brief"];
    for &isolation in cases.isolations() {
        cases.needs_uringlet(isolation, &argv);
        cases.case(&format!("{} 2000 rounds of two workers", isolation.option()), |cases| {
            let output = cases.run(isolation, &argv)?.ok()?;
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
