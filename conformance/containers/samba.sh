#!/bin/sh
# Samba's vfs_io_uring: files are put to a share and got back by clients, also after the process of a
# connection has been killed. The server runs as root and acts as its guest, an ordinary user. The
# argument: the share's module.
set -eu
folder=${CHECK_FOLDER:-/data}
cd "$folder"
export LC_ALL=C
mkdir private run share
chmod 700 private
chown 1000:1000 share
for name in in again out; do
    : >"$name"
done
head -c 20000000 /dev/urandom >in
cat >smb.conf <<CONF
[global]
server role = standalone server
map to guest = Bad User
guest account = app
private dir = $folder/private
lock directory = $folder/run
state directory = $folder/run
cache directory = $folder/run
pid directory = $folder/run
ncalrpc dir = $folder/run/ncalrpc
log file = $folder/log
smb ports = 4455
interfaces = lo
bind interfaces only = yes
disable spoolss = yes
load printers = no
disable netbios = yes
[share]
path = $folder/share
read only = no
guest ok = yes
vfs objects = $1
CONF

share() {
    smbclient --configfile="$folder/smb.conf" --no-pass --port=4455 //127.0.0.1/share -c "$1" 2>"$folder/said"
}

smbd --foreground --no-process-group --configfile="$folder/smb.conf" >"$folder/out" 2>&1 </dev/null &
server=$!
tries=0
until smbclient --configfile="$folder/smb.conf" --no-pass --port=4455 -L 127.0.0.1 >/dev/null 2>&1; do
    tries=$((tries + 1))
    if ! kill -0 "$server" 2>/dev/null || [ "$tries" -ge 300 ]; then
        cat "$folder/out" "$folder/log"
        exit 1
    fi
    sleep 0.1
done

share 'put in first; get first out' || {
    cat "$folder/said"
    exit 1
}
cmp in out
[ "$(stat -c %u share/first)" = 1000 ]

# The client's end of input keeps its connection until its process has been killed.
mkfifo commands
share "$(printf 'put in second')" >/dev/null
sleep 60 >commands &
holder=$!
smbclient --configfile="$folder/smb.conf" --no-pass --port=4455 //127.0.0.1/share <commands >/dev/null 2>&1 &
client=$!
sleep 1
child=$(pgrep -P "$server" -n smbd)
kill -KILL "$child"
wait "$client" || true
kill "$holder"
share 'get second out; put out third; get third again'
cmp in out
cmp in again

# MB a second, of both directions.
began=$(date +%s%N)
for number in 1 2 3 4 5; do
    share "put in turn$number; get turn$number out"
done
cmp in out
echo "figure $((5 * 2 * 20 * 1000000000 / ($(date +%s%N) - began)))"
kill -TERM "$server"
wait "$server" || true
echo all well
