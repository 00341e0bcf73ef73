/*
 * A ring by system calls alone, for programs that state the answers of Linux 6.18: on the kernel's
 * ring they check their expectations, on the engine's they check the engine. With BLOCK_IO_URING in
 * the environment a real io_uring call kills the program. Exit status: 0 all as expected, 1 not, 77
 * no ring.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "sqe.h"
#include "uring_filter.h"

enum {
	NOP = 0, SENDMSG = 9, RECVMSG = 10, ACCEPT = 13, ASYNC_CANCEL = 14, CONNECT = 16, FILES_UPDATE = 20, READ = 22, SEND = 26, RECV = 27,
	PROVIDE_BUFFERS = 31, REMOVE_BUFFERS = 32, SHUTDOWN = 34, SOCKET = 45, BIND = 56, LISTEN = 57,
};
enum { FIXED_FILE = 1, LINK = 4, FORCE_ASYNC = 16, BUFFER_SELECT = 32 };
enum { POLL_FIRST = 1, RECV_MULTISHOT = 2, BUNDLE = 16, VECTORIZED = 32 };
enum { ACCEPT_MULTISHOT = 1, ACCEPT_DONTWAIT = 2, ACCEPT_POLL_FIRST = 4 };
enum { F_BUFFER = 1, F_MORE = 2, F_SOCK_NONEMPTY = 4, F_BUF_MORE = 16 };
enum { REGISTER_FILES = 2, REGISTER_PBUF_RING = 22, UNREGISTER_PBUF_RING = 23, PBUF_STATUS = 26 };
#define ANY_SLOT -1
#define BAD_ADDRESS 0xffff800000000000ull

struct buf_reg {
	uint64_t addr;
	uint32_t entries;
	uint16_t group, flags;
	uint64_t resv[3];
};

struct buf {
	uint64_t addr;
	uint32_t len;
	uint16_t bid, tail;
};

static int ring_fd = -1;
static struct sqe *sqes;
static char *rings;
static uint32_t *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
static struct cqe *cqes;
static uint32_t last_flags;
static int failures;
static const char *section;

static void check(const char *what, int got, int want)
{
	if (got != want) {
		printf("%s: %s: %d, expected %d\n", section, what, got, want);
		failures++;
	}
}

static void block_io_uring(void)
{
	filter_io_uring(SECCOMP_RET_KILL_PROCESS, 1);
}

/* A ring with these params, beside the current one. */
static void open_ring(const char *name, uint32_t *params)
{
	section = name;
	ring_fd = syscall(425, 32, params);
	if (ring_fd < 0) {
		fprintf(stderr, "no ring: %s\n", strerror(errno));
		exit(77);
	}
	rings = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_fd, 0);
	sqes = mmap(0, 32 * 64, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_fd, 0x10000000);
	if (rings == MAP_FAILED || sqes == MAP_FAILED) {
		perror("mmap of the ring");
		exit(1);
	}
	sq_tail = (void *)(rings + params[11]);
	sq_mask = (void *)(rings + params[12]);
	sq_array = (void *)(rings + params[16]);
	cq_head = (void *)(rings + params[20]);
	cq_tail = (void *)(rings + params[21]);
	cq_mask = (void *)(rings + params[22]);
	cqes = (void *)(rings + params[25]);
}

/* A new ring, so that no section sees another section's buffers, files and requests. */
static void new_ring(const char *name)
{
	uint32_t params[30] = { 0 };

	if (ring_fd >= 0) {
		munmap(rings, 4096);
		munmap(sqes, 4096);
		close(ring_fd);
	}
	open_ring(name, params);
}

static void push(struct sqe sqe)
{
	uint32_t tail = *sq_tail, slot = tail & *sq_mask;

	sqes[slot] = sqe;
	sq_array[slot] = slot;
	__atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
}

static void submit(struct sqe sqe)
{
	push(sqe);
	check("submitted", syscall(426, ring_fd, 1, 0, 0, 0, 0), 1);
}

static void submit_linked(struct sqe first, struct sqe second)
{
	push(first);
	push(second);
	check("submitted", syscall(426, ring_fd, 2, 0, 0, 0, 0), 2);
}

/* Whether a CQE arrives within some time. */
static int comes(int ms)
{
	uint64_t ts[2] = { ms / 1000, ms % 1000 * 1000000ull }, arg[3] = { 0, 0, ADDR(ts) };

	if (__atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) == *cq_head)
		syscall(426, ring_fd, 0, 1, 1 | 8, arg, sizeof(arg));
	return __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) != *cq_head;
}

/* The next CQE's result; its flags in last_flags. */
static int next(void)
{
	struct cqe cqe;

	if (!comes(60000))
		return -9999;
	cqe = cqes[*cq_head & *cq_mask];
	__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
	last_flags = cqe.flags;
	return cqe.res;
}

static int run(struct sqe sqe)
{
	submit(sqe);
	return next();
}

/* The next CQE, result and flags. */
static void expect(const char *what, int res, uint32_t flags)
{
	check(what, next(), res);
	check(what, last_flags, flags);
}

/* One request and its one CQE. */
static void does(const char *what, struct sqe sqe, int res, uint32_t flags)
{
	submit(sqe);
	expect(what, res, flags);
}

static void nothing_comes(const char *what)
{
	check(what, comes(20), 0);
}

static int reg(unsigned op, void *arg, unsigned n)
{
	int r = syscall(427, ring_fd, op, arg, n);

	return r < 0 ? -errno : r;
}

#define SQE(...) ((struct sqe){ __VA_ARGS__ })
