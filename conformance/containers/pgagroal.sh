#!/bin/sh
# pgagroal in front of PostgreSQL: its clients' transactions, also after it has been killed. The
# argument is its event loop: io_uring, epoll or auto.
. "$(dirname "$0")/postgres-lib.sh"
backend=$1
export HOME=$folder PGHOST=127.0.0.1

pooled() {
    psql -X -q -t -A -v ON_ERROR_STOP=1 -p 2345 -c "$1" 2>/dev/null
}

start_pool() {
    pgagroal -c "$folder/pool.conf" -a "$folder/hba.conf" >"$folder/pool" 2>&1 &
    pool=$!
    tries=0
    until [ "$(pooled 'SELECT 42')" = 42 ]; do
        tries=$((tries + 1))
        if ! kill -0 "$pool" 2>/dev/null || [ "$tries" -ge 300 ]; then
            cat "$folder/pool"
            stop immediate
            exit 1
        fi
        sleep 0.1
    done
}

make_cluster
cat >>"$PGDATA/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
port = 5432
CONF
start postgres
cat >"$folder/pool.conf" <<CONF
[pgagroal]
host = 127.0.0.1
port = 2345
log_type = console
log_level = error
max_connections = 16
unix_socket_dir = $folder
ev_backend = $backend
[primary]
host = 127.0.0.1
port = 5432
CONF
echo 'host all all all trust' >"$folder/hba.conf"
start_pool
pgbench --initialize --scale=2 --quiet 2>/dev/null
pgbench --port=2345 --client=4 --jobs=2 --transactions=500 >"$folder/bench" 2>&1
grep -q 'actually processed: 2000/2000' "$folder/bench"
[ "$(pooled 'SELECT count(*), sum(delta) - (SELECT sum(abalance) FROM pgbench_accounts) FROM pgbench_history')" = '2000|0' ]
kill -KILL "$pool"
wait "$pool" 2>/dev/null || true
# Its processes have the number of connections in memory that outlives it.
rm -f "$folder"/.s.PGSQL.2345* "$folder"/*.pid
tries=0
while pgrep -x pgagroal >/dev/null && [ "$tries" -lt 50 ]; do
    tries=$((tries + 1))
    pkill -KILL -x pgagroal || true
    sleep 0.1
done
start_pool
[ "$(pooled 'SELECT count(*) FROM pgbench_history')" = 2000 ]
pgbench --port=2345 --select-only --client=4 --jobs=2 --time=4 2>/dev/null | sed -n 's/^tps = \([0-9.]*\).*/figure \1/p'
kill -TERM "$pool"
wait "$pool" || true
stop fast
echo all well
