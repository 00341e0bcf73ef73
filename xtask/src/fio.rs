//! fio's command lines, and reading its terse report (version 3).

use anyhow::{Context, ensure};

/// The figures of a job that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FioReport {
    pub(crate) read_kib: u64,
    pub(crate) read_iops: u64,
    pub(crate) written_kib: u64,
    pub(crate) write_iops: u64,
}

/// Random reads and writes over a file; every write is read back and compared by checksum.
pub(crate) const VERIFIED: &[&str] = &["--name=verified", "--size=16m", "--bs=4k", "--rw=randrw", "--verify=crc32c", "--verify_fatal=1"];

/// The command line: the engine, the job's options, a machine-readable report.
pub(crate) fn command(engine: &str, options: &[&str]) -> Vec<String> {
    let mut argv = vec!["fio".to_owned(), "--minimal".to_owned(), format!("--ioengine={engine}")];
    argv.extend(options.iter().map(|option| (*option).to_owned()));
    argv
}

/// Adds up the jobs of a report. An error if fio reports one, or if no I/O was done.
pub(crate) fn parse(output: &str) -> anyhow::Result<FioReport> {
    let mut total = FioReport { read_kib: 0, read_iops: 0, written_kib: 0, write_iops: 0 };
    let mut jobs = 0;
    for line in output.lines().filter(|line| line.starts_with("3;")) {
        let fields: Vec<&str> = line.split(';').collect();
        let number = |at: usize| -> anyhow::Result<u64> {
            let field = fields.get(at).with_context(|| format!("fio's report has no field {at}"))?;
            field.parse().with_context(|| format!("field {at} of fio's report is `{field}`"))
        };
        ensure!(number(4)? == 0, "fio reports error {}", fields[4]);
        total.read_kib += number(5)?;
        total.read_iops += number(7)?;
        total.written_kib += number(46)?;
        total.write_iops += number(48)?;
        jobs += 1;
    }
    ensure!(jobs > 0, "fio printed no report");
    ensure!(total.read_kib + total.written_kib > 0, "fio read and wrote nothing");
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(error: u32, read: u32, written: u32) -> String {
        let mut fields = vec!["0".to_owned(); 60];
        fields[0] = "3".to_owned();
        fields[4] = error.to_string();
        fields[5] = read.to_string();
        fields[46] = written.to_string();
        fields.join(";")
    }

    #[test]
    fn jobs_add_up() {
        let report = parse(&format!("note: x\n{}\n{}\n", line(0, 8, 4), line(0, 2, 1))).unwrap();
        assert_eq!((report.read_kib, report.written_kib), (10, 5));
    }

    #[test]
    fn errors_and_missing_io_are_reported() {
        assert!(parse(&line(84, 8, 4)).is_err());
        assert!(parse(&line(0, 0, 0)).is_err());
        assert!(parse("fio: failed\n").is_err());
    }
}
