/* CQEs of 32 bytes: on rings of them (CQE32) and among others (CQE_MIXED); every flag of NOP. */
#include "big_cqe.h"

enum { NOP_INJECT = 1, NOP_FILE = 2, NOP_FIXED_FILE = 4, NOP_FIXED_BUFFER = 8, NOP_TW = 16, NOP_CQE32 = 32 };
enum { MSG_RING = 40, PASS_FLAGS = 2, TIMEOUT = 11, SKIP_SUCCESS = 64, REGISTER_BUFFERS = 0 };
#define BIG(n) SQE(NOP, .op_flags = NOP_CQE32, .off = 1000 + (n), .addr = 2000 + (n), .user_data = n)
#define SMALL(n) SQE(NOP, .user_data = n)

/* The next CQE with its second half. */
static void big_cqe(const char *what, uint64_t user_data, int res, uint32_t flags, uint64_t extra1, uint64_t extra2)
{
	uint32_t at = *cq_head & *cq_mask;
	uint64_t *words = (uint64_t *)cqes + (at << (ring_flags & CQE32 ? 2 : 1));

	if (!comes(60000)) {
		check(what, -9999, res);
		return;
	}
	check(what, (int)words[0], (int)user_data);
	check(what, (int)words[1], res);
	check(what, words[1] >> 32, flags);
	check(what, words[2], extra1);
	check(what, words[3], extra2);
	__atomic_store_n(cq_head, *cq_head + (flags & F_32 ? 2 : 1), __ATOMIC_RELEASE);
}

static void small_cqe(const char *what, uint64_t user_data, int res, uint32_t flags)
{
	struct cqe *cqe = &cqes[*cq_head & *cq_mask];

	if (!comes(60000)) {
		check(what, -9999, res);
		return;
	}
	check(what, (int)cqe->user_data, (int)user_data);
	check(what, cqe->res, res);
	check(what, cqe->flags, flags);
	__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
}

static void big_ring(void)
{
	check("both at once", ring("both", CQE32 | CQE_MIXED, 0), -EINVAL);
	check("a ring", ring("32-byte CQEs", CQE32, 0), 0);
	push(BIG(1));
	push(SMALL(2));
	push(SQE(NOP, LINK, .op_flags = NOP_CQE32 | NOP_INJECT, .off = 7, .addr = 8, .len = -5, .user_data = 3));
	push(BIG(4));
	enter(4);
	big_cqe("with a second half", 1, 0, 0, 1001, 2001);
	big_cqe("without", 2, 0, 0, 0, 0);
	big_cqe("a failure", 3, -5, 0, 7, 8);
	big_cqe("cancelled", 4, -ECANCELED, 0, 0, 0);
	close(ring_fd);
	ring_fd = -1;
	check("a ring", ring("16-byte CQEs", 0, 0), 0);
	does("no second half here", SQE(NOP, .op_flags = NOP_CQE32), -EINVAL, 0);
}

/* A big CQE does not go around the end of the queue: a filler is skipped there. */
static void wrap(unsigned flags)
{
	unsigned i;

	check("a ring", ring("around the end", CQE_MIXED | flags, 64), 0);
	for (i = 0; i < 63; i++) {
		push(SMALL(i));
		enter(1);
		small_cqe("a small one", i, 0, 0);
	}
	push(BIG(63));
	push(SMALL(64));
	enter(2);
	small_cqe("the filler", 0, 0, F_SKIP);
	big_cqe("at the start", 63, 0, F_32, 1063, 2063);
	small_cqe("behind it", 64, 0, 0);
	check("tail", *cq_tail, 64 + 3);
}

/* The CQE at the head, after what overflowed before has moved up, and behind a filler. */
static void move_up(void)
{
	syscall(426, ring_fd, 0, 0, 1, 0, 0);
	if (*cq_head == __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) || cqes[*cq_head & *cq_mask].flags != F_SKIP)
		return;
	small_cqe("a filler", 0, 0, F_SKIP);
	syscall(426, ring_fd, 0, 0, 1, 0, 0);
}

/*
 * More than the queue holds: nothing is lost, and the order stays. With CQEs of both sizes Linux
 * 6.18 lets a small one overtake big ones, and overwrites the filler: there all are big.
 */
static void overflow(unsigned flags, int some_small)
{
	unsigned i, round;

	check("a ring", ring("overflow", CQE_MIXED | flags, 32), 0);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 24; i++)
			push(i % 3 || !some_small ? BIG(i) : SMALL(i));
		enter(24);
		for (i = 0; i < 24; i++) {
			move_up();
			if (i % 3 || !some_small)
				big_cqe("big", i, 0, F_32, 1000 + i, 2000 + i);
			else
				small_cqe("small", i, 0, 0);
		}
		check("nothing else", comes(0), 0);
	}
}

/* A big CQE needs two slots. */
static void smallest(void)
{
	uint32_t params[30] = { [1] = 1, [2] = CQE_MIXED | CQSIZE };

	section = "smallest";
	check("one slot", syscall(425, 1, params) < 0 ? -errno : 0, -EOVERFLOW);
	params[1] = 2;
	check("two slots", syscall(425, 1, params) > 2, 1);
}

