/*
 * Children that no fork handler has seen: made by glibc's clone(), _Fork(), a raw fork, while other
 * threads are inside the rings. Each uses a ring of its own and the one of its parent.
 */
#include "robust_ring.h"
#include <sched.h>

struct child {
	struct ring *inherited;
	int in[2], out[2];
};

static int timeout_and_reads(struct ring *r, const char *what)
{
	uint64_t ts[2] = { 0, 2000000 };
	int p[2];
	char byte = 0;

	section = what;
	works(r);
	check("a pipe", pipe(p), 0);
	/* Armed, then fired; by a worker; by a timer. */
	submit(r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&byte), .len = 1, .user_data = 1));
	check("written", write(p[1], "a", 1), 1);
	check("a read", next(r), 1);
	submit(r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&byte), .len = 1, .flags = FORCE_ASYNC));
	check("written", write(p[1], "b", 1), 1);
	check("a read of a worker's", next(r), 1);
	check("its byte", byte, 'b');
	check("a timer", run(r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1)), -ETIME);
	close(p[0]);
	close(p[1]);
	return failures;
}

static int own_ring(void *arg)
{
	struct ring r = new_ring(8);

	timeout_and_reads(&r, "a ring of the child's");
	end_ring(&r);
	return failures;
}

static int inherited_ring(void *arg)
{
	return timeout_and_reads(arg, "the parent's ring in the child");
}

static int both_rings(void *arg)
{
	own_ring(0);
	inherited_ring(arg);
	own_ring(0);
	/* A child of libc's, of a child that libc does not know. */
	pid_t child = fork();

	if (!child)
		_exit(inherited_ring(arg) || own_ring(0));
	int status = -1;

	waitpid(child, &status, 0);
	check("its own child", status, 0);
	return failures;
}

static int (*child_main)(void *);

static int exit_with(void *arg)
{
	/* A child that hangs ends. */
	alarm(30);
	_exit(child_main(arg) != 0);
}

static long raw_fork(void)
{
	long ret;

	asm volatile("syscall" : "=a"(ret) : "a"(SYS_fork) : "rcx", "r11", "memory");
	return ret;
}

static pid_t by_clone(struct ring *r)
{
	static char stack[1 << 18] __attribute__((aligned(16)));

	return clone(exit_with, stack + sizeof(stack), SIGCHLD, r);
}

static pid_t by_raw_fork(struct ring *r)
{
	pid_t child = raw_fork();

	if (!child)
		exit_with(r);
	return child;
}

static pid_t by_syscall(struct ring *r)
{
	pid_t child = syscall(SYS_fork);

	if (!child)
		exit_with(r);
	return child;
}

static pid_t by_underscore(struct ring *r)
{
	pid_t child = _Fork();

	if (!child)
		exit_with(r);
	return child;
}

static pid_t (*const ways[])(struct ring *) = { by_clone, by_raw_fork, by_syscall, by_underscore };
static const char *const names[] = { "clone()", "fork by inline assembly", "fork by syscall()", "_Fork()" };
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static void reaps(const char *what, pid_t child)
{
	int status = -1;

	section = what;
	is_true("made", child > 0);
	waitpid(child, &status, 0);
	check("its wait status", status, 0);
}

static void each_way(const char *what, int (*f)(void *))
{
	for (int i = 0; i < WAYS; i++) {
		struct ring r = new_ring(8);

		child_main = f;
		printf("%s, %s\n", what, names[i]);
		fflush(stdout);
		works(&r);
		reaps(names[i], ways[i](&r));
		works(&r);
		end_ring(&r);
	}
}

static int submits(void *arg)
{
	struct ring *r = arg;

	sleep_ms(20);
	for (int i = 0; i < 3; i++)
		submit(r, SQE(.opcode = NOP, .user_data = 100 + i));
	return failures;
}

/* The child submits and ends: its parent has the CQEs, asleep in enter() or later. */
static void parent_sees(void)
{
	child_main = submits;
	for (int i = 0; i < WAYS; i++)
		for (int asleep = 0; asleep < 2; asleep++) {
			struct ring r = new_ring(8);
			pid_t child = ways[i](&r);

			section = names[i];
			if (!asleep)
				reaps("a child that submits", child);
			check("waited", enter_call(r.fd, 0, 3, GETEVENTS, 0, 0), 0);
			for (int k = 0; k < 3; k++)
				check("the child's", next_cqe(&r).user_data, 100 + k);
			if (asleep)
				reaps("a child that submits", child);
			works(&r);
			end_ring(&r);
		}
}

static volatile int stop;

static void *busy(void *arg)
{
	uint64_t ts[2] = { 0, 1000 };

	while (!stop) {
		struct ring r = new_ring(8);

		for (int i = 0; i < 200 && !stop; i++) {
			run(&r, SQE(.opcode = NOP));
			run(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1));
			run(&r, SQE(.opcode = NOP, .flags = FORCE_ASYNC));
		}
		end_ring(&r);
	}
	return 0;
}

/* Other threads are inside their rings, also making and closing them. */
static void among_threads(void)
{
	pthread_t threads[3];
	struct ring r = new_ring(8);

	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], 0, busy, 0);
	child_main = both_rings;
	for (int i = 0; i < 40; i++)
		reaps("beside busy threads", ways[i % WAYS](&r));
	stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], 0);
	works(&r);
	end_ring(&r);
}

int main(void)
{
	block_if_asked();
	each_way("a ring of the child's", own_ring);
	each_way("the parent's", inherited_ring);
	each_way("both", both_rings);
	parent_sees();
	among_threads();
	return finish();
}
