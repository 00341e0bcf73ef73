/*
 * A number that is closed or replaced under armed requests: the requests go on with their file,
 * post what they would have posted, and neither they nor later requests touch the file of the
 * other.
 */
#include "files_cqe.h"
#include <sys/eventfd.h>
#include <sys/socket.h>

static void poll_multishot(struct ring *r, int fd, int events, uint64_t data)
{
	submit(r, SQE(.opcode = POLL_ADD, .fd = fd, .len = POLL_MULTISHOT, .op_flags = events, .user_data = data));
}

static void ends(struct ring *r, uint64_t data)
{
	submit(r, SQE(.opcode = ASYNC_CANCEL, .addr = data, .user_data = 99));
	int sum = next(r) + next(r);
	check("cancelled", sum, -ECANCELED);
}

static void a_poll_is_silent(void)
{
	section = "closing a polled number posts nothing";
	struct ring r = new_ring(8);
	struct cqe cqe;
	int p[2];

	/* A pipe that has data. */
	pipe(p);
	write(p[1], "x", 1);
	poll_multishot(&r, p[0], POLLIN, 1);
	check("it has data", next(&r), POLLIN);
	close(p[0]);
	no_cqe(&r);
	write(p[1], "y", 1);
	cqe = next_cqe(&r);
	check("more data", cqe.res, POLLIN);
	check("of the poll", cqe.user_data, 1);
	check("more to come", cqe.flags, F_MORE);
	no_cqe(&r);
	ends(&r, 1);
	close(p[1]);

	/* A socket that is writable, closed while a duplicate stays open. */
	int s[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	int other = dup(s[0]);
	poll_multishot(&r, s[0], POLLIN | POLLOUT, 2);
	check("writable", next(&r), POLLOUT);
	close(s[0]);
	no_cqe(&r);
	close(other);
	no_cqe(&r);
	write(s[1], "x", 1);
	check("readable as well", next(&r) & POLLIN, POLLIN);
	no_cqe(&r);
	ends(&r, 2);
	signal(SIGPIPE, SIG_IGN);
	check("the last reference", negative(write(s[1], "x", 1)), -EPIPE);
	close(s[1]);

	/* Replaced by dup2. */
	int e = eventfd(1, 0), target = eventfd(1, 0);
	poll_multishot(&r, target, POLLIN, 3);
	check("its count is 1", next(&r), POLLIN);
	dup2(e, target);
	no_cqe(&r);
	uint64_t one = 1;
	write(target, &one, 8);
	no_cqe(&r);
	ends(&r, 3);
	close(e);
	close(target);
	end_ring(&r);
}

/* What is found by the number of its file. */
static void a_cancel_by_number(void)
{
	section = "cancel by number";
	enum { CANCEL_FD = 2 };
	struct ring r = new_ring(8);
	int p[2], q[2];

	pipe(p);
	poll_multishot(&r, p[0], POLLIN, 1);
	check("finds the poll", run(&r, SQE(.opcode = ASYNC_CANCEL, .fd = p[0], .op_flags = CANCEL_FD)) + next(&r), -ECANCELED);
	poll_multishot(&r, p[0], POLLIN, 2);
	pipe(q);
	dup2(q[0], p[0]);
	check("another file", run(&r, SQE(.opcode = ASYNC_CANCEL, .fd = p[0], .op_flags = CANCEL_FD)), -ENOENT);
	ends(&r, 2);
	end_ring(&r);
	for (int i = 0; i < 2; i++) {
		close(p[i]);
		close(q[i]);
	}
}

int main(void)
{
	block_if_asked();
	a_poll_is_silent();
	a_cancel_by_number();
	return finish();
}
