#!/bin/sh
# MariaDB in a container: the arguments are the server's command. Updates rows of a table that is
# larger than the server's memory by several clients, kills the server, checks everything after the
# recovery.
set -eu
folder=${CHECK_FOLDER:-/data}
if [ "$(id -u)" = 0 ]; then
    chown 1000:1000 "$folder"
    exec setpriv --reuid=1000 --regid=1000 --clear-groups "$0" "$@"
fi
export HOME=$folder LC_ALL=C
PATH=$PATH:/usr/sbin
rows=100000
clients=4
updates=1000

ask() {
    mariadb --no-defaults --socket="$folder/socket" --user=root --skip-column-names --batch -e "$1"
}

start() {
    "$@" >>"$folder/log" 2>&1 &
    server=$!
    tries=0
    until mariadb-admin --no-defaults --socket="$folder/socket" --user=root ping >/dev/null 2>&1; do
        tries=$((tries + 1))
        if ! kill -0 "$server" 2>/dev/null || [ "$tries" -ge 600 ]; then
            cat "$folder/log"
            exit 1
        fi
        sleep 0.1
    done
}

# One row after the other, in an order that leaves no page in memory for long.
client() {
    count=0
    while [ "$count" -lt "$updates" ]; do
        echo "UPDATE t.counted SET n = n + 1, digest = md5(n) WHERE id = $((1 + (count * 7919 + $1 * 31) % rows));"
        count=$((count + 1))
    done | mariadb --no-defaults --socket="$folder/socket" --user=root
}

is_right() {
    [ "$(ask "SELECT count(*), sum(n), sum(digest = md5(n)) FROM t.counted")" = "$rows	$((clients * updates))	$rows" ]
    [ "$(ask 'CHECK TABLE t.counted EXTENDED')" = 't.counted	check	status	OK' ]
}

mariadb-install-db --no-defaults --force --auth-root-authentication-method=normal \
    --datadir="$folder/base" --skip-test-db >"$folder/log" 2>&1 || {
    cat "$folder/log"
    exit 1
}
set -- "$@" --no-defaults --datadir="$folder/base" --socket="$folder/socket" --skip-networking \
    --tmpdir="$folder" --pid-file="$folder/pid" --innodb-buffer-pool-size=8M --skip-name-resolve \
    --innodb-flush-log-at-trx-commit=2
start "$@"
ask "CREATE DATABASE t;
    CREATE TABLE t.counted (id int PRIMARY KEY, n int, digest char(32), filler char(200), KEY (digest)) ENGINE=InnoDB;
    INSERT INTO t.counted SELECT seq, 0, md5(0), repeat('x', 200) FROM t.seq_1_to_$rows"
writers=
for number in $(seq "$clients"); do
    client "$number" &
    writers="$writers $!"
done
for writer in $writers; do
    wait "$writer"
done
kill -KILL "$server"
wait "$server" 2>/dev/null || true
start "$@"
is_right
kill -TERM "$server"
wait "$server"
grep -o -e 'io_uring_queue_init() failed with [A-Z]*' -e 'falling back to libaio' -e 'Using io_uring' \
    "$folder/log" || true
echo all well
