# gdb: breakpoints, variables, threads, a child that is followed, a crash, an attached process.
. "$(dirname "$0")/lib.sh" "$1" "$2"
export HOME=$PWD DEBUGINFOD_URLS=
cat > program.c <<'C'
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int shared;
int __attribute__((noinline)) inner(int x) { shared += x; return x * 2; }
static void *thread(void *arg) { inner(21); return arg; }
int main(int argc, char **argv)
{
	pthread_t t;
	pthread_create(&t, 0, thread, 0);
	pthread_join(t, 0);
	printf("inner %d\n", inner(argc));
	fflush(stdout);
	if (argc > 1) { *(volatile int *)0 = 1; }
	if (!fork()) { inner(5); _exit(3); }
	int status;
	wait(&status);
	return WEXITSTATUS(status);
}
C
gcc -g -O0 -pthread -o program program.c
wanted() { grep -E '^(\$[0-9]+ = |#[0-9]+ |inner |.Inferior 1 .*exited|Program received)' | sed -E 's/ 0x[0-9a-f]+ in / /; s/process [0-9]+/process/; s/0x[0-9a-f]+/ADDRESS/g; /clone3|start_thread|__libc_start/d' || true; }
run_gdb() { gdb -nx -q -batch "$@" 2>&1 < /dev/null | wanted; }
outcome run_gdb -ex 'break inner' -ex run -ex 'print x' -ex 'bt 2' -ex 'print shared' -ex continue -ex 'print x' -ex 'bt 2' -ex finish -ex continue ./program
outcome run_gdb -ex 'set follow-fork-mode child' -ex 'break inner if x == 5' -ex run -ex 'bt 2' -ex 'print shared' ./program
outcome run_gdb -ex run -ex 'bt 1' --args ./program crash
outcome run_gdb -ex 'watch shared' -ex run -ex 'print shared' -ex 'info threads' -ex kill ./program
outcome run_gdb -ex 'catch syscall fork clone' -ex run -ex kill ./program
