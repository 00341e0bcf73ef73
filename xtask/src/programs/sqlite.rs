//! SQLite under power cuts: what it promises of each setting holds, and no more.

use super::program_cases::ProgramCases;
use anyhow::{Context, ensure};
use std::fs;

/// Opens the database in the folder $1 and commits five times, each noted beside the folder.
const WRITER: &str = r#"set -e
rm -f "$1.ack"
sqlite3 "$1/db" "pragma journal_mode=$2; pragma synchronous=$3; create table if not exists t(n integer primary key, b blob);" > "$1.mode"
for n in 1 2 3 4 5; do
    sqlite3 "$1/db" "pragma synchronous=$3; insert into t values($n, randomblob(3000));"
    echo $n > "$1.ack"
done
"#;

/// Whether the database is whole and has what was noted.
const CHECK: &str = r#"[ -s "$1.ack" ] || exit 0
[ "$(sqlite3 "$1/db" 'pragma integrity_check')" = ok ] || { echo corrupt; exit 1; }
found=$(sqlite3 "$1/db" 'select count(*) from t')
[ "$found" -ge "$(cat "$1.ack")" ] || { echo "acknowledged $(cat "$1.ack"), found $found"; exit 1; }
"#;

/// Journal, `synchronous`, cuts, and whether they break it.
///
/// FULL does not fsync the folder after it has removed its journal, which ends a transaction:
/// SQLite documents that such a commit may be rolled back. EXTRA does. OFF never calls fsync.
const SETTINGS: [(&str, &str, u32, bool); 4] =
    [("delete", "extra", 60, false), ("wal", "full", 60, false), ("delete", "full", 200, true), ("delete", "off", 200, true)];

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    // On the kernel's ring there is nothing to check.
    let Some(uringlet) = cases.uringlet().map(|path| path.to_string_lossy().into_owned()) else { return Ok(()) };
    fs::write(cases.dir().join("writer"), WRITER)?;
    fs::write(cases.dir().join("check"), CHECK)?;
    for (journal, synchronous, cuts, breaks) in SETTINGS {
        let name = format!("{journal}-{synchronous}");
        fs::create_dir(cases.dir().join(&name)).context("a folder for the database")?;
        let (cuts, check) = (cuts.to_string(), format!("sh ./check {name}"));
        let said = if breaks { "loses commits" } else { "survives" };
        cases.case(&format!("journal {journal}, synchronous {synchronous} {said}"), |cases| {
            let argv = [
                &uringlet,
                "powercut",
                "--dir",
                &name,
                "--cuts",
                &cuts,
                "--check",
                &check,
                "--",
                "sh",
                "./writer",
                &name,
                journal,
                synchronous,
            ];
            let ran = cases.run_outside(&argv)?;
            let has_broken = ran.output.contains(" breaks it, before event ");
            ensure!(has_broken == breaks && (breaks || ran.output.contains(" cuts survived: ")), "{}", ran.tail());
            Ok(())
        });
    }
    Ok(())
}
