# MariaDB in a container, for the scripts beside it: their arguments are the server's command. Its
# buffers are smaller than the tables. Its files are in the folder CHECK_FOLDER (/data).
set -eu
folder=${CHECK_FOLDER:-/data}
if [ "$(id -u)" = 0 ]; then
    chown 1000:1000 "$folder"
    exec setpriv --reuid=1000 --regid=1000 --clear-groups "$0" "$@"
fi
export HOME=$folder LC_ALL=C
PATH=$PATH:/usr/sbin
socket=$folder/socket

ask() {
    mariadb --no-defaults --socket="$socket" --user=root --skip-column-names --batch -e "$1"
}

make_base() {
    mariadb-install-db --no-defaults --force --auth-root-authentication-method=normal \
        --datadir="$folder/base" --skip-test-db >"$folder/log" 2>&1 || {
        cat "$folder/log"
        exit 1
    }
}

# Starts the server: its command.
start() {
    "$@" --no-defaults --datadir="$folder/base" --socket="$socket" --skip-networking \
        --tmpdir="$folder" --pid-file="$folder/pid" --innodb-buffer-pool-size=8M --skip-name-resolve \
        --innodb-flush-log-at-trx-commit=2 >>"$folder/log" 2>&1 &
    server=$!
    tries=0
    until mariadb-admin --no-defaults --socket="$socket" --user=root ping >/dev/null 2>&1; do
        tries=$((tries + 1))
        if ! kill -0 "$server" 2>/dev/null || [ "$tries" -ge 600 ]; then
            cat "$folder/log"
            exit 1
        fi
        sleep 0.1
    done
}

# Stops it, and says what it has read and written by.
stop() {
    kill -TERM "$server"
    wait "$server"
    grep -o -e 'io_uring_queue_init() failed with [A-Z]*' -e 'falling back to libaio' -e 'Using io_uring' \
        "$folder/log" || true
}
