/*
 * What Linux 6.12 to 7.2 brought beside new opcodes: cloned buffers, time-outs in the SQE itself,
 * own user_data for the notification of a zero-copy send, incremental buffers that end early,
 * registered buffers for SEND and RECV.
 */
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include "kernel_release.h"
#include "net_ring.h"

enum { TIMEOUT = 11, LINK_TIMEOUT = 15, READ_FIXED = 4, SEND_ZC = 47 };
enum { ABS = 1, UPDATE = 2, ETIME_SUCCESS = 32, IMMEDIATE = 128, TIMEOUT_REMOVE = 12 };
enum { BUFFERS = 0, UNREGISTER_BUFFERS = 1, BUFFERS2 = 15, BUFFERS_UPDATE = 16, RING_FDS = 20, CLONE = 30 };
enum { SRC_REGISTERED = 1, DST_REPLACE = 2, FIXED_BUF = 4, PBUF_INC = 2, F_NOTIF = 8, SINGLE_ISSUER = 1 << 12 };

struct clone {
	uint32_t fd, flags, src_off, dst_off, nr, pad[3];
};

static char memory[8][64] __attribute__((aligned(64)));

static int clone_from(int fd, unsigned flags, unsigned src_off, unsigned dst_off, unsigned nr)
{
	struct clone spec = { fd, flags, src_off, dst_off, nr };

	return reg(CLONE, &spec, 1);
}

/* A ring beside the current one, with `n` buffers; slot 1 is empty. */
static int source(int n, int flags)
{
	struct { uint64_t at, len; } vec[8];
	uint32_t params[30] = { [2] = flags };
	int fd = syscall(425, 8, params), i;

	for (i = 0; i < n; i++) {
		vec[i].at = i == 1 ? 0 : ADDR(memory[i]);
		vec[i].len = i == 1 ? 0 : 64;
	}
	if (n)
		check("the source's buffers", syscall(427, fd, BUFFERS, vec, n), 0);
	return fd;
}

/* Reads a byte into a registered buffer: 1, or an error. */
static int reads(int index, void *at)
{
	static int zero = -1;

	if (zero < 0)
		zero = open("/dev/zero", O_RDONLY);
	return run(SQE(READ_FIXED, .fd = zero, .addr = ADDR(at), .len = 1, .buf_index = index));
}

/* How long the table is: an update of the slot behind it is refused. */
static int slots(void)
{
	struct { uint64_t at, len; } vec = { 0, 0 };
	struct { uint32_t offset, resv; uint64_t data, tags; uint32_t nr, resv2; } update = { 0, 0, ADDR(&vec), 0, 1 };
	int n;

	for (n = 0; n < 100; n++) {
		update.offset = n;
		/* An update would empty the slot: so none is named. */
		update.data = 8;
		if (reg(BUFFERS_UPDATE, &update, sizeof(update)) != -EFAULT)
			break;
	}
	return n;
}

static void *clone_elsewhere(void *arg)
{
	uint32_t params[30] = { 0 };
	int fd = syscall(425, 8, params);
	struct clone spec = { *(int *)arg };

	check("another thread's", syscall(427, fd, CLONE, &spec, 1) < 0 ? -errno : 0, -EEXIST);
	close(fd);
	return 0;
}

