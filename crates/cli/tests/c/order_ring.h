/*
 * Programs that print the order of CQEs, for a comparison of two rings line by line. They state no
 * expectation: the kernel's ring does. Each line is a case.
 */
#pragma once
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "robust_ring.h"

enum { SETUP_COOP_TASKRUN = 256, COOP = SETUP_COOP_TASKRUN, DEFER = SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN };
enum { REGISTER_PBUF_RING = 22 };

static const struct { const char *name; unsigned setup; } ring_kinds[] = { { "plain", 0 }, { "coop", COOP }, { "defer", DEFER } };
#define RING_KINDS (sizeof(ring_kinds) / sizeof(ring_kinds[0]))

/* Provided buffers of one size, in group 0. */
static void provide(struct ring *r, unsigned count, unsigned size)
{
	struct { uint64_t addr; uint32_t len; uint16_t bid, tail; } *bufs = mmap(0, count * 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct { uint64_t addr; uint32_t entries; uint16_t group, flags; uint64_t resv[3]; } reg = { ADDR(bufs), count };
	char *memory = malloc((size_t)count * size);

	check("buffer ring", register_call(r->fd, REGISTER_PBUF_RING, &reg, 1), 0);
	for (unsigned i = 0; i < count; i++) {
		bufs[i].addr = ADDR(memory + (size_t)i * size);
		bufs[i].len = size;
		bufs[i].bid = i;
	}
	__atomic_store_n(&bufs[0].tail, count, __ATOMIC_RELEASE);
}

/* Submits what was pushed, and completes what can be completed without waiting. */
static int submit_all(struct ring *r)
{
	unsigned n = *r->sq_tail - __atomic_load_n(r->sq_head, __ATOMIC_ACQUIRE);

	return enter_call(r->fd, n, 0, GETEVENTS, 0, 0);
}

/* Enters until that brings no further CQE. Nothing here needs time. */
static void settle(struct ring *r)
{
	int before;

	do {
		before = waiting(r);
		enter_call(r->fd, 0, 0, GETEVENTS, 0, 0);
	} while (waiting(r) != before);
}

static void print_cqe(struct cqe cqe)
{
	printf(" %c:%d%s", (char)cqe.user_data, cqe.res, cqe.flags & F_MORE ? "+" : "");
}

/* The CQEs, in order. */
static void print_cqes(struct ring *r)
{
	settle(r);
	while (waiting(r))
		print_cqe(take(r));
	printf("\n");
	fflush(stdout);
}

/* The user_data of the CQEs in order, runs as a count. */
static void print_runs(struct ring *r)
{
	int run = 0;
	char last = 0;

	settle(r);
	for (;;) {
		char c = waiting(r) ? (char)take(r).user_data : 0;

		if (c != last && run)
			printf(" %d%c", run, last);
		run = c == last ? run + 1 : 1;
		last = c;
		if (!c)
			break;
	}
	printf("\n");
	fflush(stdout);
}
