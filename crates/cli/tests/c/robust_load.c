/* Many requests, many threads, a full CQ: each request completes exactly once. */
#include "robust_ring.h"
#include <sys/eventfd.h>
#include <sys/resource.h>

#define MANY 40000

static uint8_t seen[MANY];
static int total;

static void count(struct cqe cqe)
{
	if (cqe.user_data < MANY) {
		is_true("no request ends twice", __atomic_add_fetch(&seen[cqe.user_data], 1, __ATOMIC_RELAXED) == 1);
		__atomic_add_fetch(&total, 1, __ATOMIC_RELAXED);
	}
}

static void begin(const char *name)
{
	section = name;
	memset(seen, 0, sizeof(seen));
	total = 0;
}

/* A CQ of 16 for hundreds of workers' requests, polls and NOPs, emptied by a slow reader. */
static void overflow(void)
{
	begin("overflow");
	struct ring r = new_ring_with(8, SETUP_CQSIZE, 16);
	int file = open("load", O_RDWR | O_CREAT | O_TRUNC, 0600), event = eventfd(0, 0), multishots = 0, is_armed = 0, n = 8000;
	static char buf[4096];
	uint64_t end = now_us() + 200000000;

	write(file, buf, sizeof(buf));
	for (int i = 0; total < n && now_us() < end;) {
		if (!is_armed) {
			push(&r, SQE(.opcode = POLL_ADD, .fd = event, .op_flags = POLLIN, .len = POLL_MULTISHOT, .user_data = MANY));
			is_armed = 1;
		}
		while (i < n && *r.sq_tail - *r.sq_head < 8) {
			if (i % 3 == 0)
				push(&r, SQE(.opcode = NOP, .user_data = i++));
			else
				push(&r, SQE(.opcode = READ, .fd = file, .addr = ADDR(buf), .len = 512, .off = i % 8 * 512, .flags = i % 3 == 1 ? FORCE_ASYNC : 0, .user_data = i++));
		}
		uint64_t one = 1;
		write(event, &one, 8);
		int submitted = enter_call(r.fd, *r.sq_tail - *r.sq_head, 0, 0, 0, 0);
		is_true("submitted, or busy", submitted >= 0 || submitted == -EBUSY);
		/* A slow reader: not each time, and not all CQEs. */
		if (i % 64 < 8 || i == n || submitted < 0)
			enter_call(r.fd, 0, 1, GETEVENTS, 0, 0);
		for (int k = 0; k < 10 && waiting(&r); k++) {
			struct cqe cqe = take(&r);

			if (cqe.user_data == MANY) {
				is_true("a poll", cqe.res == POLLIN);
				multishots++;
				is_armed = (cqe.flags & F_MORE) != 0;
			}
			count(cqe);
		}
	}
	check("all ended", total, n);
	is_true("polls, too", multishots > 0);
	printf("overflow: %d requests and %d polls through a CQ of 16\n", total, multishots);
	end_ring(&r);
	close(file);
	close(event);
}

/* More completions than the CQ holds wait for their reader, in order. */
static void order(void)
{
	begin("order of overflow");
	struct ring r = new_ring_with(64, SETUP_CQSIZE, 64);

	for (int i = 0; i < 640; i++)
		submit(&r, SQE(.opcode = NOP, .user_data = i));
	is_true("flag", *r.sq_flags & SQ_CQ_OVERFLOW);
	for (int i = 0; i < 640; i++) {
		if (!waiting(&r))
			enter_call(r.fd, 0, 1, GETEVENTS, 0, 0);
		check("the next", take(&r).user_data, i);
	}
	enter_call(r.fd, 0, 0, GETEVENTS, 0, 0);
	is_true("no flag", !(*r.sq_flags & SQ_CQ_OVERFLOW));
	check("no more", waiting(&r), 0);
	end_ring(&r);
}