static void clones(void)
{
	struct clone spec = { 0 };
	int from = source(4, 0), none = source(0, 0), single = source(2, SINGLE_ISSUER);
	pthread_t thread;

	new_ring("clone");
	check("no argument", reg(CLONE, 0, 1), -EINVAL);
	check("two arguments", reg(CLONE, &spec, 2), -EINVAL);
	check("bad address", reg(CLONE, (void *)8, 1), -EFAULT);
	check("unknown flag", clone_from(from, 4, 0, 0, 0), -EINVAL);
	spec = (struct clone){ from, .pad[2] = 1 };
	check("padding", reg(CLONE, &spec, 1), -EINVAL);
	check("no descriptor", clone_from(999, 0, 0, 0, 0), -EBADF);
	check("no ring", clone_from(1, 0, 0, 0, 0), -EOPNOTSUPP);
	check("not registered", clone_from(3, SRC_REGISTERED, 0, 0, 0), -EBADF);
	check("no buffers", clone_from(none, 0, 0, 0, 0), -ENXIO);
	check("none of its own", clone_from(ring_fd, 0, 0, 0, 0), -ENXIO);
	check("an offset without a number", clone_from(from, 0, 1, 0, 0), -EINVAL);
	check("a place without a number", clone_from(from, 0, 0, 1, 0), -EINVAL);
	check("too many", clone_from(from, 0, 0, 0, 5), -EINVAL);
	check("beyond the end", clone_from(from, 0, 2, 0, 3), -EOVERFLOW);
	check("far beyond the end", clone_from(from, 0, -1, 0, 2), -EOVERFLOW);
	check("too far", clone_from(from, 0, 0, -1, 2), -EOVERFLOW);
	check("more than a table has", clone_from(from, 0, 0, 16383, 2), -EINVAL);
	check("all", clone_from(from, 0, 0, 0, 0), 0);
	check("as many", slots(), 4);
	check("a buffer", reads(0, memory[0]), 1);
	check("an empty slot", reads(1, memory[1]), -EFAULT);
	check("the last", reads(3, memory[3] + 63), 1);
	check("another's range", reads(3, memory[2]), -EFAULT);
	check("there are some", clone_from(from, 0, 0, 0, 0), -EBUSY);
	check("the source is closed", close(from), 0);
	check("still there", reads(0, memory[0]), 1);
	check("given up", reg(UNREGISTER_BUFFERS, 0, 0), 0);
	check("gone", reads(0, memory[0]), -EFAULT);

	from = source(4, 0);
	check("a part", clone_from(from, 0, 2, 3, 2), 0);
	check("its place", reads(3, memory[2]), 1);
	check("and the next", reads(4, memory[3]), 1);
	check("empty before", reads(0, memory[0]), -EFAULT);
	check("empty before it", reads(2, memory[2]), -EFAULT);
	check("replaced", clone_from(from, DST_REPLACE, 0, 4, 1), 0);
	check("what is replaced", reads(4, memory[0]), 1);
	check("is gone", reads(4, memory[3]), -EFAULT);
	check("what is before", reads(3, memory[2]), 1);
	check("its own", clone_from(ring_fd, DST_REPLACE, 3, 0, 1), 0);
	check("another place", reads(0, memory[2]), 1);
	check("as before", reads(3, memory[2]), 1);
	check("issuer's own thread", clone_from(single, DST_REPLACE, 0, 0, 0), 0);
	pthread_create(&thread, 0, clone_elsewhere, &single);
	pthread_join(thread, 0);
	close(from);
	close(none);
	close(single);
}

static void registered_source(void)
{
	struct { uint32_t offset, resv; uint64_t data; } update = { -1, 0 };
	int from = source(3, 0);

	new_ring("clone of a registered ring");
	update.data = from;
	check("a number", reg(RING_FDS, &update, 1), 1);
	check("cloned", clone_from(update.offset, SRC_REGISTERED, 0, 0, 0), 0);
	check("used", reads(2, memory[2]), 1);
	close(from);
}

static void times(void)
{
	struct sqe timeout = { TIMEOUT, .addr = 2000000, .len = 1, .op_flags = IMMEDIATE };
	uint64_t far = 3600ull * 1000000000, now[2];
	int pair[2];

	new_ring("times");
	does("in the SQE", timeout, -ETIME, 0);
	timeout.op_flags |= ETIME_SUCCESS;
	does("expected", timeout, -ETIME, 0);
	timeout.addr = 1ull << 63;
	does("negative", timeout, -EINVAL, 0);
	timeout.addr = 0;
	does("none", timeout, -ETIME, 0);
	syscall(228, 1, now);
	timeout.addr = now[0] * 1000000000 + now[1] + 1000000;
	timeout.op_flags = IMMEDIATE | ABS;
	does("absolute", timeout, -ETIME, 0);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	submit_linked(SQE(RECV, LINK, .fd = pair[0], .addr = ADDR(memory), .len = 1), SQE(LINK_TIMEOUT, .addr = 1000000, .len = 1, .op_flags = IMMEDIATE, .user_data = 1));
	expect("its limit", -ETIME, 0);
	expect("is cut off", -ECANCELED, 0);
	submit(SQE(TIMEOUT, .addr = far, .len = 1, .op_flags = IMMEDIATE, .user_data = 7));
	does("a new time", SQE(TIMEOUT_REMOVE, .addr = 7, .off = 1000000, .op_flags = UPDATE | IMMEDIATE), 0, 0);
	expect("comes", -ETIME, 0);
	does("a flag without an update", SQE(TIMEOUT_REMOVE, .addr = 7, .op_flags = IMMEDIATE), -EINVAL, 0);
}

