/*
 * DEFER_TASKRUN: CQEs of work that was done while no thread was inside are posted at the next
 * GETEVENTS, in the order of the work. A multishot receive that has received, and is cancelled by a
 * call that asks for no events, posts its bytes first and its end last.
 */
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include "net_ring.h"

enum { SINGLE_ISSUER = 1 << 12, DEFER_TASKRUN = 1 << 13, GROUP = 3, ENTRIES = 8, SIZE = 64, RECEIVE = 7, CANCEL = 8, ROUNDS = 20, REGISTER_EVENTFD = 4 };

static struct buf *buffers;
static char memory[ENTRIES][SIZE];

static void provide(void)
{
	struct buf_reg r = { .entries = ENTRIES, .group = GROUP };
	int i;

	buffers = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	r.addr = ADDR(buffers);
	check("group", reg(REGISTER_PBUF_RING, &r, 1), 0);
	for (i = 0; i < ENTRIES; i++)
		buffers[i] = (struct buf){ .addr = ADDR(memory[i]), .len = SIZE, .bid = i, .tail = i ? 0 : buffers[0].tail };
	__atomic_store_n(&buffers[0].tail, ENTRIES, __ATOMIC_RELEASE);
}

/* Leaves time for other threads to receive while none is inside; in the kernel none does. */
static void wait_for_receiver(int fd)
{
	struct timespec tick = { 0, 1000000 };
	int waiting = 1, ms;

	for (ms = 0; ms < 20 && waiting; ms++) {
		nanosleep(&tick, 0);
		ioctl(fd, FIONREAD, &waiting);
	}
}

/* The ring's descriptor is readable, and so is the eventfd. */
static void check_announced(int eventfd)
{
	struct pollfd files[2] = { { .fd = ring_fd, .events = POLLIN }, { .fd = eventfd, .events = POLLIN } };

	check("the ring is readable", poll(files, 1, 10000), 1);
	check("still", poll(files, 1, 0), 1);
	check("the eventfd is told", poll(files + 1, 1, 10000), 1);
}

static void get_events(void)
{
	check("events", syscall(426, ring_fd, 0, 0, 1, 0, 0), 0);
}

static void one_round(void)
{
	uint32_t params[30] = { 0, 0, SINGLE_ISSUER | DEFER_TASKRUN };
	int ends[2], received = 0, ended = 0, left = 2, event = eventfd(0, EFD_NONBLOCK);

	open_ring("defer", params);
	provide();
	check("eventfd", reg(REGISTER_EVENTFD, &event, 1), 0);
	socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
	submit(SQE(RECV, BUFFER_SELECT, RECV_MULTISHOT, ends[0], .buf_index = GROUP, .user_data = RECEIVE));
	get_events();
	check("written", write(ends[1], "abc", 3), 3);
	check_announced(event);
	wait_for_receiver(ends[0]);
	submit(SQE(ASYNC_CANCEL, .addr = RECEIVE, .user_data = CANCEL));
	while (left > 0 && comes(10000)) {
		struct cqe cqe = cqes[*cq_head & *cq_mask];

		__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
		if (cqe.user_data == CANCEL) {
			left--;
			continue;
		}
		check("nothing after its end", ended, 0);
		if (cqe.flags & F_MORE) {
			received += cqe.res;
			continue;
		}
		ended = 1;
		left--;
	}
	check("both have ended", left, 0);
	get_events();
	check("nothing is left", comes(0), 0);
	ioctl(ends[0], FIONREAD, &left);
	check("each byte is told of or still there", received + left, 3);
	munmap(buffers, 4096);
	munmap(rings, 4096);
	munmap(sqes, 32 * 64);
	close(ring_fd);
	close(event);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	int i;

	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	for (i = 0; i < ROUNDS && !failures; i++)
		one_round();
	return failures != 0;
}
