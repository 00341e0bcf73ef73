/*
 * SQEs of 128 bytes among others (SQE_MIXED) and a queue that starts anew with each submission
 * (SQ_REWIND), which Linux 6.19 and 7.0 brought; what QUERY tells, since Linux 6.18.
 */
#include "kernel_release.h"
#include "net_ring.h"

enum { SQPOLL = 2, CQSIZE = 8, SUBMIT_ALL = 128, SQE128 = 1 << 10, NO_SQARRAY = 1 << 16, CQE_MIXED = 1 << 18, SQE_MIXED = 1 << 19, SQ_REWIND = 1 << 20 };
enum { URING_CMD = 46, NOP128 = 63, URING_CMD128 = 64 };
enum { PROBE = 8, QUERY = 35, OPCODES = 0, LAYOUT = 2 };

struct hdr {
	uint64_t next, data;
	uint32_t op, size;
	int32_t result;
	uint32_t resv[3];
};

/* 0, or the errno of setup. */
static int ring(const char *name, unsigned flags)
{
	uint32_t params[30] = { [2] = flags };
	int probe = syscall(425, 32, params);

	if (probe < 0)
		return -errno;
	close(probe);
	if (ring_fd >= 0)
		close(ring_fd);
	memset(params, 0, sizeof(params));
	params[2] = flags;
	open_ring(name, params);
	return 0;
}

static void push_second_half(void)
{
	uint32_t tail = *sq_tail, slot = tail & *sq_mask;

	memset(&sqes[slot], 0xff, sizeof(struct sqe));
	sq_array[slot] = slot;
	__atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
}

static int submit_n(unsigned n)
{
	return syscall(426, ring_fd, n, 0, 1, 0, 0);
}

static void wide(void)
{
	unsigned i, on = *sq_mask + 1;
	int devnull;

	check("both", ring("both sizes", SQE_MIXED | SQE128), -EINVAL);
	check("a ring", ring("mixed SQEs", SQE_MIXED), 0);
	push(SQE(NOP, .user_data = 1));
	push(SQE(NOP128, .user_data = 2));
	push_second_half();
	push(SQE(NOP, .user_data = 3));
	check("a wide one counts twice", submit_n(4), 4);
	for (i = 0; i < 3; i++)
		expect("each completes", 0, 0);
	nothing_comes("its second half is no request");
	push(SQE(NOP128));
	check("half a request", submit_n(1), 1);
	expect("is malformed", -EINVAL, 0);
	/* The two entries must not be around the end. */
	while ((*sq_tail & *sq_mask) != *sq_mask) {
		push(SQE(NOP));
		check("one", submit_n(1), 1);
		expect("up to the end", 0, 0);
	}
	push(SQE(NOP128));
	push(SQE(NOP));
	check("around the end", submit_n(2), 1);
	expect("malformed", -EINVAL, 0);
	check("the next", submit_n(1), 1);
	expect("is a request of its own", 0, 0);
	push(SQE(NOP128, LINK, .op_flags = 1, .len = -3));
	push_second_half();
	push(SQE(NOP));
	check("a chain", submit_n(3), 3);
	expect("injected", -3, 0);
	expect("cancelled", -ECANCELED, 0);
	/* The flags word is unknown: the request is refused, and takes its two entries all the same. */
	push(SQE(NOP128, .op_flags = 1u << 31));
	push_second_half();
	push(SQE(NOP));
	check("a malformed wide one", submit_n(3), 2);
	expect("refused", -EINVAL, 0);
	check("behind it", submit_n(1), 1);
	expect("goes on", 0, 0);
	devnull = open("/dev/null", O_RDWR);
	push(SQE(URING_CMD128, .fd = devnull));
	push_second_half();
	push(SQE(URING_CMD, .fd = devnull));
	check("commands", submit_n(3), 3);
	expect("wide command", 0, 0);
	expect("command", 0, 0);
	close(devnull);
}

static void elsewhere(void)
{
	check("a ring", ring("64 bytes", 0), 0);
	does("no wide request", SQE(NOP128), -EINVAL, 0);
	does("no wide command", SQE(URING_CMD128, .fd = 1), -EINVAL, 0);
}

