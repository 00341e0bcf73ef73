/*
 * Threads that are cancelled asynchronously while they submit and wait: the ring goes on for the
 * others, and each request has its CQE.
 */
#include "robust_ring.h"

enum { ROUNDS = 100 };

static struct ring mine;
static volatile int is_inside;

static void *submits_and_waits(void *how)
{
	uint64_t ts[2] = { 0, 200000000 }, arg[3] = { 0, 0, ADDR(ts) };

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
	is_inside = 1;
	for (;;) {
		if (how)
			enter_call(mine.fd, 0, 4000, GETEVENTS | EXT_ARG, arg, sizeof(arg));
		else
			enter_call(mine.fd, 1, 0, GETEVENTS, 0, 0);
	}
}

static void cancelled(void *how)
{
	pthread_t thread;
	void *result;

	for (int i = 0; i < ROUNDS; i++) {

		is_inside = 0;
		for (int j = 0; j < 4; j++)
			push(&mine, SQE(.opcode = j ? NOP : POLL_ADD, .fd = 0, .op_flags = POLLIN | POLLOUT, .user_data = j));
		pthread_create(&thread, 0, submits_and_waits, how);
		while (!is_inside)
			;
		for (volatile int j = 0; j < i * 100; j++)
			;
		pthread_cancel(thread);
		pthread_join(thread, &result);
		is_true("cancelled", result == PTHREAD_CANCELED);
		while (*mine.sq_head != *mine.sq_tail)
			check("what was left is submitted", enter_call(mine.fd, 1, 0, 0, 0, 0), 1);
		int seen[4] = { 0 };
		for (int j = 0; j < 4; j++) {
			struct cqe cqe = next_cqe(&mine);

			if (cqe.res == NO_CQE) {
				check("a CQE comes", 0, 1);
				_exit(1);
			}
			seen[cqe.user_data & 3]++;
		}
		for (int j = 0; j < 4; j++)
			check("CQEs of a request", seen[j], 1);
		check("no other", waiting(&mine), 0);
		works(&mine);
	}
}

int main(void)
{
	block_if_asked();
	mine = new_ring(16);
	section = "while it submits";
	cancelled(0);
	section = "while it waits";
	cancelled((void *)1);
	end_ring(&mine);
	return finish();
}
