/*
 * pthread_cancel of threads that are cancelled at any instruction (PTHREAD_CANCEL_ASYNCHRONOUS): in
 * a wait for CQEs, and between submissions. The ring goes on for other threads, and ends.
 */
#include "robust_ring.h"

static void be_asynchronous(void)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
}

static int is_waiting;

static void *waits(void *arg)
{
	struct ring *r = arg;

	be_asynchronous();
	__atomic_store_n(&is_waiting, 1, __ATOMIC_RELEASE);
	enter_call(r->fd, 0, 1, GETEVENTS, 0, 0);
	return 0;
}

static void *waits_with_timeout(void *arg)
{
	be_asynchronous();
	__atomic_store_n(&is_waiting, 1, __ATOMIC_RELEASE);
	wait_ms(arg, 1, 60000);
	return 0;
}

static void *submits(void *arg)
{
	struct ring *r = arg;

	be_asynchronous();
	__atomic_store_n(&is_waiting, 1, __ATOMIC_RELEASE);
	for (;;) {
		push(r, SQE(.opcode = NOP));
		enter_call(r->fd, 1, 1, GETEVENTS, 0, 0);
		__atomic_store_n(r->cq_head, __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
	}
}

static void *waits_deferred(void *arg)
{
	struct ring *r = arg;

	__atomic_store_n(&is_waiting, 1, __ATOMIC_RELEASE);
	enter_call(r->fd, 0, 1, GETEVENTS, 0, 0);
	/* syscall() is no cancellation point: the thread ends here. */
	pthread_testcancel();
	return (void *)1;
}

static void *start_and_cancel(void *(*f)(void *), struct ring *r, int ms)
{
	pthread_t thread;
	void *result = 0;

	is_waiting = 0;
	check("thread", pthread_create(&thread, 0, f, r), 0);
	while (!__atomic_load_n(&is_waiting, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	sleep_ms(ms);
	check("cancel", pthread_cancel(thread), 0);
	if (f == waits_deferred) {
		sleep_ms(20);
		submit(r, SQE(.opcode = NOP));
	}
	check("join", pthread_join(thread, &result), 0);
	if (f == waits_deferred)
		next(r);
	return result;
}

/* The last descriptor is closed: a request's hold on its file ends with the ring. */
static void ends(struct ring *r)
{
	int p[2], gone = 0;
	char byte;

	pipe(p);
	submit(r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&byte), .len = 1, .flags = FORCE_ASYNC));
	end_ring(r);
	close(p[0]);
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < 1000 && !gone; i++) {
		gone = write(p[1], "x", 1) < 0 && errno == EPIPE;
		if (!gone)
			sleep_ms(2);
	}
	check("the ring has ended", gone, 1);
	close(p[1]);
}

struct sleeper {
	struct ring *ring;
	int result;
};

static void *waits_for_good(void *arg)
{
	struct sleeper *s = arg;

	s->result = enter_call(s->ring->fd, 0, 1, GETEVENTS, 0, 0);
	return 0;
}

static void a_waiter(void *(*f)(void *), const char *what)
{
	section = what;
	for (int i = 0; i < 8; i++) {
		struct ring r = new_ring(8);
		uint64_t ts[2] = { 0, 5000000 };
		struct sleeper other = { &r, -1 };
		pthread_t thread;

		works(&r);
		check("ended by it", (long)start_and_cancel(f, &r, i), (long)PTHREAD_CANCELED);
		/* What it had pushed, and what it had not taken. */
		enter_call(r.fd, 8, 0, 0, 0, 0);
		*r.cq_head = *r.cq_tail;
		works(&r);
		check("a timer", run(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1)), -ETIME);
		if (f != submits) {
			/* One thread waits behind the one that ends. */
			pthread_create(&thread, 0, waits_for_good, &other);
			check("ended by it", (long)start_and_cancel(f == waits_deferred ? waits : f, &r, 5), (long)PTHREAD_CANCELED);
			submit(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1));
			pthread_join(thread, 0);
			check("the other waiter", other.result, 0);
			check("what it waited for", next(&r), -ETIME);
		}
		ends(&r);
	}
}

int main(void)
{
	block_if_asked();
	a_waiter(waits, "a waiter");
	a_waiter(waits_with_timeout, "a waiter with a time-out");
	a_waiter(submits, "a submitter");
	a_waiter(waits_deferred, "a waiter that is cancelled later");
	return finish();
}
