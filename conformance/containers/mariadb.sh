#!/bin/sh
# MariaDB in a container: the arguments are the server's command. Updates rows of a table that is
# larger than the server's memory by several clients, kills the server, checks everything after the
# recovery.
. "$(dirname "$0")/mariadb-lib.sh"
rows=100000
clients=4
updates=1000

# One row after the other, in an order that leaves no page in memory for long.
client() {
    count=0
    while [ "$count" -lt "$updates" ]; do
        echo "UPDATE t.counted SET n = n + 1, digest = md5(n) WHERE id = $((1 + (count * 7919 + $1 * 31) % rows));"
        count=$((count + 1))
    done | mariadb --no-defaults --socket="$socket" --user=root
}

is_right() {
    [ "$(ask "SELECT count(*), sum(n), sum(digest = md5(n)) FROM t.counted")" = "$rows	$((clients * updates))	$rows" ]
    [ "$(ask 'CHECK TABLE t.counted EXTENDED')" = 't.counted	check	status	OK' ]
}

make_base
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
stop
echo all well
