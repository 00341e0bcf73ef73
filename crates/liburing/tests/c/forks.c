/* Rings and fork(2): the parent's keeps working, the child makes its own. */
#include "check.h"

#include <sys/wait.h>

static void one_nop(struct io_uring *ring)
{
	queue_nop(ring, 9);
	CHECK(io_uring_submit_and_wait(ring, 1) == 1);
	CHECK(reap(ring, 9) == 0);
}

static void child(void)
{
	struct io_uring own;
	int fds[2];
	char byte;

	make_ring(&own, 4, 0);
	one_nop(&own);
	CHECK(pipe(fds) == 0);
	io_uring_prep_read(next_sqe(&own, 0), fds[0], &byte, 1, 0);
	CHECK(io_uring_submit(&own) == 1);
	CHECK(write(fds[1], "x", 1) == 1);
	CHECK(reap(&own, 0) == 1);
	io_uring_queue_exit(&own);
	_exit(0);
}

int main(void)
{
	struct io_uring ring;
	int status;

	block_io_uring();
	make_ring(&ring, 4, 0);
	one_nop(&ring);
	for (int i = 0; i < 3; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0)
			child();
		one_nop(&ring);
		CHECK(waitpid(pid, &status, 0) == pid);
		EXPECT(status, 0);
		one_nop(&ring);
	}
	io_uring_queue_exit(&ring);
	return 0;
}
