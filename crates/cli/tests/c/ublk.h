/*
 * A ublk server and a client of its device in one process, by system calls alone: for programs
 * under `uringlet run`.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "sqe.h"
#include "uring_filter.h"

enum { URING_CMD = 46, FIXED_FILE = 1, REGISTER_FILES = 2 };
enum { SQE128 = 1 << 10, COOP_TASKRUN = 1 << 8, SINGLE_ISSUER = 1 << 12, DEFER_TASKRUN = 1 << 13 };
enum {
	GET_QUEUE_AFFINITY = 1, GET_DEV_INFO = 2, ADD_DEV = 4, DEL_DEV = 5, START_DEV = 6, STOP_DEV = 7, SET_PARAMS = 8, GET_PARAMS = 9,
	START_RECOVERY = 0x10, END_RECOVERY = 0x11, GET_FEATURES = 0x13,
};
enum { FETCH = 0x20, COMMIT = 0x21, NEED_GET_DATA = 0x22 };
enum { F_NEED_GET_DATA = 1 << 2, F_RECOVERY = 1 << 3, F_REISSUE = 1 << 4, F_USER_COPY = 1 << 7 };
enum { DEAD, LIVE, QUIESCED };
enum { READ, WRITE, FLUSH, DISCARD, WRITE_ZEROES = 5 };
enum { DEPTH = 16, MAX_BYTES = 1 << 16, DISK = 8 << 20 };
#define IOWR(nr, size) (3u << 30 | (size) << 16 | 'u' << 8 | (nr))
#define SLOT(tag) (0x80000000ull + ((uint64_t)(tag) << 25))

struct ring {
	int fd, shift;
	char *rings, *sqes;
	size_t rings_len, sqes_len;
	uint32_t *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct cqe *cqes;
	unsigned unsubmitted;
};

struct ctrl_cmd {
	uint32_t dev_id;
	uint16_t queue_id, len;
	uint64_t addr, data;
	uint16_t dev_path_len, pad;
	uint32_t reserved;
};

struct dev_info {
	uint16_t nr_hw_queues, queue_depth, state, pad0;
	uint32_t max_io_buf_bytes, dev_id;
	int32_t pid;
	uint32_t pad1;
	uint64_t flags, ublksrv_flags;
	uint32_t owner_uid, owner_gid;
	uint64_t reserved1, reserved2;
};

struct params {
	uint32_t len, types;
	uint32_t attrs;
	uint8_t logical_shift, physical_shift, opt_shift, min_shift;
	uint32_t max_sectors, chunk_sectors;
	uint64_t dev_sectors, virt_boundary;
	uint32_t discard_alignment, discard_granularity, max_discard, max_zeroes;
	uint16_t max_segments, pad;
	uint8_t rest[52];
};

struct io_cmd {
	uint16_t q_id, tag;
	int32_t result;
	uint64_t addr;
};

struct io_desc {
	uint32_t op_flags, sectors;
	uint64_t sector, addr;
};

struct client_cmd {
	uint64_t sector;
	uint32_t sectors, flags;
};

static int failures;

static void check_at(int line, const char *what, long got, long want)
{
	if (got != want) {
		printf("line %d: %s: %ld, expected %ld\n", line, what, got, want);
		failures++;
	}
}
#define check(got, want) check_at(__LINE__, #got, got, want)

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void block_io_uring(void)
{
	filter_io_uring(SECCOMP_RET_KILL_PROCESS, 1);
}

static void ring_open(struct ring *r, unsigned entries, unsigned flags)
{
	uint32_t p[30] = { 0 };

	p[2] = flags;
	r->fd = syscall(425, entries, p);
	if (r->fd < 0)
		die("io_uring_setup");
	r->shift = flags & SQE128 ? 7 : 6;
	r->rings_len = p[25] + p[1] * 16 > p[16] + p[0] * 4 ? p[25] + p[1] * 16 : p[16] + p[0] * 4;
	r->sqes_len = (size_t)p[0] << r->shift;
	r->rings = mmap(0, r->rings_len, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	r->sqes = mmap(0, r->sqes_len, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0x10000000);
	if (r->rings == MAP_FAILED || r->sqes == MAP_FAILED)
		die("mmap of a ring");
	r->sq_tail = (void *)(r->rings + p[11]);
	r->sq_mask = (void *)(r->rings + p[12]);
	r->sq_array = (void *)(r->rings + p[16]);
	r->cq_head = (void *)(r->rings + p[20]);
	r->cq_tail = (void *)(r->rings + p[21]);
	r->cq_mask = (void *)(r->rings + p[22]);
	r->cqes = (void *)(r->rings + p[25]);
	r->unsubmitted = 0;
}

static void ring_close(struct ring *r)
{
	munmap(r->rings, r->rings_len);
	munmap(r->sqes, r->sqes_len);
	close(r->fd);
}

/* The next SQE, to be filled in. */
static struct sqe *ring_sqe(struct ring *r)
{
	uint32_t slot = *r->sq_tail & *r->sq_mask;
	struct sqe *sqe = (void *)(r->sqes + ((size_t)slot << r->shift));

