#!/bin/sh
# Prints the times of SCANS scans of a table that is larger than the server's memory and lies in
# the page cache, in milliseconds. A scan before them is not counted.
. "$(dirname "$0")/postgres-lib.sh"

if [ ! -e "$PGDATA" ]; then
    make_cluster
fi
start "$@" -c shared_buffers=16MB
if [ ! -e "$folder/wide" ]; then
    ask "CREATE TABLE wide AS SELECT id, repeat('x', 800) AS filler FROM generate_series(1, 300000) id"
    ask 'VACUUM wide'
    : >"$folder/wide"
fi
count='SELECT count(*) FROM wide'
[ "$(ask "$count")" = 300000 ]
for _ in $(seq "${SCANS:-3}"); do
    psql -X -q -t -A -c '\timing on' -c "$count" | while read -r word time _; do
        if [ "$word" = Time: ]; then
            echo "figure $time"
        fi
    done
done
stop fast