static void mixed(void)
{
	uint64_t ts[2] = { 0, 1000000 };

	check("a ring", ring("mixed", CQE_MIXED, 0), 0);
	push(SMALL(1));
	push(BIG(2));
	push(SQE(NOP, SKIP_SUCCESS, .op_flags = NOP_CQE32, .user_data = 3));
	push(SQE(NOP, LINK, .op_flags = NOP_CQE32 | NOP_INJECT, .len = -7, .off = 1, .addr = 2, .user_data = 4));
	push(BIG(5));
	push(SQE(NOP, .op_flags = 64));
	enter(5);
	small_cqe("small", 1, 0, 0);
	big_cqe("big", 2, 0, F_32, 1002, 2002);
	big_cqe("failed", 4, -7, F_32, 1, 2);
	small_cqe("cancelled", 5, -ECANCELED, 0);
	enter(1);
	small_cqe("malformed", 0, -EINVAL, 0);
	push(SQE(TIMEOUT, LINK, .addr = ADDR(ts), .len = 1, .op_flags = 32, .user_data = 6));
	push(BIG(7));
	enter(2);
	small_cqe("a timeout", 6, -ETIME, 0);
	big_cqe("big behind it", 7, 0, F_32, 1007, 2007);
}

/* A message says how big its CQE is: two slots on a ring of both sizes, and one on any other. */
static void messages(unsigned flags)
{
	const int is_mixed = !!(flags & CQE_MIXED);
	uint32_t at;
	int i;

	check("a ring", ring(is_mixed ? "a big message" : "a big message to a ring of one size", flags, 32), 0);
	/* At each place of the queue, also where it wraps. */
	for (i = 0; i < 40; i++) {
		at = *cq_head;
		push(SQE(MSG_RING, SKIP_SUCCESS, .fd = ring_fd, .off = 100 + i, .len = 3, .op_flags = PASS_FLAGS, .file_index = F_32));
		enter(1);
		comes(60000);
		if (is_mixed && (at & *cq_mask) == *cq_mask)
			small_cqe("filler", 0, 0, F_SKIP);
		check("slots", *cq_tail - *cq_head, is_mixed ? 2 : 1);
		if (is_mixed)
			big_cqe("message", 100 + i, 3, F_32, 0, 0);
		else
			small_cqe("message", 100 + i, 3, F_32);
		push(SMALL(i));
		enter(1);
		small_cqe("behind it", i, 0, 0);
	}
}

static void nops(void)
{
	int files[2] = { 0, -1 };
	struct { void *at; uint64_t len; } buffer = { cqes, 64 };
	static const struct { const char *name; uint32_t flags; int fd, buf_index, res; } cases[] = {
		{ "injected", NOP_INJECT, 0, 0, 77 },
		{ "file", NOP_FILE, 0, 0, 0 },
		{ "closed file", NOP_FILE, 999, 0, -EBADF },
		{ "registered file", NOP_FILE | NOP_FIXED_FILE, 0, 0, 0 },
		{ "empty slot", NOP_FILE | NOP_FIXED_FILE, 1, 0, -EBADF },
		{ "beyond the table", NOP_FILE | NOP_FIXED_FILE, 2, 0, -EBADF },
		{ "a slot that is not asked for", NOP_FIXED_FILE, 2, 0, 0 },
		{ "buffer", NOP_FIXED_BUFFER, 0, 0, 0 },
		{ "no buffer", NOP_FIXED_BUFFER, 0, 1, -EFAULT },
		{ "file and buffer", NOP_INJECT | NOP_FILE | NOP_FIXED_FILE | NOP_FIXED_BUFFER, 0, 0, 77 },
		{ "task work", NOP_TW, 0, 0, 0 },
		{ "task work, injected", NOP_TW | NOP_INJECT, 0, 0, 77 },
		{ "unknown flag", 64, 0, 0, -EINVAL },
		{ "highest flag", 1u << 31, 0, 0, -EINVAL },
	};
	unsigned i;

	new_ring("NOP");
	check("registered", reg(REGISTER_FILES, files, 2), 0);
	buffer.at = malloc(64);
	check("registered", reg(REGISTER_BUFFERS, &buffer, 1), 0);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct sqe sqe = { NOP, .op_flags = cases[i].flags, .fd = cases[i].fd, .buf_index = cases[i].buf_index, .len = 77 };

		does(cases[i].name, sqe, cases[i].res, 0);
		sqe.flags = FORCE_ASYNC;
		does(cases[i].name, sqe, cases[i].res, 0);
	}
	submit_linked(SQE(NOP, LINK, .op_flags = NOP_INJECT, .len = -1), SQE(NOP));
	expect("a failure", -1, 0);
	expect("breaks the chain", -ECANCELED, 0);
}

int main(void)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	new_ring("start");
	big_ring();
	mixed();
	messages(0);
	messages(CQE_MIXED);
	messages(CQE_MIXED | SINGLE_ISSUER | DEFER_TASKRUN);
	wrap(0);
	wrap(SINGLE_ISSUER | DEFER_TASKRUN);
	overflow(0, 0);
	overflow(SINGLE_ISSUER | DEFER_TASKRUN, 0);
	if (getenv("BLOCK_IO_URING")) {
		overflow(0, 1);
		overflow(SINGLE_ISSUER | DEFER_TASKRUN, 1);
	}
	smallest();
	nops();
	return failures != 0;
}
