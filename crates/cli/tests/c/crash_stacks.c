/*
 * Rings with little stack: a process under `ulimit -s 32`, threads of the least size, and calls
 * from the last bytes of a stack, with signals on top of them.
 */
#include "robust_ring.h"
#include <alloca.h>
#include <limits.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/time.h>

enum { OPENAT = 18, ROUNDS = 30 };

static volatile int handled;
static struct ring in_handler;

static void uses_a_ring(int signal)
{
	int saved = errno;

	works(&in_handler);
	handled++;
	errno = saved;
}

static void counts(int signal)
{
	handled++;
}

static void alarms(void (*handler)(int), int us)
{
	struct sigaction action = { .sa_handler = handler };
	struct itimerval timer = { { 0, us }, { 0, us } };

	sigaction(SIGALRM, &action, 0);
	setitimer(ITIMER_REAL, &timer, 0);
}

static void *work(void *unused)
{
	uint64_t ts[2] = { 0, 1000000 };
	struct ring r = new_ring(64);
	char c;
	int p[2];

	pipe(p);
	for (int i = 0; i < ROUNDS; i++) {
		works(&r);
		check("a timer", run(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1)), -ETIME);
		check("a worker", run(&r, SQE(.opcode = OPENAT, .fd = AT_FDCWD, .addr = ADDR("/no/such/file"), .flags = FORCE_ASYNC)), -ENOENT);
		submit(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&c), .len = 1));
		write(p[1], "x", 1);
		check("a read", next(&r), 1);
		for (int j = 0; j < 40; j++)
			push(&r, SQE(.opcode = NOP, .flags = j < 39 ? LINK : 0));
		check("a chain is submitted", enter_call(r.fd, 40, 0, 0, 0, 0), 40);
		for (int j = 0; j < 40; j++)
			check("a link", next(&r), 0);
	}
	close(p[0]);
	close(p[1]);
	end_ring(&r);
	return 0;
}

/* What a signal takes, and two small C functions. */
static size_t room;
static char *stack_end;
static struct ring *at_the_edge;

__attribute__((noinline)) static void call_at_the_edge(void)
{
	uint64_t ts[2] = { 0, 3000000 }, arg[3] = { 0, 0, ADDR(ts) };

	handled = 0;
	for (int i = 0; i < ROUNDS; i++) {
		push(at_the_edge, SQE(.opcode = NOP));
		check("a NOP at the edge", enter_call(at_the_edge->fd, 1, 0, 0, 0, 0), 1);
		__atomic_store_n(at_the_edge->cq_head, *at_the_edge->cq_tail, __ATOMIC_RELEASE);
		int res = enter_call(at_the_edge->fd, 0, 1, GETEVENTS | EXT_ARG, arg, sizeof(arg));
		is_true("a wait at the edge", res == -EINTR || res == -ETIME);
	}
	is_true("signals at the edge", handled > 0);
}

static void *goes_to_the_edge(void *unused)
{
	volatile char *here = alloca((char *)__builtin_frame_address(0) - stack_end - room);

	here[0] = 1;
	call_at_the_edge();
	return (void *)(long)here[0];
}

static void edge(void)
{
	struct ring r = new_ring(8);
	size_t size = 128 << 10;
	char *stack = mmap(0, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t alarm_only;

	mprotect(stack, 4096, PROT_NONE);
	room = getauxval(AT_MINSIGSTKSZ) + 1024;
	stack_end = stack + 4096;
	at_the_edge = &r;
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, stack_end, size);
	/* The signals go to the thread. */
	alarms(counts, 700);
	pthread_create(&thread, &attr, goes_to_the_edge, 0);
	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm_only, 0);
	pthread_join(thread, 0);
	pthread_sigmask(SIG_UNBLOCK, &alarm_only, 0);
	alarms(counts, 0);
	end_ring(&r);
}

static int limited(void)
{
	pthread_attr_t small;
	pthread_t thread;

	in_handler = new_ring(8);
	section = "the main thread";
	work(0);
	section = "signals on its stack";
	alarms(uses_a_ring, 500);
	work(0);
	alarms(uses_a_ring, 0);
	is_true("handled", handled > 0);
	section = "a thread as small as the limit";
	if (!pthread_create(&thread, 0, work, 0))
		pthread_join(thread, 0);
	section = "a thread as small as can be";
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN > 16384 ? PTHREAD_STACK_MIN : 16384);
	is_true("it starts", !pthread_create(&thread, &small, work, 0));
	pthread_join(thread, 0);
	section = "the edge of a stack";
	edge();
	return finish();
}

int main(int argc, char **argv)
{
	static const int sizes[] = { 32, 64, 8192 };
	char what[64];
	int status, res = 0;

	block_if_asked();
	if (argc > 1)
		return limited();
	for (int i = 0; i < 3; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			setrlimit(RLIMIT_STACK, &(struct rlimit){ sizes[i] << 10, RLIM_INFINITY });
			alarm(60);
			execl("/proc/self/exe", argv[0], "limited", NULL);
			_exit(127);
		}
		waitpid(pid, &status, 0);
		if (status == 77 << 8)
			return 77;
		sprintf(what, "ulimit -s %d", sizes[i]);
		section = what;
		check("ends well", status, 0);
	}
	return finish();
}
