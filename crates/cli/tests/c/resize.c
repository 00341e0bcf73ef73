/*
 * Queues that are resized while they hold entries (IORING_REGISTER_RESIZE_RINGS), and what goes on
 * meanwhile: requests in flight, CQEs that overflowed, threads whose events complete requests.
 */
#include <pthread.h>
#include <sys/eventfd.h>
#include "kernel_release.h"
#include "net_ring.h"

enum { POLL_ADD = 6, TIMEOUT = 11, RESIZE = 33, ENABLE_RINGS = 12, REGISTER_EVENTFD = 4, REGISTER_RING_FDS = 20 };
enum {
	CQSIZE = 8, CLAMP = 16, R_DISABLED = 64, TASKRUN_FLAG = 512, SQE128 = 1 << 10, CQE32 = 1 << 11, SINGLE_ISSUER = 1 << 12,
	DEFER = 1 << 13 | SINGLE_ISSUER, NO_MMAP = 1 << 14, NO_SQARRAY = 1 << 16, CQE_MIXED = 1 << 18,
};
enum { GETEVENTS = 1, CQ_OVERFLOW = 2, POLL_MULTI = 1, NOP_CQE32 = 32, F_32 = 1 << 15 };
#define PAGE 4096

/* The fields of struct io_uring_params that are used here, by index. */
enum { P_SQ, P_CQ, P_FLAGS, P_FEATURES = 5, P_SQ_OFF = 10, P_ARRAY = 16, P_SQ_ADDR = 18, P_CQ_OFF = 20, P_CQES = 25, P_CQ_ADDR = 28 };

static uint32_t params[30];
static unsigned setup, sqe_shift, cqe_shift, sq_entries, cq_entries;
static size_t rings_len, sqes_len;
static void *own_memory;

static size_t pages(size_t len)
{
	return (len + PAGE - 1) & ~(size_t)(PAGE - 1);
}

static size_t array_offset(unsigned cq)
{
	return (64 + ((size_t)cq << cqe_shift) + 63) & ~(size_t)63;
}

static void lengths(unsigned sq, unsigned cq)
{
	rings_len = pages(array_offset(cq) + (setup & NO_SQARRAY ? 0 : sq * 4));
	sqes_len = pages((size_t)sq << sqe_shift);
}

