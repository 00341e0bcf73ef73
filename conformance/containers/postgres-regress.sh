#!/bin/sh
# PostgreSQL's own regression tests, which are in /regress: sql, expected and data of its source,
# regress.so of its package for developers.
. "$(dirname "$0")/postgres-lib.sh"

make_cluster --no-locale --encoding=UTF8
# Less memory than pages, so that more of them are read through the rings.
start "$@" -c shared_buffers=16MB -c autovacuum=on
mkdir "$folder/results"
status=0
/usr/lib/postgresql/18/lib/pgxs/src/test/regress/pg_regress --host="$folder" --user=app \
    --dlpath=/regress --inputdir=/regress --outputdir="$folder/results" \
    --bindir=/usr/lib/postgresql/18/bin --schedule=/regress/parallel_schedule \
    --max-concurrent-tests=20 >"$folder/summary" 2>&1 || status=$?
stop fast
grep -e '^not ok' -e ' tests ' "$folder/summary"
if [ "$status" != 0 ]; then
    cat "$folder/results/regression.diffs"
    exit 1
fi
echo all well
