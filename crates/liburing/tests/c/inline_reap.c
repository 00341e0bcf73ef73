/* Completions are reaped by inlined code alone, between waits for the ring's fd: a level-triggered
 * wait must not return for an empty CQ. */
#include "check.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

static int epfd;

static int by_epoll(int fd)
{
	struct epoll_event event;

	(void)fd;
	return epoll_wait(epfd, &event, 1, 30);
}

static int by_poll(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 30);
}

static int by_ppoll(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct timespec limit = { .tv_nsec = 30000000 };

	return ppoll(&pfd, 1, &limit, NULL);
}

static int by_select(int fd)
{
	struct timeval limit = { .tv_usec = 30000 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return select(fd + 1, &set, NULL, NULL, &limit);
}

static void reap_inlined(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0;

	io_uring_for_each_cqe(ring, head, cqe)
		n++;
	CHECK(n == 1);
	io_uring_cq_advance(ring, n);
}

int main(void)
{
	static int (*const waits[])(int) = { by_epoll, by_poll, by_ppoll, by_select };
	struct epoll_event event = { .events = EPOLLIN };
	struct io_uring ring;

	block_io_uring();
	make_ring(&ring, 4, 0);
	epfd = epoll_create1(0);
	CHECK(epoll_ctl(epfd, EPOLL_CTL_ADD, ring.ring_fd, &event) == 0);
	for (unsigned i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		printf("wait %u\n", i);
		EXPECT(waits[i](ring.ring_fd), 0);
		queue_nop(&ring, i);
		EXPECT(io_uring_submit(&ring), 1);
		EXPECT(waits[i](ring.ring_fd), 1);
		EXPECT(waits[i](ring.ring_fd), 1);
		reap_inlined(&ring);
		EXPECT(waits[i](ring.ring_fd), 0);
	}
	io_uring_queue_exit(&ring);
	return 0;
}
