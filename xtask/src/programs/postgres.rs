//! PostgreSQL under power cuts: commits survive where fsync covers names, and are lost without
//! fsync. The server is Debian's, with plain system calls.

use super::program_cases::ProgramCases;
use anyhow::{Context, ensure};
use std::fs;
use std::path::PathBuf;

/// Starts or stops the server of folder $2, which listens on a socket in this folder. The options
/// are in $SERVER.
const SERVER: &str = r#"case $1 in
start) pg_ctl -s -w -t 60 -D "$2" -l "$2.log" -o "-k $PWD -h '' -c shared_buffers=1MB -c autovacuum=off $SERVER" start ;;
stop) pg_ctl -s -w -t 60 -D "$2" -m fast stop ;;
esac
"#;

/// Commits six times, each noted beside the folder, with a checkpoint in between.
const WRITER: &str = r#"set -e
rm -f "$1.ack"
sh ./server start "$1"
sql() { psql -h "$PWD" -d postgres -X -q -v ON_ERROR_STOP=1 -c "$1" > /dev/null; }
sql 'create table t(n int primary key, b text)'
for n in 1 2 3 4 5 6; do
    sql "insert into t select $n * 100 + i, repeat(md5(i::text), 40) from generate_series(1, 20) i"
    echo $n > "$1.ack"
    [ $n != 3 ] || sql checkpoint
done
sh ./server stop "$1"
"#;

/// Whether the server recovers and has what was noted.
const CHECK: &str = r#"[ -s "$1.ack" ] || exit 0
rm -f "$1/postmaster.pid"
sh ./server start "$1" || { tail -5 "$1.log"; exit 1; }
found=$(psql -h "$PWD" -d postgres -X -A -t -c 'select count(distinct n / 100) from t where length(b) = 1280' | tail -1)
pg_dump -h "$PWD" postgres > /dev/null && dumped=yes
sh ./server stop "$1"
[ "$dumped" = yes ] && [ "${found:-0}" -ge "$(cat "$1.ack")" ] || { echo "acknowledged $(cat "$1.ack"), found $found"; exit 1; }
"#;

/// The server's options, cuts, and whether they break it.
const SETTINGS: [(&str, &str, u32, bool); 2] = [("default", "", 10, false), ("fsync=off", "-c fsync=off", 50, true)];

pub(super) fn check(cases: &mut ProgramCases) -> anyhow::Result<()> {
    // The server refuses to run as root.
    let mut user = cases.as_ordinary_user()?;
    // On the kernel's ring there is nothing to check.
    let Some(uringlet) = user.uringlet().map(|path| path.to_string_lossy().into_owned()) else { return Ok(()) };
    let path = format!("{}:/usr/bin:/bin", programs_of_server()?.display());
    for (name, text) in [("server", SERVER), ("writer", WRITER), ("check", CHECK)] {
        fs::write(user.dir().join(name), text)?;
    }
    for (name, options, cuts, breaks) in SETTINGS {
        let cuts = cuts.to_string();
        let said = if breaks { "loses commits" } else { "survives" };
        user.case(&format!("{name} {said}"), |user| {
            let variables = [format!("PATH={path}"), format!("SERVER={options}"), "LC_ALL=C".to_owned()];
            let with = |command: &[&str]| -> Vec<String> {
                ["env"].into_iter().chain(variables.iter().map(String::as_str)).chain(command.iter().copied()).map(str::to_owned).collect()
            };
            let initdb = ["initdb", "-D", name, "-A", "trust", "-k", "--no-locale", "--wal-segsize=1"];
            user.run_outside(&with(&initdb))?.ok()?;
            let check = format!("sh ./check {name}");
            let powercut = [
                &uringlet, "powercut", "--dir", name, "--cuts", &cuts, "--fsync", "names", "--check", &check, "--", "sh", "./writer", name,
            ];
            let ran = user.run_outside(&with(&powercut))?;
            let has_broken = ran.output.contains(" breaks it, before event ");
            ensure!(has_broken == breaks && (breaks || ran.output.contains(" cuts survived: ")), "{}", ran.tail());
            Ok(())
        });
    }
    cases.include(user)
}

/// Debian keeps each version's programs apart.
fn programs_of_server() -> anyhow::Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").context("/usr/lib/postgresql")?;
    let found = versions.filter_map(|version| Some(version.ok()?.path().join("bin"))).find(|bin| bin.join("initdb").exists());
    found.context("no initdb in /usr/lib/postgresql/*/bin")
}
