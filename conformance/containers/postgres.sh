#!/bin/sh
# Fills a cluster; kills one of the server's processes, then the server itself, while rows are read
# and written; checks everything after each recovery.
. "$(dirname "$0")/postgres-lib.sh"

say() {
    echo "postgres: $*"
}

# Rows with known sums, each digest, each row by its index, by the rings.
check_rows() {
    [ "$(psql -X -q -t -A -f /check/postgres.sql)" = 'io_method is io_uring' ]
    pg_amcheck --heapallindexed --table=rows --table=journal
}

# One row after the other in the table `journal`. The file has those whose commit was confirmed.
write_journal() {
    count=0
    while echo "INSERT INTO journal VALUES (DEFAULT); SELECT max(id) FROM journal;" 2>/dev/null; do
        count=$((count + 1))
        [ "$count" -lt 1000000 ] || break
    done | psql -X -q -t -A >"$folder/confirmed" 2>/dev/null || true
}

# The process that scans all the time.
scanner() {
    ask "SELECT pid FROM pg_stat_activity
        WHERE application_name = 'scanner' AND backend_type = 'client backend'" 2>/dev/null
}

is_scanning() {
    scanner=$(scanner) && [ -n "$scanner" ]
}

is_writing() {
    [ "$(wc -l <"$folder/confirmed")" -ge "$1" ]
}

# Readers and a writer in the background.
load() {
    : >"$folder/confirmed"
    PGAPPNAME=scanner psql -X -q -c "DO \$\$ BEGIN LOOP PERFORM sum(length(filler)) FROM rows; END LOOP; END \$\$" \
        >/dev/null 2>&1 &
    scanning=$!
    write_journal &
    writing=$!
    await is_scanning
    await is_writing 100
}

# What was confirmed is there after the recovery.
check_journal() {
    wait "$scanning" || true
    wait "$writing" || true
    confirmed=$(wc -l <"$folder/confirmed")
    last=$(tail -n 1 "$folder/confirmed")
    [ "$(ask "SELECT count(*) >= $confirmed AND max(id) >= $last FROM journal")" = t ]
    say "$1: recovered, $confirmed confirmed rows are there"
}

make_cluster
# Less memory than rows, so that they are read from the files.
set -- "$@" -c shared_buffers=4MB
start "$@"
psql -X -q -v ON_ERROR_STOP=1 <<'SQL'
CREATE EXTENSION amcheck;
CREATE TABLE journal (id bigserial PRIMARY KEY);
CREATE TABLE rows AS
  SELECT id, md5(id::text) AS digest, repeat('x', 200) AS filler FROM generate_series(1, 100000) id;
CREATE INDEX ON rows (digest);
CHECKPOINT;
DELETE FROM rows WHERE id > 90000;
INSERT INTO rows SELECT id, md5(id::text), repeat('x', 200) FROM generate_series(90001, 100000) id;
SQL
check_rows
say "$(ask 'SHOW server_version'): 100000 rows are right"
load
kill -KILL "$scanner"
wait "$writing" || true
await pg_isready -q
check_journal 'kill -9 of a backend'
check_rows
load
kill -KILL "$server"
wait "$server" 2>/dev/null || true
# A process that works on a query looks for its server only now and then, and one that waits for a
# lock of another process that is killed never does.
for process in /proc/[0-9]*; do
    if [ "$(cat "$process/comm" 2>/dev/null)" = postgres ]; then
        kill -KILL "${process#/proc/}" 2>/dev/null || true
    fi
done
wait "$writing" || true
start "$@"
check_journal 'kill -9 of the server'
check_rows
stop fast
pg_checksums --check >/dev/null
say 'amcheck and checksums are right'
echo all well
