/*
 * liburing's functions and the memory that a ring writes, for sanitizers. What liburing itself
 * writes they do not see, so it is initialised first; nor its mmap and munmap, so the two threads
 * run one after the other.
 */
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "uring_filter.h"

enum { ROUNDS = 50, BYTES = 64 };

static void must(int truth, const char *what)
{
	if (!truth) {
		fprintf(stderr, "not as expected: %s\n", what);
		exit(1);
	}
}

static void complete(struct io_uring *ring, int bytes)
{
	struct io_uring_cqe *cqe = NULL;

	must(io_uring_submit_and_wait(ring, 1) == 1, "submitted");
	must(!io_uring_wait_cqe(ring, &cqe) && cqe->res == bytes, "its result");
	must(io_uring_cqe_get_data(cqe) == ring, "its user_data");
	io_uring_cqe_seen(ring, cqe);
}

static void *copies(void *unused)
{
	struct io_uring ring = { 0 };
	char *from = malloc(BYTES), *to = calloc(1, BYTES);
	int pipes[2], err = io_uring_queue_init(8, &ring, 0);

	if (err == -ENOSYS || err == -EPERM)
		exit(77);
	must(!err && !pipe(pipes), "a ring and a pipe");
	memset(from, 'l', BYTES);
	for (int i = 0; i < ROUNDS; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

		io_uring_prep_write(sqe, pipes[1], from, BYTES, 0);
		io_uring_sqe_set_data(sqe, &ring);
		complete(&ring, BYTES);
		sqe = io_uring_get_sqe(&ring);
		io_uring_prep_read(sqe, pipes[0], to, BYTES, 0);
		io_uring_sqe_set_flags(sqe, i % 2 ? IOSQE_ASYNC : 0);
		io_uring_sqe_set_data(sqe, &ring);
		complete(&ring, BYTES);
		must(!memcmp(from, to, BYTES), "the bytes");
	}
	io_uring_queue_exit(&ring);
	close(pipes[0]);
	close(pipes[1]);
	free(from);
	free(to);
	return NULL;
}

int main(void)
{
	pthread_t thread;

	if (getenv("BLOCK_IO_URING"))
		filter_io_uring(SECCOMP_RET_KILL_PROCESS, 1);
	copies(NULL);
	pthread_create(&thread, NULL, copies, NULL);
	pthread_join(thread, NULL);
	puts("as expected");
	return 0;
}
