#!/bin/sh
# QEMU's tools on a ring: 4,000 blocks of 4 KiB, written and read again. The arguments are what the
# writer is started by. The check reads without a ring.
set -eu
cd "${CHECK_FOLDER:-/data}"
truncate -s 16M disk.raw
"$@" qemu-img bench -f raw -i io_uring -c 4000 -d 16 -w --pattern=90 --flush-interval=512 disk.raw
"$@" qemu-img bench -f raw -i io_uring -c 4000 -d 16 -t none disk.raw
qemu-io -f raw -i threads -c 'read -P 90 0 16384000' -c 'read -P 0 16384000 393216' disk.raw >checked
if grep -q failed checked || [ "$(grep -c '^read ' checked)" != 2 ]; then
    cat checked
    exit 1
fi
echo all well
