/* The ring's fd in poll(2) and epoll(7): readable while the CQ holds a completion. */
#include "check.h"

#include <poll.h>
#include <sys/epoll.h>

static int polled(int fd, int timeout_ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	int ret = poll(&pfd, 1, timeout_ms);

	CHECK(ret >= 0);
	return ret ? pfd.revents & POLLIN : 0;
}

static int epolled(int epfd, int timeout_ms)
{
	struct epoll_event event;

	return epoll_wait(epfd, &event, 1, timeout_ms);
}

int main(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	int epfd = epoll_create1(0), fds[2];
	char byte;

	block_io_uring();
	make_ring(&ring, 4, 0);
	CHECK(pipe(fds) == 0);
	CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, ring.ring_fd, &event) == 0);
	EXPECT(polled(ring.ring_fd, 0), 0);
	for (int i = 0; i < 3; i++) {
		queue_nop(&ring, 1);
		EXPECT(io_uring_submit(&ring), 1);
		EXPECT(polled(ring.ring_fd, 1000), POLLIN);
		EXPECT(epolled(epfd, 1000), 1);
		EXPECT(reap(&ring, 1), 0);
		EXPECT(io_uring_peek_cqe(&ring, &cqe), -EAGAIN);
		EXPECT(polled(ring.ring_fd, 0), 0);
		EXPECT(epolled(epfd, 0), 0);
	}
	/* This completion comes without a call of the program. */
	io_uring_prep_read(next_sqe(&ring, 0), fds[0], &byte, 1, 0);
	EXPECT(io_uring_submit(&ring), 1);
	EXPECT(epolled(epfd, 20), 0);
	CHECK(write(fds[1], "x", 1) == 1);
	EXPECT(epolled(epfd, 1000), 1);
	EXPECT(reap(&ring, 0), 1);
	io_uring_queue_exit(&ring);
	return 0;
}