	memset(sqe, 0, (size_t)1 << r->shift);
	r->sq_array[slot] = slot;
	return sqe;
}

static void ring_push(struct ring *r)
{
	__atomic_store_n(r->sq_tail, *r->sq_tail + 1, __ATOMIC_RELEASE);
	r->unsubmitted++;
}

static int ring_enter(struct ring *r, unsigned wait)
{
	int n = syscall(426, r->fd, r->unsubmitted, wait, 1, 0, 0);

	if (n < 0 && errno != EINTR)
		die("io_uring_enter");
	if (n > 0)
		r->unsubmitted -= n;
	return n;
}

static int ring_next(struct ring *r, struct cqe *cqe)
{
	if (__atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE) == *r->cq_head)
		return 0;
	*cqe = r->cqes[*r->cq_head & *r->cq_mask];
	__atomic_store_n(r->cq_head, *r->cq_head + 1, __ATOMIC_RELEASE);
	return 1;
}

static struct cqe ring_wait(struct ring *r)
{
	struct cqe cqe;

	while (!ring_next(r, &cqe))
		ring_enter(r, 1);
	return cqe;
}

/* Control commands -------------------------------------------------------------------------- */

static int control_fd;
static struct ring control_ring;

static void control_open(void)
{
	control_fd = open("/dev/ublk-control", O_RDWR);
	if (control_fd < 0)
		die("/dev/ublk-control");
	ring_open(&control_ring, 4, SQE128);
}

static int control_op(uint32_t op, struct ctrl_cmd cmd)
{
	struct sqe *sqe = ring_sqe(&control_ring);

	sqe->opcode = URING_CMD;
	sqe->fd = control_fd;
	sqe->off = op;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
	ring_push(&control_ring);
	return ring_wait(&control_ring).res;
}

static int control(unsigned nr, void *payload, unsigned len, uint64_t data)
{
	return control_op(IOWR(nr, 32), (struct ctrl_cmd){ 0, 0xffff, len, ADDR(payload), data });
}

static int device_state(void)
{
	struct dev_info info = { 0 };
	int res = control(GET_DEV_INFO, &info, sizeof(info), 0);

	return res ? res : info.state;
}

static int add_device(uint64_t flags, unsigned depth)
{
	struct dev_info info = { .nr_hw_queues = 1, .queue_depth = depth, .max_io_buf_bytes = MAX_BYTES, .flags = flags };

	return control(ADD_DEV, &info, sizeof(info), 0);
}

static int set_params(void)
{
	struct params p = {
		.len = sizeof(p), .types = 3, .attrs = 4, .logical_shift = 9, .physical_shift = 12, .opt_shift = 12, .min_shift = 9,
		.max_sectors = MAX_BYTES / 512, .dev_sectors = DISK / 512, .discard_granularity = 4096, .max_discard = DISK / 512,
		.max_zeroes = DISK / 512, .max_segments = 1,
	};

	return control(SET_PARAMS, &p, sizeof(p), 0);
}

static int open_device(void)
{
	int fd = open("/dev/ublkc0", O_RDWR);

	/* The last close is asynchronous, as in the kernel. */
	for (int i = 0; fd < 0 && errno == EBUSY && i < 10000; i++) {
		usleep(1000);
		fd = open("/dev/ublkc0", O_RDWR);
	}
	if (fd < 0)
		die("/dev/ublkc0");
	return fd;
}

/* The server -------------------------------------------------------------------------------- */

static char *disk;

struct server {
	int device, null, uses_fixed;
	unsigned ring_flags, depth;
	uint64_t flags;
	/* Requests to answer before it dies; 0 for no limit. */
	unsigned life;
	struct ring ring;
	struct io_desc *descriptors;
	char *buffers[DEPTH * 8];
	unsigned seen, asked, armed;
	pthread_t thread;
};

