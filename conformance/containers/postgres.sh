#!/bin/sh
# PostgreSQL in a container: the arguments are the server's command. Makes a cluster in the folder
# CHECK_FOLDER (/data), fills it, stops the server as a crash would, and checks everything after the
# recovery.
set -eu
folder=${CHECK_FOLDER:-/data}
if [ "$(id -u)" = 0 ]; then
    chown 1000:1000 "$folder"
    exec setpriv --reuid=1000 --regid=1000 --clear-groups "$0" "$@"
fi
PATH=$PATH:/usr/lib/postgresql/18/bin
export PGDATA=$folder/cluster PGHOST=$folder PGUSER=app PGDATABASE=postgres LC_ALL=C

start() {
    "$@" >>"$folder/log" 2>&1 &
    server=$!
    tries=0
    until pg_isready -q; do
        # A server without its ring has ended by now.
        if ! kill -0 "$server" 2>/dev/null || [ "$tries" -ge 600 ]; then
            cat "$folder/log"
            exit 1
        fi
        tries=$((tries + 1))
        sleep 0.1
    done
}

initdb --username=app --auth=trust --no-sync --no-instructions >"$folder/log"
# Less memory than rows, so that they are read from the files; few rings, because none needs many.
# The machine does not crash here: nothing has to wait for its disk.
set -- "$@" -c unix_socket_directories="$folder" -c listen_addresses= -c shared_buffers=4MB \
    -c max_connections=20 -c io_max_concurrency=16 -c autovacuum=off -c fsync=off
start "$@"
psql -q -v ON_ERROR_STOP=1 <<'SQL'
CREATE EXTENSION amcheck;
CREATE TABLE rows AS
  SELECT id, md5(id::text) AS digest, repeat('x', 200) AS filler FROM generate_series(1, 100000) id;
CREATE INDEX ON rows (digest);
CHECKPOINT;
DELETE FROM rows WHERE id > 90000;
INSERT INTO rows SELECT id, md5(id::text), repeat('x', 200) FROM generate_series(90001, 100000) id;
SQL
pg_ctl stop --silent --mode=immediate
wait "$server" || true
start "$@"
[ "$(psql -q -t -A -f /check/postgres.sql)" = 'io_method is io_uring' ]
pg_amcheck --heapallindexed --table=rows
pg_ctl stop --silent --mode=fast
wait "$server"
pg_checksums --check >/dev/null
echo all well
