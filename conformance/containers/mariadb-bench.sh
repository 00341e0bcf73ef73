#!/bin/sh
# Prints transactions a second of sysbench's updates, each of one row, on tables that are larger than
# the server's memory: pages are written by the ring, or by libaio.
. "$(dirname "$0")/mariadb-lib.sh"

bench() {
    sysbench --db-driver=mysql --mysql-socket="$socket" --mysql-user=root --mysql-db=bench --tables=4 \
        --table-size=50000 --rand-type=uniform "$@"
}

make_base
start "$@"
ask 'CREATE DATABASE bench'
bench --threads=2 oltp_update_non_index prepare >/dev/null
bench --threads=4 --time=8 oltp_update_non_index run | sed -n 's/.*transactions: .*(\(.*\) per sec.)/figure \1/p'
stop
