# Other libraries in LD_PRELOAD, before ours and after it: the third word says which one.
. "$(dirname "$0")/lib.sh" "$1" "$2"
ours=${LD_PRELOAD:-}
libraries=/usr/lib/$(gcc -print-multiarch 2>/dev/null || echo x86_64-linux-gnu)
# Runs a command behind a library, in both orders.
beside() {
	local library=$1
	shift
	for preload in "$ours $library" "$library $ours"; do
		outcome env LD_PRELOAD="$preload" "$@"
	done
}
# Files, children, threads and polls, by which the library shows that it is there, and does no harm.
cat > work.py <<'P'
import os, select, socket, subprocess, sys, threading, time, mmap
library = sys.argv[1]
maps = open("/proc/self/maps").read()
print(library in maps, ("liburinglet" in maps) == (os.environ["ATTACHED"] == "yes"))
blocks = [bytearray(n * 20) for n in range(2000)]
print(sum(map(len, blocks)))
parts = []
threads = [threading.Thread(target=lambda n=n: parts.append(sum(range(n * 1000)))) for n in range(16)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sum(parts))
with open("file", "wb+") as f:
    f.write(b"x" * 100000); f.flush(); os.fsync(f.fileno()); m = mmap.mmap(f.fileno(), 0); print(m[99999]); m.close()
print(subprocess.run(["sh", "-c", "cat file | wc -c"], capture_output=True).stdout.strip(), subprocess.run(["env", "-i", "sh", "-c", "exit 3"]).returncode)
a, b = socket.socketpair(); p = select.epoll(); p.register(b, select.EPOLLIN); a.send(b"1"); print(len(p.poll(1)))
pid = os.fork()
if pid == 0: os._exit(4)
print(os.waitpid(pid, 0)[1] >> 8)
P
export ATTACHED=$2
python=/usr/bin/python3
case $3 in
jemalloc)
	beside "$libraries/libjemalloc.so.2" $python work.py libjemalloc
	;;
eatmydata)
	beside "$libraries/libeatmydata.so" $python work.py libeatmydata
	# It makes fsync succeed without asking the kernel.
	beside "$libraries/libeatmydata.so" $python -c 'import ctypes; print(ctypes.CDLL(None).fsync(999))'
	outcome eatmydata sh -c 'dd if=/dev/zero of=zeros bs=4k count=10 conv=fsync status=none; wc -c < zeros'
	;;
faketime)
	export FAKETIME='2001-02-03 04:05:06'
	beside "$libraries/faketime/libfaketimeMT.so.1" $python work.py libfaketime
	beside "$libraries/faketime/libfaketimeMT.so.1" $python -c 'import time; print(time.strftime("%F")); time.sleep(0.1); print(time.strftime("%H:%M"))'
	unset FAKETIME
	outcome faketime '2002-02-02 02:02:02' sh -c 'date +%F; sh -c "date +%H"'
	;;
fakeroot)
	cat > work.sh <<'S'
id -u; touch file; chown 12:34 file; mkdir -p folder; chown 56 folder; stat -c '%n %u:%g' file folder; tar cf - file folder | tar tvf - --numeric-owner | awk '{ print $1, $2, $NF }'
S
	outcome fakeroot sh work.sh
	# fakeroot puts its library before what is there; now ours is the first.
	outcome fakeroot sh -c 'LD_PRELOAD="$0 ${LD_PRELOAD%%:*}" sh work.sh' "$ours"
	;;
esac
