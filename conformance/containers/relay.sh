#!/bin/sh
# A relay of RTP packets: rtpengine or mgcp (osmo-mgw), then the options of its command. A call, the
# relay killed and started again, a second call.
set -eu
cd "${CHECK_FOLDER:-/data}"
relay=$1
shift
cat >mgw.cfg <<CONF
mgcp
 domain mgw
 bind ip 127.0.0.1
 bind port 2427
 rtp bind-ip 127.0.0.1
 rtp port-range 4002 4200
 number endpoints 8
CONF

start() {
    if [ "$relay" = mgcp ]; then
        osmo-mgw -c mgw.cfg "$@" >log 2>&1 &
    else
        rtpengine --config-file=none --foreground --log-stderr --table=-1 --interface=127.0.0.1 \
            --listen-ng=127.0.0.1:2223 --port-min=30000 --port-max=30100 --num-threads=2 --log-level=4 "$@" >log 2>&1 &
    fi
    server=$!
    sleep 2
    if ! kill -0 "$server" 2>/dev/null; then
        cat log
        exit 1
    fi
}

# The client gets along without a ring.
call() {
    env -u LD_PRELOAD node /check/rtp.mjs "$relay" || {
        cat log
        exit 1
    }
}

start "$@"
call >/dev/null
kill -KILL "$server"
wait "$server" 2>/dev/null || true
start "$@"
call
kill -TERM "$server"
wait "$server" || true
echo all well
