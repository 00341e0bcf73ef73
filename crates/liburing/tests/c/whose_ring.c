/* Makes a ring, submits a NOP, and prints whose ring it is. */
#include "check.h"

int main(void)
{
	struct io_uring ring;
	char path[64], target[128] = "";

	make_ring(&ring, 8, 0);
	queue_nop(&ring, 7);
	CHECK(io_uring_submit(&ring) == 1);
	CHECK(reap(&ring, 7) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", ring.ring_fd);
	CHECK(readlink(path, target, sizeof(target) - 1) > 0);
	puts(strstr(target, "[io_uring]") ? "kernel" : "engine");
	io_uring_queue_exit(&ring);
	return 0;
}
