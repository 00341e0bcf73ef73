#!/bin/sh
# Prints transactions a second of pgbench's reading transactions, on tables that are larger than the
# server's memory.
. "$(dirname "$0")/postgres-lib.sh"

if [ ! -e "$PGDATA" ]; then
    make_cluster
fi
start "$@" -c shared_buffers=16MB
if [ ! -e "$folder/filled" ]; then
    pgbench --initialize --scale=10 --quiet 2>/dev/null
    : >"$folder/filled"
fi
pgbench --select-only --client=4 --jobs=2 --time=5 2>/dev/null | while read -r word _ number _; do
    if [ "$word" = tps ]; then
        echo "figure $number"
    fi
done
stop fast
