/*
 * A waiter that gives its CQEs time to gather (min_wait_usec) is not woken for each of them: its
 * thread switches are counted while more than a hundred CQEs come one by one.
 */
#include "order_ring.h"
#include <sys/resource.h>

enum { MSG_RING = 40, POLLS = 200, EVENTS = 100, SWITCHES = 50, WINDOW_US = 200000 };

static int ended, eventfds[POLLS];
static struct ring other;

static void *write_for_ever(void *arg)
{
	uint64_t one = 1;

	for (int i = 0; !__atomic_load_n(&ended, __ATOMIC_ACQUIRE); i++) {
		write(eventfds[i % POLLS], &one, 8);
		usleep(300);
	}
	return 0;
}

static void *message_for_ever(void *arg)
{
	other = new_ring(8);
	while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE)) {
		push(&other, SQE(.opcode = MSG_RING, .fd = (int)(long)arg, .off = 'm'));
		enter_call(other.fd, 1, 0, 0, 0, 0);
		while (waiting(&other))
			take(&other);
		usleep(300);
	}
	end_ring(&other);
	return 0;
}

static long switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

/* Waits in a window. Returns the number of CQEs. */
static int wait_in_window(struct ring *r, unsigned want)
{
	uint64_t ts[2] = { 5, 0 };
	struct { uint64_t sigmask; uint32_t sigmask_sz, min_wait_usec; uint64_t ts; } arg = { 0, 0, WINDOW_US, ADDR(ts) };
	int n;

	enter_call(r->fd, 0, want, GETEVENTS | EXT_ARG, &arg, sizeof(arg));
	n = waiting(r);
	while (waiting(r))
		take(r);
	return n;
}

static void gathers(const char *name, unsigned setup, void *(*sender)(void *))
{
	struct ring r = new_ring_with(8, setup | SETUP_CQSIZE, 8192);
	long before, after;
	pthread_t thread;
	int n;

	section = name;
	ended = 0;
	for (int i = 0; i < POLLS; i++) {
		eventfds[i] = eventfd(0, 0);
		if (sender == write_for_ever)
			submit(&r, SQE(.opcode = POLL_ADD, .fd = eventfds[i], .op_flags = POLLIN, .len = POLL_MULTISHOT, .user_data = 'p'));
	}
	pthread_create(&thread, 0, sender, (void *)(long)r.fd);
	/* A machine that is busy elsewhere may bring few events in a window. */
	for (int i = 0; i < 20; i++) {
		before = switches();
		n = wait_in_window(&r, 8192);
		after = switches();
		if (n >= EVENTS)
			break;
	}
	is_true("CQEs gather", n >= EVENTS);
	if (after - before > SWITCHES)
		check("thread switches", after - before, SWITCHES);
	/* As many as asked for end the window. */
	is_true("the window ends early", wait_in_window(&r, 1) >= 1);
	__atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
	pthread_join(thread, 0);
	for (int i = 0; i < POLLS; i++)
		close(eventfds[i]);
	end_ring(&r);
}

int main(void)
{
	block_if_asked();
	gathers("messages", 0, message_for_ever);
	gathers("polls, DEFER_TASKRUN", DEFER, write_for_ever);
	/* Without that flag the kernel's task work wakes its thread for each event. */
	if (getenv("BLOCK_IO_URING"))
		gathers("polls", 0, write_for_ever);
	return finish();
}
