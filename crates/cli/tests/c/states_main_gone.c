/* The first thread has ended: the process is that of its other threads. */
#include "robust_ring.h"

static pthread_t first;
static struct ring from_before;

static void all_kinds(struct ring *r)
{
	uint64_t ts[2] = { 0, 1000000 };
	char text[4] = "";
	struct { void *base; size_t len; } part = { text, 2 };
	int p[2], file;

	works(r);
	check("a timer", run(r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1)), -ETIME);
	check("a pipe", pipe(p), 0);
	submit(r, SQE(.opcode = READV, .fd = p[0], .addr = ADDR(&part), .len = 1));
	write(p[1], "hi", 2);
	check("READV", next(r), 2);
	submit(r, SQE(.opcode = READV, .fd = p[0], .addr = ADDR(&part), .len = 1, .flags = FORCE_ASYNC));
	sleep_ms(5);
	write(p[1], "yo", 2);
	check("READV on a worker", next(r), 2);
	check("its bytes", strcmp(text, "yo"), 0);
	/* A worker that has to be interrupted. */
	submit(r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(text), .len = 1, .flags = FORCE_ASYNC, .user_data = 8));
	sleep_ms(5);
	submit(r, SQE(.opcode = ASYNC_CANCEL, .addr = 8, .user_data = 9));
	for (int i = 0; i < 2; i++) {
		struct cqe cqe = next_cqe(r);

		if (cqe.user_data == 8)
			is_true("cancelled", cqe.res == -ECANCELED || cqe.res == -EINTR);
		else
			is_true("cancel", cqe.res == 0 || cqe.res == -EALREADY);
	}
	file = run(r, SQE(.opcode = 18, .fd = AT_FDCWD, .addr = ADDR("/dev/null"), .op_flags = O_RDWR));
	is_true("OPENAT", file > 0);
	check("bad iovec", run(r, SQE(.opcode = READV, .fd = p[0], .addr = 8, .len = 1)), -EFAULT);
	close(file);
	close(p[0]);
	close(p[1]);
}

static void *other(void *arg)
{
	void *result;
	struct ring r;

	pthread_join(first, &result);
	/* The kernel has let it go a moment later. */
	sleep_ms(20);
	section = "a ring from before";
	all_kinds(&from_before);
	section = "a ring from after";
	r = new_ring(8);
	all_kinds(&r);
	section = "a child of the other thread";
	pid_t child = fork();
	int status = -1;

	if (!child) {
		all_kinds(&r);
		_exit(failures);
	}
	waitpid(child, &status, 0);
	check("its wait status", status, 0);
	end_ring(&r);
	end_ring(&from_before);
	exit(finish());
}

int main(void)
{
	pthread_t thread;

	block_if_asked();
	from_before = new_ring(8);
	works(&from_before);
	first = pthread_self();
	pthread_create(&thread, 0, other, 0);
	pthread_exit(0);
}
