/* A ring whose fd is closed, entered by its registered index alone. */
#include "check.h"

#include "newer_functions.h"

static void one_nop(struct io_uring *ring)
{
	queue_nop(ring, 9);
	EXPECT(io_uring_submit_and_wait(ring, 1), 1);
	EXPECT(reap(ring, 9), 0);
}

int main(void)
{
	struct io_uring ring;
	int fds[1];

	block_io_uring();
	make_ring(&ring, 4, 0);
	EXPECT(io_uring_close_ring_fd(&ring), -EINVAL);
	EXPECT(io_uring_unregister_ring_fd(&ring), -EINVAL);
	EXPECT(io_uring_register_ring_fd(&ring), 1);
	EXPECT(io_uring_register_ring_fd(&ring), -EEXIST);
	EXPECT(io_uring_close_ring_fd(&ring), 1);
	EXPECT(ring.ring_fd, -1);
	EXPECT(io_uring_close_ring_fd(&ring), -EBADF);
	one_nop(&ring);
	fds[0] = file_of("");
	EXPECT(io_uring_register_files(&ring, fds, 1), 0);
	EXPECT(io_uring_unregister_files(&ring), 0);
	one_nop(&ring);
	io_uring_queue_exit(&ring);
	return 0;
}