static void udp_pair(int fds[2])
{
	struct sockaddr_in addr = { AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
	socklen_t n = sizeof(addr);

	fds[0] = socket(AF_INET, SOCK_DGRAM, 0);
	fds[1] = socket(AF_INET, SOCK_DGRAM, 0);
	bind(fds[0], (void *)&addr, n);
	getsockname(fds[0], (void *)&addr, &n);
	check("connected", connect(fds[1], (void *)&addr, n), 0);
}

static uint64_t user_data(void)
{
	comes(60000);
	return cqes[*cq_head & *cq_mask].user_data;
}

static void notifications(void)
{
	int fds[2];

	new_ring("notifications");
	udp_pair(fds);
	submit(SQE(SEND_ZC, .fd = fds[1], .addr = ADDR("abc"), .len = 3, .user_data = 5, .addr3 = 6));
	check("the request's", user_data(), 5);
	expect("sent", 3, F_MORE);
	check("its own", user_data(), 6);
	next();
	check("a notification", last_flags, F_NOTIF);
	submit(SQE(SEND_ZC, .fd = fds[1], .addr = ADDR("abc"), .len = 3, .user_data = 5));
	expect("sent", 3, F_MORE);
	check("the request's again", user_data(), 5);
	next();
}

static void early_ends(void)
{
	static struct buf ring[4] __attribute__((aligned(4096)));
	struct { uint64_t addr; uint32_t entries; uint16_t group, flags; uint32_t min_left, resv[5]; } spec = { ADDR(ring), 4, 1, PBUF_INC, 20 };
	int pair[2];

	new_ring("incremental buffers");
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	spec.flags = 0;
	check("of others", reg(REGISTER_PBUF_RING, &spec, 1), -EINVAL);
	spec.flags = PBUF_INC;
	check("registered", reg(REGISTER_PBUF_RING, &spec, 1), 0);
	ring[0] = (struct buf){ ADDR(memory[0]), 64, 0 };
	ring[1] = (struct buf){ ADDR(memory[1]), 64, 1 };
	ring[0].tail = 2;
	check("written", write(pair[1], memory, 40), 40);
	does("a part", SQE(RECV, BUFFER_SELECT, .fd = pair[0], .len = 40, .buf_index = 1), 40, F_BUFFER | F_BUF_MORE);
	check("written", write(pair[1], memory, 4), 4);
	does("so much is left that it goes on", SQE(RECV, BUFFER_SELECT, .fd = pair[0], .len = 4, .buf_index = 1), 4, F_BUFFER | F_BUF_MORE);
	check("written", write(pair[1], memory, 1), 1);
	does("too little is left", SQE(RECV, BUFFER_SELECT, .fd = pair[0], .len = 1, .buf_index = 1), 1, F_BUFFER);
	check("written", write(pair[1], memory, 10), 10);
	does("the next buffer", SQE(RECV, BUFFER_SELECT, .fd = pair[0], .len = 10, .buf_index = 1), 10, 1 << 16 | F_BUFFER | F_BUF_MORE);
}

static void registered_data(void)
{
	struct { uint64_t at, len; } vec[2] = { { ADDR(memory[0]), 64 }, { ADDR(memory[4]), 64 } };
	int pair[2];

	new_ring("registered buffers");
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	check("registered", reg(BUFFERS, vec, 2), 0);
	memcpy(memory[0], "from here", 9);
	does("send", SQE(SEND, 0, FIXED_BUF, .fd = pair[1], .addr = ADDR(memory[0]), .len = 9), 9, 0);
	does("receive", SQE(RECV, 0, FIXED_BUF, .fd = pair[0], .addr = ADDR(memory[4]), .len = 9, .buf_index = 1), 9, 0);
	check("arrived", memcmp(memory[0], memory[4], 9), 0);
	does("send beyond", SQE(SEND, 0, FIXED_BUF, .fd = pair[1], .addr = ADDR(memory[0]), .len = 65), -EFAULT, 0);
	does("receive beside", SQE(RECV, 0, FIXED_BUF, .fd = pair[0], .addr = ADDR(memory[3]), .len = 9, .buf_index = 1), -EFAULT, 0);
	does("no such buffer", SQE(SEND, 0, FIXED_BUF, .fd = pair[1], .addr = ADDR(memory[0]), .len = 9, .buf_index = 2), -EFAULT, 0);
	does("a chosen one as well", SQE(RECV, BUFFER_SELECT, FIXED_BUF, .fd = pair[0], .len = 9), -EINVAL, 0);
	does("and iovecs", SQE(SEND, 0, FIXED_BUF | VECTORIZED, .fd = pair[0], .addr = ADDR(vec), .len = 1), -EINVAL, 0);
	submit(SQE(RECV, FORCE_ASYNC, FIXED_BUF, .fd = pair[0], .addr = ADDR(memory[4]), .len = 3, .buf_index = 1));
	nothing_comes("it waits");
	check("unregistered", reg(UNREGISTER_BUFFERS, 0, 0), 0);
	check("written", write(pair[1], "xyz", 3), 3);
	expect("into what it holds", 3, 0);
	check("its bytes", memcmp(memory[4], "xyz", 3), 0);
}

int main(void)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	clones();
	registered_source();
	if (has_since(7, 1)) {
		times();
		notifications();
		early_ends();
	}
	if (has_since(7, 2))
		registered_data();
	return failures != 0;
}
