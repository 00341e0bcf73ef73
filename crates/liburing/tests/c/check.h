/* For the C programs of these tests: checks, a transcript on stdout to compare two runs, and a
 * filter that forbids kernel rings. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <liburing.h>

/* Ends the program as failed unless `condition` holds. */
#define CHECK(condition)                                                                                    \
	do {                                                                                                \
		if (!(condition)) {                                                                         \
			fflush(stdout);                                                                     \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);             \
			exit(1);                                                                            \
		}                                                                                           \
	} while (0)

/* Writes the value of an int expression to the transcript. */
#define SHOW(expression) printf("%s = %d\n", #expression, (int)(expression))

/* Checks that the expression has this value, and writes it to the transcript. */
#define EXPECT(expression, value)                                                                           \
	do {                                                                                                \
		int got_ = (int)(expression);                                                               \
		printf("%s = %d\n", #expression, got_);                                                     \
		if (got_ != (int)(value)) {                                                                 \
			fflush(stdout);                                                                     \
			fprintf(stderr, "%s:%d: %s is %d, expected %d\n", __FILE__, __LINE__, #expression, got_, (int)(value)); \
			exit(1);                                                                            \
		}                                                                                           \
	} while (0)

/* With BLOCK_IO_URING in the environment, every io_uring system call kills the process from here
 * on, so a program that succeeds does not use the kernel's rings. */
static inline void block_io_uring(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 425, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 427, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	if (!getenv("BLOCK_IO_URING"))
		return;
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

/* Makes a ring, or ends the program. */
static inline void make_ring(struct io_uring *ring, unsigned entries, unsigned flags)
{
	int ret = io_uring_queue_init(entries, ring, flags);

	if (ret < 0) {
		fprintf(stderr, "io_uring_queue_init: %s\n", strerror(-ret));
		exit(1);
	}
}

static inline struct io_uring_sqe *next_sqe(struct io_uring *ring, unsigned long data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	CHECK(sqe);
	memset(sqe, 0, sizeof(*sqe));
	sqe->user_data = data;
	return sqe;
}

static inline void queue_nop(struct io_uring *ring, unsigned long data)
{
	struct io_uring_sqe *sqe = next_sqe(ring, data);

	io_uring_prep_nop(sqe);
	sqe->user_data = data;
}

/* Waits for one CQE, which must have this user_data. Returns its result. */
static inline int reap(struct io_uring *ring, unsigned long data)
{
	struct io_uring_cqe *cqe;
	int ret = io_uring_wait_cqe(ring, &cqe);

	CHECK(ret == 0);
	if (cqe->user_data != data)
		fprintf(stderr, "CQE with user_data %llu (res %d), expected %lu\n", cqe->user_data, cqe->res, data);
	CHECK(cqe->user_data == data);
	ret = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return ret;
}

/* An unlinked file with this text. */
static inline int file_of(const char *text)
{
	char path[] = "/tmp/liburing-test-XXXXXX";
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	CHECK(unlink(path) == 0);
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	return fd;
}

#endif