static void rewind_queue(void)
{
	unsigned round, i;

	check("with an array", ring("rewind", SQ_REWIND), -EINVAL);
	check("with a thread", ring("rewind", SQ_REWIND | NO_SQARRAY | SQPOLL), -EINVAL);
	check("a ring", ring("rewind", SQ_REWIND | NO_SQARRAY), 0);
	for (round = 0; round < 5; round++) {
		for (i = 0; i < 3; i++)
			sqes[i] = SQE(NOP, .op_flags = 1, .len = 10 * round + i);
		check("submitted", submit_n(3), 3);
		for (i = 0; i < 3; i++)
			expect("from the first entry", 10 * round + i, 0);
	}
	for (i = 0; i <= *sq_mask; i++)
		sqes[i] = SQE(NOP);
	check("no more than there are", submit_n(1000), *sq_mask + 1);
	for (i = 0; i <= *sq_mask; i++)
		expect("each", 0, 0);
	check("head and tail stay", *sq_tail | *(uint32_t *)rings, 0);
}

static int query(struct hdr *hdr)
{
	return syscall(427, -1, QUERY, hdr, 0) < 0 ? -errno : 0;
}

static void queries(void)
{
	struct { uint32_t opcodes, registers; uint64_t features, setup, enter, sqe; uint32_t queries, pad; uint64_t behind; } told;
	uint64_t layout[2];
	struct hdr hdr = { .data = ADDR(&told), .size = sizeof(told) }, last = { .op = 99, .data = ADDR(&told), .size = 48 };
	uint32_t params[30] = { 0 };
	int known = has_since(6, 19);

	new_ring("query");
	memset(&told, 0xee, sizeof(told));
	check("without a ring", query(&hdr), 0);
	check("result", hdr.result, 0);
	check("size", hdr.size, 48);
	check("cleared behind", told.behind != 0, 0);
	check("opcodes", told.opcodes >= 63 && told.opcodes < 256, 1);
	check("register operations", told.registers >= 36 && told.registers < 256, 1);
	close(syscall(425, 1, params));
	check("features", told.features == params[5], 1);
	check("setup flags", (told.setup & (1 << 18 | 0x1ffff)) == (1 << 18 | 0x1ffff), 1);
	check("SQE flags", told.sqe, 127);
	check("queries", told.queries >= 1, 1);
	hdr.size = 4;
	memset(&told, 0xee, sizeof(told));
	check("the beginning", query(&hdr), 0);
	check("its size", hdr.size, 4);
	check("no more", told.registers, 0xeeeeeeee);
	check("on a ring", reg(QUERY, &hdr, 0), 0);
	check("on a file", syscall(427, 1, QUERY, &hdr, 0) < 0 ? -errno : 0, -EOPNOTSUPP);
	hdr = (struct hdr){ .data = ADDR(&told), .size = 48, .next = ADDR(&last) };
	check("a list", query(&hdr), 0);
	check("unknown", last.result, -EOPNOTSUPP);
	check("without an answer", last.size, 0);
	hdr = (struct hdr){ .data = ADDR(&told), .size = 48, .next = ADDR(&hdr) };
	last = hdr;
	check("a circle", query(&hdr), -ERANGE);
	hdr = (struct hdr){ .data = ADDR(&told), .size = 48, .resv[2] = 1 };
	check("reserved", query(&hdr), 0);
	check("field", hdr.result, -EINVAL);
	hdr = (struct hdr){ .data = ADDR(&told), .size = 48, .result = 1 };
	check("a result", query(&hdr), 0);
	check("already", hdr.result, -EINVAL);
	hdr = (struct hdr){ .data = ADDR(&told) };
	check("no room", query(&hdr), 0);
	check("no answer", hdr.result, -EINVAL);
	hdr = (struct hdr){ .data = 8, .size = 48 };
	check("bad data", query(&hdr), -EFAULT);
	check("bad header", syscall(427, -1, QUERY, 8, 0) < 0 ? -errno : 0, -EFAULT);
	check("an argument", syscall(427, -1, QUERY, &hdr, 1) < 0 ? -errno : 0, -EINVAL);
	check("nothing", syscall(427, -1, QUERY, 0, 0), 0);
	check("another operation", syscall(427, -1, PROBE, &told, 0) < 0 ? -errno : 0, -EINVAL);
	hdr = (struct hdr){ .op = LAYOUT, .data = ADDR(layout), .size = sizeof(layout) };
	check("the layout", query(&hdr), 0);
	check("of the queues", hdr.result, known ? 0 : -EOPNOTSUPP);
	check("header", known && (layout[0] != 64 || layout[1] != 64), 0);
}

int main(void)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	queries();
	elsewhere();
	if (has_since(6, 19))
		wide();
	if (has_since(7, 0))
		rewind_queue();
	return failures != 0;
}
