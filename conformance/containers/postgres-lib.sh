# PostgreSQL in a container, for the scripts beside it: their arguments are the server's command.
# Their files are in the folder CHECK_FOLDER (/data).
set -eu
folder=${CHECK_FOLDER:-/data}
if [ "$(id -u)" = 0 ]; then
    chown 1000:1000 "$folder"
    exec setpriv --reuid=1000 --regid=1000 --clear-groups "$0" "$@"
fi
PATH=$PATH:/usr/lib/postgresql/18/bin
export PGDATA=$folder/cluster PGHOST=$folder PGUSER=app PGDATABASE=postgres LC_ALL=C

# Makes the cluster, with these options of initdb.
# Few rings, because no test needs many. The machine does not crash here: nothing has to wait for
# its disk.
make_cluster() {
    initdb "$@" --username=app --auth=trust --no-sync --no-instructions >"$folder/log"
    cat >>"$PGDATA/postgresql.conf" <<CONF
unix_socket_directories = '$folder'
listen_addresses = ''
max_connections = 20
io_max_concurrency = 16
autovacuum = off
fsync = off
CONF
}

# Waits until a command succeeds, a minute at most.
await() {
    tries=0
    until "$@"; do
        if [ "$tries" -ge 600 ]; then
            echo "in a minute there was no: $*" >&2
            cat "$folder/log"
            exit 1
        fi
        tries=$((tries + 1))
        sleep 0.1
    done
}

# Starts the server: its command.
start() {
    launch "$@"
    await is_ready "$@"
}

# The processes of an earlier server go on writing to its log, which is another file.
launch() {
    rm -f "$folder/log"
    "$@" >"$folder/log" 2>&1 &
    server=$!
}

# A server without its ring has ended by now. The processes of one that was killed end a while after
# it; until then no other one can be started.
is_ready() {
    if ! kill -0 "$server" 2>/dev/null; then
        if ! grep -q 'is still in use' "$folder/log"; then
            cat "$folder/log"
            exit 1
        fi
        launch "$@"
    fi
    pg_isready -q
}

# Stops it, in this mode.
stop() {
    pg_ctl stop --silent --mode="$1"
    wait "$server" || true
}

# Prints what a query gives.
ask() {
    psql -X -q -t -A -v ON_ERROR_STOP=1 -c "$1"
}