static void thousands_in_flight(void)
{
	begin("thousands in flight");
	struct ring r = new_ring_with(4096, 0, 0);
	int pipes[200][2], n = 0;
	static char buf[8];
	uint64_t ts[2] = { 0, 200000000 }, end;

	for (int i = 0; i < 200; i++)
		pipe(pipes[i]);
	for (int i = 0; i < 3000; i++)
		push(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1, .user_data = n++));
	check("timers", enter_call(r.fd, 3000, 0, 0, 0, 0), 3000);
	for (int i = 0; i < 4000; i++)
		push(&r, SQE(.opcode = POLL_ADD, .fd = pipes[i % 200][0], .op_flags = POLLIN, .user_data = n++));
	check("polls", enter_call(r.fd, 4000, 0, 0, 0, 0), 4000);
	for (int i = 0; i < 2000; i++)
		push(&r, SQE(.opcode = READ, .fd = pipes[i % 200][0], .addr = ADDR(buf), .len = 1, .user_data = n++));
	check("reads", enter_call(r.fd, 2000, 0, 0, 0, 0), 2000);
	for (int i = 0; i < 200; i++)
		write(pipes[i][1], "0123456789", 10);
	end = now_us() + 200000000;
	while (total < n && now_us() < end) {
		wait_ms(&r, 1, 1000);
		while (waiting(&r))
			count(take(&r));
	}
	check("all ended", total, n);
	check("no more", comes(&r, 20), 0);
	/* Thousands of requests are cancelled too. */
	for (int i = 0; i < 4000; i++)
		push(&r, SQE(.opcode = POLL_ADD, .fd = pipes[i % 200][0], .op_flags = POLLIN, .user_data = n++));
	check("polls again", enter_call(r.fd, 4000, 0, 0, 0, 0), 4000);
	push(&r, SQE(.opcode = ASYNC_CANCEL, .fd = -1, .op_flags = CANCEL_ANY | 1, .user_data = MANY));
	enter_call(r.fd, 1, 0, 0, 0, 0);
	end = now_us() + 200000000;
	while (total < n && now_us() < end) {
		wait_ms(&r, 1, 1000);
		while (waiting(&r)) {
			struct cqe cqe = take(&r);

			check("cancelled", cqe.res, cqe.user_data == MANY ? 4000 : -ECANCELED);
			count(cqe);
		}
	}
	check("all cancelled", total, n);
	end_ring(&r);
	for (int i = 0; i < 200; i++) {
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
}

static struct ring crowd;
static pthread_mutex_t sq_lock = PTHREAD_MUTEX_INITIALIZER, cq_lock = PTHREAD_MUTEX_INITIALIZER;
static int crowd_pipe[2], next_number;

#define CROWD 20000

static void *submits(void *arg)
{
	static char buf[8];
	uint64_t ts[2] = { 0, 100000 };

	for (;;) {
		struct sqe sqe = { .opcode = NOP };

		pthread_mutex_lock(&sq_lock);
		if (next_number == CROWD) {
			pthread_mutex_unlock(&sq_lock);
			break;
		}
		sqe.user_data = next_number++;
		switch (sqe.user_data % 5) {
		case 0: sqe = SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1, .user_data = sqe.user_data); break;
		case 1: sqe = SQE(.opcode = READ, .fd = crowd_pipe[0], .addr = ADDR(buf), .len = 1, .user_data = sqe.user_data); break;
		case 2: sqe = SQE(.opcode = WRITE, .fd = crowd_pipe[1], .addr = ADDR(buf), .len = 1, .user_data = sqe.user_data, .flags = sqe.user_data % 10 == 2 ? FORCE_ASYNC : 0); break;
		case 3: sqe.flags = FORCE_ASYNC; break;
		}
		push(&crowd, sqe);
		/* Many threads enter at once: any of them may submit it. */
		pthread_mutex_unlock(&sq_lock);
		while (__atomic_load_n(crowd.sq_head, __ATOMIC_ACQUIRE) != __atomic_load_n(crowd.sq_tail, __ATOMIC_ACQUIRE))
			enter_call(crowd.fd, 4, 0, 0, 0, 0);
	}
	/* A thread's requests may end with it. */
	for (int i = 0; i < 20000 && __atomic_load_n(&total, __ATOMIC_RELAXED) < CROWD; i++)
		sleep_ms(10);
	return 0;
}

static void *reaps(void *arg)
{
	uint64_t end = now_us() + 200000000;

	while (__atomic_load_n(&total, __ATOMIC_RELAXED) < CROWD && now_us() < end) {
		wait_ms(&crowd, 1, 100);
		pthread_mutex_lock(&cq_lock);
		while (waiting(&crowd))
			count(take(&crowd));
		pthread_mutex_unlock(&cq_lock);
	}
	return 0;
}

static void a_crowd(void)
{
	begin("threads that share a ring");
	pthread_t threads[7];

	crowd = new_ring_with(64, SETUP_CQSIZE, 256);
	pipe(crowd_pipe);
	next_number = 0;
	for (int i = 0; i < 7; i++)
		pthread_create(&threads[i], 0, i < 4 ? submits : reaps, 0);
	for (int i = 0; i < 7; i++)
		pthread_join(threads[i], 0);
	check("all ended", total, CROWD);
	check("no more", comes(&crowd, 20), 0);
	end_ring(&crowd);
	close(crowd_pipe[0]);
	close(crowd_pipe[1]);
}

int main(void)
{
	struct rlimit files = { 1024, 4096 };

	setrlimit(RLIMIT_NOFILE, &files);
	block_if_asked();
	overflow();
	order();
	thousands_in_flight();
	a_crowd();
	return finish();
}
