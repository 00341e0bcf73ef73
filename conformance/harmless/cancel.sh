# pthread_cancel: libc's cancellation points, in a process without a ring and with one; and threads
# that are cancelled inside a ring's system calls.
. "$(dirname "$0")/lib.sh" "$1" "$2"
here=$(dirname "$0")
sources=$here/c
[ -d "$sources" ] || sources=$here/../../crates/cli/tests/c
ldd --version | head -n 1
gcc -O2 -w -pthread -o cancel_points "$here/cancel_points.c"
outcome ./cancel_points
rm -f fifo
outcome ./cancel_points ring
# These check themselves; on the kernel's ring they need Linux 6.18.
newest=$(printf '6.18\n%s\n' "$(uname -r)" | sort -V | tail -n 1)
for program in states_cancel crash_cancel; do
	gcc -O2 -w -pthread -D_GNU_SOURCE -o $program "$sources/$program.c"
	status=0
	if [ "$2" = yes ]; then
		BLOCK_IO_URING=1 ./$program || status=$?
	elif [ "$newest" = "$(uname -r)" ]; then
		./$program || status=$?
		# The kernel gives no ring.
		[ $status != 77 ] || status=0
	fi
	echo "= $program: $status"
done