/* The memory of a ring that supplies its own: fresh, so that nothing is found there by chance. */
static void give_memory(uint32_t *p, unsigned sq, unsigned cq)
{
	uint64_t at;

	lengths(sq, cq);
	own_memory = mmap(0, rings_len + sqes_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	at = ADDR(own_memory);
	memcpy(&p[P_CQ_ADDR], &at, 8);
	at += rings_len;
	memcpy(&p[P_SQ_ADDR], &at, 8);
}

static void point(unsigned sq, unsigned cq)
{
	unsigned i;

	sq_entries = sq, cq_entries = cq;
	lengths(sq, cq);
	if (setup & NO_MMAP) {
		rings = own_memory;
		sqes = (void *)(rings + rings_len);
	} else {
		rings = mmap(0, rings_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_fd, 0);
		sqes = mmap(0, sqes_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_fd, 0x10000000);
	}
	if (rings == MAP_FAILED || sqes == MAP_FAILED) {
		printf("%s: mmap: %s\n", section, strerror(errno));
		exit(1);
	}
	sq_tail = (void *)(rings + params[P_SQ_OFF + 1]);
	sq_mask = (void *)(rings + params[P_SQ_OFF + 2]);
	cq_head = (void *)(rings + params[P_CQ_OFF]);
	cq_tail = (void *)(rings + params[P_CQ_OFF + 1]);
	cq_mask = (void *)(rings + params[P_CQ_OFF + 2]);
	cqes = (void *)(rings + params[P_CQES]);
	sq_array = setup & NO_SQARRAY ? 0 : (void *)(rings + array_offset(cq));
	for (i = 0; sq_array && i < sq; i++)
		sq_array[i] = i;
}

static void leave(void)
{
	munmap(rings, rings_len);
	munmap(sqes, sqes_len);
}

static void ring(const char *name, unsigned flags, unsigned sq, unsigned cq)
{
	section = name;
	setup = flags;
	sqe_shift = flags & SQE128 ? 7 : 6;
	cqe_shift = flags & CQE32 ? 5 : 4;
	if (ring_fd >= 0) {
		close(ring_fd);
		leave();
	}
	memset(params, 0, sizeof(params));
	params[P_FLAGS] = flags | CQSIZE;
	params[P_CQ] = cq;
	if (flags & NO_MMAP)
		give_memory(params, sq, cq);
	ring_fd = syscall(425, sq, params);
	if (ring_fd < 0) {
		fprintf(stderr, "%s: no ring: %s\n", name, strerror(errno));
		exit(errno == EINVAL ? 1 : 77);
	}
	point(sq, cq);
}

static int resize_to(unsigned flags, unsigned sq, unsigned cq)
{
	uint32_t p[30] = { sq, cq, flags };
	void *before = own_memory;
	int r;

	if (setup & NO_MMAP)
		give_memory(p, sq, cq);
	r = reg(RESIZE, p, 1);
	lengths(sq_entries, cq_entries);
	if (r) {
		own_memory = before;
		return r;
	}
	check("SQ entries", p[P_SQ], sq);
	check("CQ entries", p[P_CQ], cq);
	check("inherited flags", p[P_FLAGS], flags | (setup & (SQE128 | CQE32 | NO_MMAP | NO_SQARRAY | CQE_MIXED)));
	check("the SQ's words", memcmp(&p[P_SQ_OFF], &params[P_SQ_OFF], 24), 0);
	/* Linux 6.18 does not tell it. */
	if (p[P_ARRAY])
		check("the array", p[P_ARRAY], setup & NO_SQARRAY ? 0 : array_offset(cq));
	check("the CQ's words", memcmp(&p[P_CQ_OFF], &params[P_CQ_OFF], 28), 0);
	leave();
	point(sq, cq);
	check("SQ mask", *sq_mask, sq - 1);
	check("CQ mask", *cq_mask, cq - 1);
	check("SQ size", *(uint32_t *)(rings + params[P_SQ_OFF + 3]), sq);
	check("CQ size", *(uint32_t *)(rings + params[P_CQ_OFF + 3]), cq);
	return 0;
}

static int resize(unsigned sq, unsigned cq)
{
	return resize_to(CQSIZE, sq, cq);
}

/* An SQE; with 128 bytes the second half says which one. */
static void put(struct sqe sqe)
{
	uint32_t tail = *sq_tail;
	char *at = (char *)sqes + ((size_t)(tail & *sq_mask) << sqe_shift);

	memcpy(at, &sqe, sizeof(sqe));
	if (sqe_shift == 7)
		memset(at + 64, 0x5a, 64);
	__atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
}

static int go(unsigned n)
{
	int r = syscall(426, ring_fd, n, 0, GETEVENTS, 0, 0);

	return r < 0 ? -errno : r;
}

/* A CQE that is there or comes; its user_data, or -1. */
static int64_t take(void)
{
	struct cqe cqe;

	if (!comes(60000))
		return -1;
	memcpy(&cqe, (char *)cqes + ((size_t)(*cq_head & *cq_mask) << cqe_shift), sizeof(cqe));
	__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
	last_flags = cqe.flags;
	check("a result", cqe.res < 0 && cqe.res != -ETIME, 0);
	return cqe.user_data;
}

/* CQEs with user_data from up to below to, in this order, and no other one. */
static void take_all(const char *what, unsigned from, unsigned to)
{
	for (; from < to; from++)
		check(what, take(), from);
	check(what, *cq_tail - *cq_head, 0);
}

static void nops(unsigned from, unsigned to)
{
	for (; from < to; from++)
		put(SQE(NOP, .user_data = from));
}

/* Moves heads and tails on, so that what follows lies around the end of the queues. */
static void advance(unsigned n)
{
	while (n--) {
		nops(0, 1);
		check("advance", go(1), 1);
		check("advance", take(), 0);
	}
}

static void *from_elsewhere(void *arg)
{
	uint32_t p[30] = { 8, 16, CQSIZE };

	*(int *)arg = reg(RESIZE, p, 1);
	return 0;
}

static int refused(unsigned flags, unsigned sq, unsigned cq)
{
	uint32_t p[30] = { sq, cq, flags };

	return reg(RESIZE, p, 1);
}

static void errors(void)
{
	uint32_t p[30] = { 8, 16, CQSIZE };
	pthread_t thread;
	int r = 0;

	ring("without DEFER_TASKRUN", SINGLE_ISSUER, 4, 8);
	check("resize", refused(CQSIZE, 8, 16), -EINVAL);
	ring("disabled", DEFER | R_DISABLED, 4, 8);
	check("resize", resize(8, 16), 0);
	check("enabled", reg(ENABLE_RINGS, 0, 0), 0);
	advance(20);
	ring("errors", DEFER, 4, 8);
	check("no argument", reg(RESIZE, 0, 1), -EINVAL);
	check("none", reg(RESIZE, p, 0), -EINVAL);
	check("two", reg(RESIZE, p, 2), -EINVAL);
	check("bad address", reg(RESIZE, (void *)8, 1), -EFAULT);
	for (r = 0; r < 32; r++)
		if (r != 3 && r != 4)
			check("a flag", refused(CQSIZE | 1u << r, 8, 16), -EINVAL);
	check("no entries", refused(CQSIZE, 0, 16), -EINVAL);
	check("no CQ entries", refused(CQSIZE, 8, 0), -EINVAL);
	check("a smaller CQ", refused(CQSIZE, 16, 8), -EINVAL);
	check("too many", refused(0, 32769, 0), -EINVAL);
	check("too many for the CQ", refused(CQSIZE, 8, 65537), -EINVAL);
	check("another thread", pthread_create(&thread, 0, from_elsewhere, &r), 0);
	pthread_join(thread, 0);
	check("is not the issuer", r, -EEXIST);
	take_all("nothing changed", 0, 0);
	advance(5);
	check("the same sizes", resize(4, 8), 0);
	advance(5);
	check("rounded", refused(CQSIZE, 3, 7), 0);
	leave();
	point(4, 8);
	advance(5);
	p[3] = p[4] = p[7] = p[8] = p[9] = 99;
	check("other fields are ignored", reg(RESIZE, p, 1), 0);
	check("and kept", p[3] + p[4] + p[7] + p[8] + p[9], 5 * 99);
}

static void clamped(void)
{
	uint32_t p[30] = { 99999, 0, CLAMP }, q[30] = { 5 };

	ring("clamped", DEFER, 4, 8);
	check("too many", reg(RESIZE, p, 1), 0);
	check("entries", p[P_SQ], 32768);
	check("CQ entries", p[P_CQ], 65536);
	leave();
	point(32768, 65536);
	advance(3);
	check("without CQSIZE", reg(RESIZE, q, 1), 0);
	check("rounded", q[P_SQ], 8);
	check("twice", q[P_CQ], 16);
	leave();
	point(8, 16);
	advance(20);
}

/* Each size to each other one, with entries in both queues, from each position. */
static void entries(const char *name, unsigned flags)
{
	static const unsigned sizes[] = { 2, 4, 8, 64, 256 };
	unsigned a, b, at;

	ring(name, DEFER | flags, 4, 8);
	for (a = 0; a < 5; a++)
		for (b = 0; b < 5; b++)
			for (at = 0; at < 5; at++) {
				check("from", resize(sizes[a], 2 * sizes[a]), 0);
				advance(at);
				nops(1, 3);
				check("submitted", go(2), 2);
				nops(3, 5);
				check("to", resize(sizes[b], 2 * sizes[b]), 0);
				check("CQEs", *cq_tail - *cq_head, 2);
				check("SQEs", *sq_tail - *(uint32_t *)rings, 2);
				check("the pending ones", go(2), 2);
				take_all("in order", 1, 5);
			}
}

static void too_small(unsigned flags)
{
	ring("too small", DEFER | flags, 16, 32);
	advance(7);
	nops(0, 5);
	check("five SQEs", resize(4, 16), -EOVERFLOW);
	check("submitted", go(5), 5);
	nops(5, 7);
	check("five CQEs", resize(4, 4), -EOVERFLOW);
	check("the rest", go(2), 2);
	take_all("nothing is lost", 0, 7);
	check("now they fit", resize(4, 4), 0);
	advance(9);
}

/* More CQEs than the queue holds: those that wait come in order, however it is resized. */
static void overflow(const char *name, unsigned flags, unsigned to)
{
	uint32_t *sq_flags;
	unsigned i;

	ring(name, DEFER | flags, 4, 4);
	advance(3);
	for (i = 0; i < 12; i += 4) {
		nops(i, i + 4);
		check("submitted", go(4), 4);
	}
	sq_flags = (void *)(rings + params[P_SQ_OFF + 4]);
	check("overflowed", !!(*sq_flags & CQ_OVERFLOW), 1);
	nops(12, 14);
	check("resized", resize(4, to), 0);
	sq_flags = (void *)(rings + params[P_SQ_OFF + 4]);
	check("still overflowed", !!(*sq_flags & CQ_OVERFLOW), 1);
	check("pending", go(2), 2);
	take_all("in order", 0, 14);
	go(0);
	check("no more", !!(*sq_flags & CQ_OVERFLOW), 0);
}

static void armed(void)
{
	uint64_t one = 1;
	int event = eventfd(0, EFD_NONBLOCK), pipes[2], i, late[2];
	char byte;
	int64_t ts[2] = { 0, 30000000 };

	ring("armed", DEFER, 4, 8);
	check("pipes", pipe(pipes) + pipe(late), 0);
	put(SQE(POLL_ADD, .fd = event, .len = POLL_MULTI, .op_flags = POLLIN, .user_data = 1));
	put(SQE(READ, .fd = pipes[0], .addr = ADDR(&byte), .len = 1, .user_data = 2));
	put(SQE(READ, .flags = FORCE_ASYNC, .fd = late[0], .addr = ADDR(&byte), .len = 1, .user_data = 4));
	check("submitted", go(3), 3);
	for (i = 0; i < 4; i++) {
		check("resized", resize(4 << i, 8 << i), 0);
		check("an event", write(event, &one, 8), 8);
		check("the poll", take(), 1);
		check("goes on", last_flags & F_MORE, F_MORE);
		check("read", read(event, &one, 8), 8);
	}
	check("an event", write(event, &one, 8), 8);
	check("resized", resize(2, 2), 0);
	check("the poll's event", take(), 1);
	/* A multishot one with one shot: on a busy machine a second could come at any time. */
	put(SQE(TIMEOUT, .addr = ADDR(ts), .len = 1, .off = 1, .op_flags = 64, .user_data = 3));
	check("submitted", go(1), 1);
	check("resized", resize(2, 4), 0);
	check("the time-out", take(), 3);
	check("resized", resize(4, 4), 0);
	check("a byte", write(pipes[1], "x", 1), 1);
	check("read", take(), 2);
	check("resized", resize(64, 128), 0);
	check("a byte", write(late[1], "x", 1), 1);
	check("read by a worker", take(), 4);
	take_all("nothing else", 0, 0);
}

/* The ring's descriptor and a registered eventfd tell of CQEs as before. */
static void told(void)
{
	int event = eventfd(0, EFD_NONBLOCK);
	struct pollfd fds = { .events = POLLIN };
	uint64_t counted = 0;
	uint32_t p[30] = { 32, 32, CQSIZE };

	ring("told", DEFER, 4, 8);
	fds.fd = ring_fd;
	check("eventfd", reg(REGISTER_EVENTFD, &event, 1), 0);
	check("quiet", poll(&fds, 1, 0), 0);
	check("resized", resize(8, 16), 0);
	check("still quiet", poll(&fds, 1, 0), 0);
	nops(7, 8);
	check("submitted", go(1), 1);
	check("counted", read(event, &counted, 8), 8);
	check("readable", poll(&fds, 1, 1000), 1);
	check("resized", resize(16, 16), 0);
	check("still readable", poll(&fds, 1, 0), 1);
	take_all("the CQE", 7, 8);
	check("not any more", poll(&fds, 1, 0), 0);
	check("registered number", syscall(427, ring_fd, REGISTER_RING_FDS, (uint32_t[]){ 0, 0, ring_fd, 0 }, 1), 1);
	check("resized by it", syscall(427, 0, RESIZE | 1u << 31, p, 1), 0);
	leave();
	point(32, 32);
	advance(40);
}

static void own_pages(void)
{
	uint32_t p[30] = { 8, 16, CQSIZE };
	uint64_t at;

	entries("own memory", NO_MMAP);
	ring("own memory's errors", DEFER | NO_MMAP, 4, 8);
	check("no memory", reg(RESIZE, p, 1), -EFAULT);
	at = ADDR(own_memory) + 8;
	memcpy(&p[P_CQ_ADDR], &at, 8);
	memcpy(&p[P_SQ_ADDR], &at, 8);
	check("beside a page", reg(RESIZE, p, 1), -EINVAL);
	check("no map", mmap(0, PAGE, PROT_READ, MAP_SHARED, ring_fd, 0) == MAP_FAILED ? errno : 0, ENOMEM);
	advance(9);
	overflow("own memory's overflow", NO_MMAP, 8);
}

/* Bytes that other threads write, and a worker's reads of them, while the queues change. */
enum { WRITERS = 2, BYTES = 500 };

static void *write_bytes(void *arg)
{
	int i;

	for (i = 0; i < BYTES; i++)
		if (write(*(int *)arg, "x", 1) != 1)
			abort();
	return 0;
}

static void under_load(const char *name, unsigned flags)
{
	int pipes[WRITERS][2], i, armed_reads[WRITERS], got[WRITERS] = { 0 }, round = 0, done = 0, full = 0;
	char byte[WRITERS];
	pthread_t threads[WRITERS];
	int64_t which;

	ring(name, DEFER | flags, 4, 8);
	for (i = 0; i < WRITERS; i++) {
		check("pipe", pipe(pipes[i]), 0);
		check("thread", pthread_create(&threads[i], 0, write_bytes, &pipes[i][1]), 0);
		armed_reads[i] = 0;
	}
	while (done < WRITERS * BYTES) {
		for (i = 0; i < WRITERS; i++)
			if (!armed_reads[i] && got[i] < BYTES) {
				/* A worker's read and one that waits for its pipe, in turn. */
				put(SQE(READ, .flags = got[i] % 2 ? FORCE_ASYNC : 0, .fd = pipes[i][0], .addr = ADDR(&byte[i]), .len = 1, .user_data = i));
				armed_reads[i] = 1;
			}
		if (resize(2u << round % 5, 64u << round % 3))
			full++;
		round++;
		go(*sq_tail - *(uint32_t *)rings);
		if (resize(4u << round % 3, 16u << round % 4))
			full++;
		which = take();
		if (which < 0 || which >= WRITERS) {
			check("a known request", which, 0);
			break;
		}
		armed_reads[which] = 0;
		got[which]++;
		done++;
	}
	check("room", full, 0);
	check("all bytes", done, WRITERS * BYTES);
	for (i = 0; i < WRITERS; i++)
		pthread_join(threads[i], 0);
	take_all("nothing else", 0, 0);
}

/*
 * The second half of each entry comes along. Linux 6.18 takes entries of 32 and 128 bytes for ones
 * of 16 and 64, and loses some: nothing to compare with.
 */
static void big_entries(void)
{
	uint64_t *last;
	int i;

	entries("32 bytes", CQE32);
	entries("all big", SQE128 | CQE32 | NO_SQARRAY);
	too_small(CQE32 | SQE128);
	overflow("overflow, CQE32", CQE32, 16);
	ring("second halves", DEFER | SQE128 | CQE32, 4, 8);
	for (i = 0; i < 3; i++)
		put(SQE(NOP, .user_data = i, .op_flags = NOP_CQE32, .off = 7, .addr = 9));
	check("resized", resize(16, 16), 0);
	for (i = 0; i < 3; i++)
		check("pending", *((uint8_t *)sqes + ((i + 1) << 7) - 1), 0x5a);
	check("submitted", go(3), 3);
	check("resized", resize(8, 8), 0);
	for (i = 0; i < 3; i++) {
		last = (uint64_t *)cqes + 4 * (*cq_head & *cq_mask) + 2;
		check("first extra word", last[0], 7);
		check("second", last[1], 9);
		check("whose", take(), i);
	}
}

/* Big CQEs among small ones are not torn: a queue is refused if one would go around its end. */
static void mixed(void)
{
	int i;

	ring("both sizes", DEFER | CQE_MIXED, 8, 16);
	advance(3);
	put(SQE(NOP, .user_data = 1, .op_flags = NOP_CQE32, .off = 7, .addr = 9));
	nops(2, 3);
	check("submitted", go(2), 2);
	check("around the end", resize(2, 4), -EOVERFLOW);
	check("larger", resize(32, 64), 0);
	check("smaller", resize(4, 8), 0);
	for (i = 0; i < 2; i++) {
		check("whose", take(), 1 + i);
		if (last_flags & F_32) {
			check("first extra word", ((uint64_t *)&cqes[*cq_head & *cq_mask])[0], 7);
			__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
		}
	}
}

int main(void)
{
	int is_engine = getenv("BLOCK_IO_URING") != 0;

	setvbuf(stdout, 0, _IOLBF, 0);
	if (is_engine)
		block_io_uring();
	errors();
	clamped();
	entries("16 and 64 bytes", 0);
	entries("no array", NO_SQARRAY);
	entries("128 bytes", SQE128);
	own_pages();
	too_small(0);
	overflow("overflow, larger", 0, 8);
	overflow("overflow, larger than all", 0, 64);
	armed();
	told();
	if (is_engine)
		big_entries(), mixed();
	under_load("under load", 0);
	under_load("under load, with a flag", TASKRUN_FLAG);
	return failures != 0;
}
