#!/bin/sh
# Ceph's BlueStore and its BlueFS on a file as device: made, a file written into it and read back,
# everything checked, also after a writer has been killed. The argument: true (io_uring) or false
# (libaio).
set -eu
folder=${CHECK_FOLDER:-/data}
cd "$folder"
export LC_ALL=C CEPH_CONF=$folder/ceph.conf
mkdir osd
truncate -s 2G osd/block
cat >ceph.conf <<CONF
[global]
fsid = 11111111-2222-3333-4444-555555555555
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
mon_host = 127.0.0.1
run_dir = $folder
admin_socket = $folder/asok.\$pid
log_file = $folder/log
log_to_stderr = false
err_to_stderr = false
osd_data = $folder/osd
osd_objectstore = bluestore
bdev_ioring = $1
CONF

said() {
    tail -n 20 "$folder/log" "$folder/out"
    exit 1
}

tool() {
    ceph-bluestore-tool --log-file "$folder/log" --log-level 0 --path osd "$@" >"$folder/out" 2>&1
}

ceph-osd --mkfs -i 0 --osd-uuid 22222222-3333-4444-5555-666666666666 --no-mon-config >out 2>&1 || said
grep -o -m 1 'io_uring API is not supported! Fallback to libaio!' log || true
head -c 100000000 /dev/urandom >in
began=$(date +%s%N)
tool bluefs-import --input-file in --dest-file db/imported || said
tool bluefs-export --out-dir out.d || said
echo "figure $((2 * 100 * 1000000000 / ($(date +%s%N) - began)))"
cmp in out.d/db/imported
rm -rf out.d
tool fsck --deep 1 || said
tool bluefs-import --input-file in --dest-file db/killed &
writer=$!
sleep 0.3
pkill -KILL -x ceph-bluestore- || true
wait "$writer" || true
tool fsck --deep 1 || said
tool bluefs-export --out-dir out.d || said
cmp in out.d/db/imported
echo all well
