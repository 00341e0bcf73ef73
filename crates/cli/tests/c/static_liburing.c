/*
 * A program on liburing.a: blocks of a file by fixed buffers and by links, sockets, poll, timeouts,
 * two threads with rings of their own. Exit status: 0 all as expected, 1 not, 77 no ring.
 */
#include <liburing.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 64, DEPTH = 16 };

static void must(int truth, const char *what)
{
	if (!truth) {
		fprintf(stderr, "not as expected: %s\n", what);
		exit(1);
	}
}

/* Prepares with one of liburing's functions, which clear flags and user_data. */
#define PREP(ring, data, bits, how, ...) \
	do { \
		struct io_uring_sqe *sqe_ = io_uring_get_sqe(ring); \
		must(!!sqe_, "an SQE"); \
		how(sqe_, __VA_ARGS__); \
		sqe_->flags |= (bits); \
		sqe_->user_data = (data); \
	} while (0)

static int result(struct io_uring *ring, unsigned long data)
{
	struct io_uring_cqe *cqe = NULL;

	must(!io_uring_wait_cqe(ring, &cqe), "a CQE");
	must(cqe->user_data == data, "the order of CQEs");
	int res = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return res;
}

static void file(struct io_uring *ring, int number)
{
	static char buffers[2][2][BLOCK] __attribute__((aligned(4096)));
	char name[32], (*both)[BLOCK] = buffers[number];
	struct iovec fixed[2] = { { both[0], BLOCK }, { both[1], BLOCK } };

	snprintf(name, sizeof(name), "liburing-%d", number);
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	must(fd >= 0, "a file");
	must(!io_uring_register_buffers(ring, fixed, 2) && !io_uring_register_files(ring, &fd, 1), "registered");
	for (int i = 0; i < BLOCKS; i++) {
		memset(both[0], i + 1, BLOCK);
		memset(both[1], 0, BLOCK);
		PREP(ring, 1, IOSQE_IO_LINK | IOSQE_FIXED_FILE, io_uring_prep_write_fixed, 0, both[0], BLOCK, (long)i * BLOCK, 0);
		PREP(ring, 2, IOSQE_FIXED_FILE, io_uring_prep_read_fixed, 0, both[1], BLOCK, (long)i * BLOCK, 1);
		must(io_uring_submit(ring) == 2, "submitted");
		must(result(ring, 1) == BLOCK && result(ring, 2) == BLOCK, "the results of a block");
		must(!memcmp(both[0], both[1], BLOCK), "the bytes of a block");
	}
	PREP(ring, 3, IOSQE_ASYNC | IOSQE_IO_LINK, io_uring_prep_fsync, fd, 0);
	PREP(ring, 4, 0, io_uring_prep_close, fd);
	must(io_uring_submit(ring) == 2 && !result(ring, 3) && !result(ring, 4), "fsync and close");
	must(!io_uring_unregister_files(ring) && !io_uring_unregister_buffers(ring) && !unlink(name), "unregistered");
}

static void sockets(struct io_uring *ring)
{
	int ends[2];
	char back[8] = "";

	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "sockets");
	PREP(ring, 1, 0, io_uring_prep_poll_add, ends[0], POLLIN);
	must(io_uring_submit(ring) == 1, "a poll submitted");
	PREP(ring, 2, 0, io_uring_prep_send, ends[1], "hello", 5, 0);
	must(io_uring_submit(ring) == 1, "a send submitted");
	int first = 0;
	for (int i = 0; i < 2; i++) {
		struct io_uring_cqe *cqe = NULL;
		must(!io_uring_wait_cqe(ring, &cqe), "a CQE of a socket");
		must(cqe->res == (cqe->user_data == 1 ? POLLIN : 5), "the result of a poll or send");
		first += cqe->user_data;
		io_uring_cqe_seen(ring, cqe);
	}
	must(first == 3, "both");
	PREP(ring, 3, 0, io_uring_prep_recv, ends[0], back, sizeof(back), 0);
	must(io_uring_submit(ring) == 1 && result(ring, 3) == 5 && !strcmp(back, "hello"), "what is received");
	close(ends[0]);
	close(ends[1]);
}

static void timeouts(struct io_uring *ring)
{
	struct __kernel_timespec soon = { .tv_nsec = 10 * 1000 * 1000 }, never = { .tv_sec = 1000 };
	struct io_uring_cqe *cqe = NULL;

	PREP(ring, 1, 0, io_uring_prep_timeout, &never, 0, 0);
	must(io_uring_submit(ring) == 1, "a timeout submitted");
	must(io_uring_wait_cqe_timeout(ring, &cqe, &soon) == -ETIME, "a wait with a limit");
	PREP(ring, 2, IOSQE_CQE_SKIP_SUCCESS, io_uring_prep_timeout_remove, 1, 0);
	must(io_uring_submit(ring) == 1 && result(ring, 1) == -ECANCELED, "a timeout that is removed");
}

static void *rings(void *argument)
{
	struct io_uring ring;
	int err = io_uring_queue_init(DEPTH, &ring, 0);

	if (err == -ENOSYS || err == -EPERM)
		exit(77);
	must(!err, "a ring");
	for (int i = 0; i < 3; i++) {
		file(&ring, (int)(long)argument);
		sockets(&ring);
		timeouts(&ring);
	}
	io_uring_queue_exit(&ring);
	return NULL;
}

int main(void)
{
	pthread_t thread;

	must(!pthread_create(&thread, NULL, rings, (void *)1), "a thread");
	rings((void *)0);
	pthread_join(thread, NULL);
	puts("as expected");
	return 0;
}