static void io_command(struct server *s, unsigned nr, unsigned tag, int result, void *buffer)
{
	struct io_cmd cmd = { 0, tag, result, ADDR(buffer) };
	struct sqe *sqe = ring_sqe(&s->ring);

	sqe->opcode = URING_CMD;
	sqe->flags = s->uses_fixed ? FIXED_FILE : 0;
	sqe->fd = s->uses_fixed ? 0 : s->device;
	sqe->off = IOWR(nr, 16);
	sqe->user_data = tag;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
	ring_push(&s->ring);
	s->armed++;
}

/* Executes a request. Returns its result. */
static int carry_out(struct server *s, unsigned tag)
{
	struct io_desc *d = &s->descriptors[tag];
	unsigned len = d->sectors * 512;
	char *at = disk + d->sector * 512, *buffer = s->buffers[tag];

	switch (d->op_flags & 0xff) {
	case READ:
		if (s->flags & F_USER_COPY)
			return pwrite(s->device, at, len, SLOT(tag));
		if (!s->null)
			memcpy(buffer, at, len);
		return len;
	case WRITE:
		if (s->flags & F_USER_COPY)
			return pread(s->device, at, len, SLOT(tag));
		if (!s->null)
			memcpy(at, buffer, len);
		return len;
	case FLUSH:
		return 0;
	case DISCARD:
	case WRITE_ZEROES:
		memset(at, 0, len);
		return 0;
	}
	return -EOPNOTSUPP;
}

static void server_cqe(struct server *s, struct cqe cqe)
{
	unsigned tag = cqe.user_data;
	void *buffer = s->flags & F_USER_COPY ? 0 : s->buffers[tag];

	s->armed--;
	if (cqe.res == 1) {
		s->asked++;
		io_command(s, NEED_GET_DATA, tag, 0, buffer);
	} else if (cqe.res == 0) {
		s->seen++;
		io_command(s, COMMIT, tag, carry_out(s, tag), buffer);
	} else {
		check(cqe.res, -ENODEV);
	}
}

static void server_setup(struct server *s)
{
	size_t len = (s->depth * sizeof(struct io_desc) + 4095) & ~4095ul;

	ring_open(&s->ring, s->depth, s->ring_flags);
	s->descriptors = mmap(0, len, PROT_READ, MAP_SHARED, s->device, 0);
	if (s->descriptors == MAP_FAILED)
		die("mmap of the descriptors");
	if (s->uses_fixed && syscall(427, s->ring.fd, REGISTER_FILES, &s->device, 1))
		die("register files");
	for (unsigned tag = 0; tag < s->depth; tag++) {
		if (!s->buffers[tag])
			s->buffers[tag] = aligned_alloc(4096, MAX_BYTES);
		io_command(s, FETCH, tag, 0, s->flags & (F_USER_COPY | F_NEED_GET_DATA) ? 0 : s->buffers[tag]);
	}
}

static void *serve(void *arg)
{
	struct server *s = arg;
	struct cqe cqe;

	server_setup(s);
	while (s->armed && !(s->life && s->seen >= s->life)) {
		ring_enter(&s->ring, 1);
		while (ring_next(&s->ring, &cqe) && !(s->life && s->seen >= s->life))
			server_cqe(s, cqe);
	}
	/* Armed and unanswered commands are lost with the ring. */
	ring_close(&s->ring);
	munmap(s->descriptors, (s->depth * sizeof(struct io_desc) + 4095) & ~4095ul);
	close(s->device);
	return 0;
}

static void server_start(struct server *s)
{
	if (!disk)
		disk = mmap(0, DISK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	s->device = open_device();
	pthread_create(&s->thread, 0, serve, s);
}

/* The client -------------------------------------------------------------------------------- */

struct client {
	int fd;
	struct ring ring;
};

static void client_open(struct client *c, unsigned entries)
{
	c->fd = open("/dev/uringlet/ublkb0", O_RDWR);
	if (c->fd < 0)
		die("/dev/uringlet/ublkb0");
	ring_open(&c->ring, entries, 0);
}

static void client_close(struct client *c)
{
	close(c->fd);
	ring_close(&c->ring);
}

static void client_push(struct client *c, unsigned op, uint64_t sector, uint32_t sectors, void *buffer, uint64_t user_data)
{
	struct client_cmd cmd = { sector, sectors, 0 };
	struct sqe *sqe = ring_sqe(&c->ring);

	sqe->opcode = URING_CMD;
	sqe->fd = c->fd;
	sqe->off = IOWR(0x80 + op, 16);
	sqe->addr = ADDR(buffer);
	sqe->user_data = user_data;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
	ring_push(&c->ring);
}

static int client_run(struct client *c, unsigned op, uint64_t sector, uint32_t sectors, void *buffer)
{
	client_push(c, op, sector, sectors, buffer, 0);
	return ring_wait(&c->ring).res;
}
