/*
 * A receive that waits on a socket which is shut down meanwhile ends. The end of a datagram socket
 * is found by a call that may sleep only.
 */
#define _GNU_SOURCE
#include "robust_ring.h"
#include <sys/socket.h>

enum { SHUTDOWN = 34, READV_OP = 1, UNENDED = -7777 };

static const struct { const char *name; int type, ended; } kinds[] = {
	{ "stream", SOCK_STREAM, 0 },
	{ "datagrams", SOCK_DGRAM, 0 },
	{ "packets", SOCK_SEQPACKET, 0 },
	/* As the kernel: nothing sleeps on it. */
	{ "datagrams, not blocking", SOCK_DGRAM | SOCK_NONBLOCK, -EAGAIN },
};

static void ends(struct ring *r, int type, struct sqe sqe, int how, int want)
{
	int pair[2], got = UNENDED;

	check("a pair", socketpair(AF_UNIX, type, 0, pair), 0);
	sqe.fd = pair[0];
	sqe.user_data = 1;
	submit(r, sqe);
	submit(r, SQE(.opcode = SHUTDOWN, .fd = pair[0], .len = how, .user_data = 2));
	for (int left = want == UNENDED ? 1 : 2; left > 0; left--) {
		struct cqe cqe = next_cqe(r);

		if (cqe.user_data == 1)
			got = cqe.res;
		else
			check("the shutdown", cqe.res, 0);
	}
	check("the receive", got, want);
	close(pair[1]);
	close(pair[0]);
	if (want == UNENDED) {
		submit(r, SQE(.opcode = ASYNC_CANCEL, .addr = 1, .user_data = 3));
		next(r);
		next(r);
	}
}

int main(void)
{
	char bytes[8];
	uint64_t iov[2] = { ADDR(bytes), sizeof(bytes) };

	block_if_asked();
	for (int deferred = 0; deferred < 2; deferred++)
		for (unsigned k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
			struct ring r = new_ring_with(8, deferred ? SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN : 0, 0);

			section = kinds[k].name;
			for (int how = SHUT_RD; how <= SHUT_RDWR; how++) {
				int want = how == SHUT_WR ? UNENDED : kinds[k].ended;

				ends(&r, kinds[k].type, SQE(.opcode = READ, .addr = ADDR(bytes), .len = sizeof(bytes)), how, want);
				ends(&r, kinds[k].type, SQE(.opcode = READV_OP, .addr = ADDR(iov), .len = 1), how, want);
				if (kinds[k].ended == 0)
					ends(&r, kinds[k].type, SQE(.opcode = RECV, .addr = ADDR(bytes), .len = sizeof(bytes)), how, want);
			}
			end_ring(&r);
		}
	return finish();
}
