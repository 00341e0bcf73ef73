/*
 * RECV_ZC and the instances that it receives into (ZCRX_IFQ, ZCRX_CTRL). Instances without a
 * network device are of Linux 7.1; older kernels check the refusals only.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include "big_cqe.h"
#include "kernel_release.h"
#include "tcp_pair.h"

enum { RECV_ZC = 58, LINK_TIMEOUT = 15, ZCRX_IFQ = 32, QUERY = 35, ZCRX_CTRL = 36 };
enum { IMPORT = 1, NODEV = 2, FLUSH = 0, EXPORT = 1, URING_CMD = 46, TYPE_USER = 1, SKIP_SUCCESS = 64, CANCEL_FD = 2, CLAMP = 16, MINE = 100, PAGE = 4096 };
#define ZCRX_RING (SINGLE_ISSUER | DEFER_TASKRUN)
#define MAP_OFFSET 0x30000000ull
#define RECEIVE(file, ...) SQE(RECV_ZC, .fd = file, .ioprio = RECV_MULTISHOT, .user_data = MINE, ##__VA_ARGS__)

struct region {
	uint64_t user_addr, size;
	uint32_t flags, id;
	uint64_t mmap_offset, resv[4];
};

struct area {
	uint64_t addr, len, token;
	uint32_t flags, dmabuf_fd;
	uint64_t resv[2];
};

struct ifq {
	uint32_t if_idx, if_rxq, rq_entries, flags;
	uint64_t area, region;
	uint32_t head, tail, rqes, resv2;
	uint64_t resv3[2];
	uint32_t id, rx_buf_len;
	uint64_t resv[3];
};

struct ctrl {
	uint32_t id, op;
	uint64_t resv[2], args[6];
};

struct rqe {
	uint64_t off;
	uint32_t len, pad;
};

/* An instance, with the program's side of its refill ring. */
static struct zcrx {
	struct ifq ifq;
	struct area area;
	struct region region;
	char *data;
	uint32_t *head, *tail, next;
	struct rqe *rqes;
} zcrx, other;

static int is_engine, fds[2];

static void *pages(unsigned n)
{
	return mmap(0, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* An area of so many pages, and a refill ring in memory of the program's. */
static struct zcrx description(unsigned entries, unsigned area_pages)
{
	unsigned ring_pages = (64 + entries * 16 + PAGE - 1) / PAGE;
	struct zcrx z = { .ifq = { .rq_entries = entries, .flags = NODEV } };

	z.data = pages(area_pages);
	z.area = (struct area){ .addr = ADDR(z.data), .len = area_pages * PAGE };
	z.region = (struct region){ ADDR(pages(ring_pages)), ring_pages * PAGE, TYPE_USER };
	return z;
}

static int register_zcrx(struct zcrx *z)
{
	char *ring_memory;
	int r;

	z->ifq.area = ADDR(&z->area);
	z->ifq.region = ADDR(&z->region);
	r = reg(ZCRX_IFQ, &z->ifq, 1);
	if (r)
		return r;
	ring_memory = (char *)(uintptr_t)z->region.user_addr;
	if (!(z->region.flags & TYPE_USER))
		ring_memory = mmap(0, z->region.size, PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd, z->region.mmap_offset);
	z->head = (void *)(ring_memory + z->ifq.head);
	z->tail = (void *)(ring_memory + z->ifq.tail);
	z->rqes = (void *)(ring_memory + z->ifq.rqes);
	z->next = 0;
	return 0;
}

static int flush(uint32_t id)
{
	return reg(ZCRX_CTRL, &(struct ctrl){ id, FLUSH }, 0);
}

static void give_back(struct zcrx *z, uint64_t off, uint32_t len, uint32_t pad)
{
	z->rqes[z->next & (z->ifq.rq_entries - 1)] = (struct rqe){ off, len, pad };
	__atomic_store_n(z->tail, ++z->next, __ATOMIC_RELEASE);
}

static int is_ring_full(struct zcrx *z)
{
	return z->next - __atomic_load_n(z->head, __ATOMIC_ACQUIRE) == z->ifq.rq_entries;
}

/* A ring, an instance and a connection. */
static void start(const char *name, unsigned flags, unsigned entries, unsigned area_pages)
{
	int size = 1 << 20;

	check("a ring", ring(name, ZCRX_RING | flags, 0), 0);
	zcrx = description(entries, area_pages);
	check("an instance", register_zcrx(&zcrx), 0);
	tcp_pair(fds);
	setsockopt(fds[0], SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

static void stop(void)
{
	close(fds[0]);
	close(fds[1]);
	munmap(zcrx.data, zcrx.area.len);
}

static char byte_at(uint64_t position)
{
	return (position * 1000000007 >> 7) ^ position;
}

/* Sends bytes from a position of the stream on, until they are in the receiver's queue. */
static void feed(uint64_t position, int n)
{
	int i, queued = 0, before = 0;
	char *bytes = malloc(n);

	ioctl(fds[0], FIONREAD, &before);
	for (i = 0; i < n; i++)
		bytes[i] = byte_at(position + i);
	check("sent", send(fds[1], bytes, n, 0), n);
	while (queued < before + n) {
		ioctl(fds[0], FIONREAD, &queued);
		sched_yield();
	}
	free(bytes);
}

static void last_cqe(const char *what, uint64_t user_data, int res)
{
	struct big big = next_big();

	check(what, big.user_data, user_data);
	check(what, big.res, res);
	check(what, big.flags & F_MORE, 0);
}

/* Data that continues the stream. Returns the CQE. */
static struct big data_cqe(uint64_t *position)
{
	struct big big = next_big();
	int i, wrong = 0;

	check("data", big.res > 0 && big.res <= PAGE, 1);
	check("its request", big.user_data, MINE);
	check("its flags", big.flags, F_MORE | (ring_flags & CQE_MIXED ? F_32 : 0));
	check("in the area", big.extra[0] + big.res <= zcrx.area.len && big.extra[0] % PAGE == 0, 1);
	check("the CQE's end", big.extra[1], 0);
	for (i = 0; i < big.res; i++)
		wrong += zcrx.data[big.extra[0] + i] != byte_at(*position + i);
	check("wrong bytes", wrong, 0);
	*position += big.res > 0 ? big.res : 0;
	return big;
}

static void data_until(uint64_t *position, uint64_t end)
{
	while (*position < end && !failures) {
		struct big big = data_cqe(position);

		give_back(&zcrx, big.extra[0], big.res, 0);
	}
	check("no further", *position == end, 1);
}

static void cancel(const char *what)
{
	submit(SQE(ASYNC_CANCEL, .addr = MINE, .user_data = 7));
	last_cqe(what, 7, 0);
	last_cqe(what, MINE, -ECANCELED);
}

/* A device is refused, after all that does not depend on it: so do kernels before 7.1. */
static void devices(void)
{
	static const struct { const char *name; struct ifq ifq; struct region region; int res; } cases[] = {
		{ "no such device", { .rq_entries = 8, .if_idx = 12345 }, { 0, PAGE }, -ENODEV },
		{ "no device at all", { .rq_entries = 8 }, { 0, PAGE }, -ENODEV },
		{ "odd number of entries", { .rq_entries = 7, .if_idx = 12345 }, { 0, PAGE }, -ENODEV },
		{ "no entries", { .if_idx = 12345 }, { 0, PAGE }, -EINVAL },
		{ "too many entries", { .rq_entries = 32769, .if_idx = 12345 }, { 0, 200 * PAGE }, -EINVAL },
		{ "no queue", { .rq_entries = 8, .if_idx = 12345, .if_rxq = -1 }, { 0, PAGE }, -EINVAL },
		{ "unknown flag", { .rq_entries = 8, .if_idx = 12345, .flags = 8 }, { 0, PAGE }, -EINVAL },
		{ "an id", { .rq_entries = 8, .if_idx = 12345, .id = 1 }, { 0, PAGE }, -EINVAL },
		{ "reserved", { .rq_entries = 8, .if_idx = 12345, .resv = { [2] = 1 } }, { 0, PAGE }, -EINVAL },
		{ "region too small", { .rq_entries = 256, .if_idx = 12345 }, { 0, PAGE }, -EINVAL },
		{ "no region", { .rq_entries = 8, .if_idx = 12345 }, { 0, 0 }, -EINVAL },
		{ "region with an address", { .rq_entries = 8, .if_idx = 12345 }, { PAGE, PAGE }, -EFAULT },
		{ "region without its address", { .rq_entries = 8, .if_idx = 12345 }, { 0, PAGE, TYPE_USER }, -EFAULT },
		{ "unmapped region", { .rq_entries = 8, .if_idx = 12345 }, { PAGE, PAGE, TYPE_USER }, -EFAULT },
		{ "odd region", { .rq_entries = 8, .if_idx = 12345 }, { 0, PAGE + 1 }, -EINVAL },
		{ "region with an offset", { .rq_entries = 8, .if_idx = 12345 }, { 0, PAGE, .mmap_offset = PAGE }, -EINVAL },
		{ "region with an id", { .rq_entries = 8, .if_idx = 12345 }, { 0, PAGE, .id = 1 }, -EINVAL },
		{ "region with a flag", { .rq_entries = 8, .if_idx = 12345 }, { 0, PAGE, .flags = 2 }, -EINVAL },
		{ "region, reserved", { .rq_entries = 8, .if_idx = 12345 }, { 0, PAGE, .resv = { 1 } }, -EINVAL },
	};
	unsigned i;

	check("a ring", ring("devices", ZCRX_RING | CQE32, 0), 0);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct zcrx z = { .ifq = cases[i].ifq, .region = cases[i].region };

		check(cases[i].name, register_zcrx(&z), cases[i].res);
	}
	zcrx = (struct zcrx){ .ifq = { .rq_entries = 8, .if_idx = 12345 }, .region = { 0, PAGE } };
	check("two", reg(ZCRX_IFQ, &zcrx.ifq, 2), -EINVAL);
	check("none", reg(ZCRX_IFQ, 0, 1), -EINVAL);
	check("bad address", reg(ZCRX_IFQ, (void *)8, 1), -EFAULT);
	zcrx.ifq.region = ADDR(&zcrx.region);
	zcrx.ifq.area = 8;
	check("bad area", reg(ZCRX_IFQ, &zcrx.ifq, 1), -EFAULT);
	zcrx.ifq.region = 8;
	zcrx.ifq.area = ADDR(&zcrx.area);
	check("bad region", reg(ZCRX_IFQ, &zcrx.ifq, 1), -EFAULT);
	submit(RECEIVE(0));
	last_cqe("nothing to receive into", MINE, -EINVAL);
	check("a ring", ring("clamped", ZCRX_RING | CQE32 | CLAMP, 0), 0);
	zcrx = (struct zcrx){ .ifq = { .rq_entries = 32769, .if_idx = 12345 }, .region = { 0, 200 * PAGE } };
	check("too many entries", register_zcrx(&zcrx), -ENODEV);
	check("a ring", ring("16-byte CQEs", ZCRX_RING, 0), 0);
	check("needs another ring", register_zcrx(&zcrx), -EINVAL);
	check("a ring", ring("not deferred", CQE32, 0), 0);
	check("needs another ring", register_zcrx(&zcrx), -EINVAL);
	check("a ring", ring("mixed", ZCRX_RING | CQE_MIXED, 0), 0);
	zcrx.ifq.rq_entries = 8;
	check("mixed will do", register_zcrx(&zcrx), -ENODEV);
}

static void malformed(void)
{
	static const struct { const char *name; size_t at; uint64_t value; int bytes, res; } cases[] = {
		{ "device", offsetof(struct zcrx, ifq.if_idx), 1, 4, -EINVAL },
		{ "queue", offsetof(struct zcrx, ifq.if_rxq), 1, 4, -EINVAL },
		{ "import", offsetof(struct zcrx, ifq.flags), NODEV | 1, 4, -EINVAL },
		{ "buffers of three", offsetof(struct zcrx, ifq.rx_buf_len), 3, 4, -EINVAL },
		{ "small buffers", offsetof(struct zcrx, ifq.rx_buf_len), 2048, 4, -EINVAL },
		{ "large buffers", offsetof(struct zcrx, ifq.rx_buf_len), 8192, 4, -EOPNOTSUPP },
		{ "area with a flag", offsetof(struct zcrx, area.flags), 2, 4, -EINVAL },
		{ "area of a descriptor", offsetof(struct zcrx, area.flags), 1, 4, -EINVAL },
		{ "area with a descriptor", offsetof(struct zcrx, area.dmabuf_fd), 1, 4, -EINVAL },
		{ "area with a token", offsetof(struct zcrx, area.token), 1, 8, -EINVAL },
		{ "area, reserved", offsetof(struct zcrx, area.resv), 1, 8, -EINVAL },
		{ "area, no length", offsetof(struct zcrx, area.len), 0, 8, -EFAULT },
		{ "area, too long", offsetof(struct zcrx, area.len), (1ull << 30) + PAGE, 8, -EFAULT },
		{ "area, odd length", offsetof(struct zcrx, area.len), PAGE + 1, 8, -EINVAL },
		{ "area, no address", offsetof(struct zcrx, area.addr), 0, 8, -EFAULT },
		{ "area, odd address", offsetof(struct zcrx, area.addr), 1, 8, -EINVAL },
		{ "area, unmapped", offsetof(struct zcrx, area.addr), PAGE, 8, -EFAULT },
		{ "area at the end", offsetof(struct zcrx, area.addr), -PAGE, 8, -EOVERFLOW },
	};
	struct zcrx z;
	unsigned i;

	check("a ring", ring("malformed", ZCRX_RING | CQE32, 0), 0);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		z = description(8, 2);
		memcpy((char *)&z + cases[i].at, &cases[i].value, cases[i].bytes);
		check(cases[i].name, register_zcrx(&z), cases[i].res);
	}
	z = description(8, 2);
	mprotect(z.data, PAGE, PROT_READ);
	check("read-only", register_zcrx(&z), -EFAULT);
	z = description(5, 2);
	z.ifq.rx_buf_len = PAGE;
	check("registered", register_zcrx(&z), 0);
	check("a power of two", z.ifq.rq_entries, 8);
	check("size of buffers", z.ifq.rx_buf_len, PAGE);
	check("the first", z.ifq.id, 0);
	check("the area's token", z.area.token, 0);
	check("head", z.ifq.head, 0);
	check("tail", z.ifq.tail, 4);
	check("entries", z.ifq.rqes, 64);
	z = description(8, 2);
	check("another one", register_zcrx(&z), 0);
	check("the second", z.ifq.id, 1);
}

static void fields(void)
{
	static const struct { const char *name; struct sqe sqe; int res; } cases[] = {
		{ "addr", { .addr = 1 }, -EINVAL },
		{ "addr2", { .off = 1 }, -EINVAL },
		{ "addr3", { .addr3 = 1 }, -EINVAL },
		{ "flags of a message", { .op_flags = 64 }, -EINVAL },
		{ "another instance", { .file_index = 1 }, -EINVAL },
		{ "no instance", { .file_index = -1 }, -EINVAL },
		{ "single", { .ioprio = 0 }, -EINVAL },
		{ "unknown flag", { .ioprio = RECV_MULTISHOT | BUNDLE }, -EINVAL },
		{ "provided buffers", { .flags = BUFFER_SELECT }, -EOPNOTSUPP },
	};
	struct sockaddr_in addr = { AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
	int pipes[2], pair[2], udp = socket(AF_INET, SOCK_DGRAM, 0), tcp = socket(AF_INET, SOCK_STREAM, 0);
	unsigned i;

	check("pairs", pipe(pipes) | socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	start("fields", CQE32, 8, 4);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct sqe sqe = cases[i].sqe;

		if (!sqe.ioprio && strcmp(cases[i].name, "single"))
			sqe.ioprio = RECV_MULTISHOT;
		sqe.opcode = RECV_ZC;
		sqe.fd = fds[0];
		sqe.user_data = i;
		submit(sqe);
		last_cqe(cases[i].name, i, cases[i].res);
	}
	submit(RECEIVE(999));
	last_cqe("closed number", MINE, -EBADF);
	submit(RECEIVE(pipes[0]));
	last_cqe("pipe", MINE, -ENOTSOCK);
	submit(RECEIVE(udp));
	last_cqe("datagrams", MINE, -EPROTONOSUPPORT);
	submit(RECEIVE(pair[0]));
	last_cqe("Unix socket", MINE, -EPROTONOSUPPORT);
	submit(RECEIVE(tcp));
	last_cqe("not connected", MINE, -ENOTCONN);
	bind(tcp, (void *)&addr, sizeof(addr));
	listen(tcp, 1);
	submit(RECEIVE(tcp));
	last_cqe("a listener", MINE, -ENOTCONN);
	setsockopt(fds[1], SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
	close(fds[1]);
	submit(RECEIVE(fds[0]));
	last_cqe("reset", MINE, -ECONNRESET);
	stop();
}

static void plain(const char *name, unsigned flags)
{
	uint64_t position = 0;

	start(name, flags, 8, 8);
	feed(position, 5);
	submit(RECEIVE(fds[0]));
	data_until(&position, 5);
	nothing_comes("it waits");
	feed(position, 1);
	data_until(&position, 6);
	feed(position, 3 * PAGE + 7);
	data_until(&position, 3 * PAGE + 13);
	check("flushed", flush(0), 0);
	check("all consumed", *zcrx.head, zcrx.next);
	shutdown(fds[1], SHUT_WR);
	last_cqe("the end", MINE, 0);
	submit(RECEIVE(fds[0]));
	last_cqe("again", MINE, 0);
	stop();
}

/* Chains, a limit, cancels, POLL_FIRST, a registered file, ASYNC, CQE_SKIP_SUCCESS. */
static void requests(void)
{
	uint64_t position = 0, ts[2] = { 0, 1000000 };
	char rest[PAGE];

	start("requests", CQE32, 8, 8);
	feed(position, 10000);
	submit_linked(RECEIVE(fds[0], .flags = LINK, .len = 9000), SQE(NOP, .user_data = 8));
	data_until(&position, 9000);
	last_cqe("the limit", MINE, 0);
	last_cqe("does not break the chain", 8, 0);
	check("the rest", recv(fds[0], rest, sizeof(rest), 0), 1000);
	position = 10000;
	submit(RECEIVE(fds[0], .flags = FORCE_ASYNC | SKIP_SUCCESS));
	feed(position, 100);
	data_until(&position, 10100);
	cancel("cancelled");
	submit(RECEIVE(fds[0], .flags = SKIP_SUCCESS, .len = 50));
	feed(position, 50);
	data_until(&position, 10150);
	nothing_comes("the limit is no failure");
	feed(position, 10);
	submit(SQE(RECV_ZC, .fd = fds[0], .ioprio = RECV_MULTISHOT | POLL_FIRST, .user_data = MINE));
	data_until(&position, 10160);
	submit(SQE(ASYNC_CANCEL, .fd = fds[0], .op_flags = CANCEL_FD, .user_data = 7));
	last_cqe("by descriptor", 7, 0);
	last_cqe("cancelled", MINE, -ECANCELED);
	submit_linked(RECEIVE(fds[0], .flags = LINK), SQE(LINK_TIMEOUT, .addr = ADDR(ts), .len = 1, .user_data = 9));
	last_cqe("its timeout", 9, -ETIME);
	last_cqe("timed out", MINE, -ECANCELED);
	check("registered", reg(REGISTER_FILES, fds, 1), 0);
	submit_linked(RECEIVE(0, .flags = LINK | FIXED_FILE), SQE(NOP, .user_data = 8));
	feed(position, 20);
	data_until(&position, 10180);
	shutdown(fds[1], SHUT_WR);
	last_cqe("the end", MINE, 0);
	last_cqe("breaks the chain", 8, -ECANCELED);
	stop();
}

/* More data than buffers. */
static void scarce(void)
{
	uint64_t position = 0, held[4];
	char rest[2 * PAGE];
	int i;

	start("scarce", CQE32, 8, 2);
	submit(RECEIVE(fds[0]));
	feed(position, 5 * PAGE);
	for (i = 0; i < 2; i++)
		held[i] = data_cqe(&position).extra[0];
	check("two different ones", held[0] != held[1], 1);
	nothing_comes("no buffers");
	feed(5 * PAGE, 1);
	last_cqe("still none", MINE, -ENOMEM);
	submit(RECEIVE(fds[0]));
	last_cqe("none for another one either", MINE, -ENOMEM);
	give_back(&zcrx, held[1], PAGE, 0);
	submit(RECEIVE(fds[0], .len = PAGE));
	check("the only free one", data_cqe(&position).extra[0], held[1]);
	last_cqe("the limit", MINE, 0);
	check("the data waits", recv(fds[0], rest, sizeof(rest), MSG_WAITALL), 2 * PAGE);
	position += 2 * PAGE;
	check("a byte", recv(fds[0], rest, sizeof(rest), 0), 1);
	position++;
	submit(RECEIVE(fds[0]));
	nothing_comes("without data no buffer is missed");
	shutdown(fds[1], SHUT_WR);
	last_cqe("nor at the end", MINE, 0);
	stop();
	/* It goes on when buffers come back. */
	position = 0;
	start("returned", CQE_MIXED, 8, 2);
	submit(RECEIVE(fds[0]));
	feed(position, 7 * PAGE);
	data_until(&position, 7 * PAGE);
	cancel("cancelled");
	stop();
}

/* More data than room in the CQ. */
static void full(unsigned flags)
{
	int room = flags & CQE32 ? 32 : 16, i;
	uint64_t position = 0;

	check("a ring", ring("full", ZCRX_RING | flags, 32), 0);
	zcrx = description(64, 64);
	check("an instance", register_zcrx(&zcrx), 0);
	tcp_pair(fds);
	setsockopt(fds[0], SOL_SOCKET, SO_RCVBUF, &(int){ 1 << 20 }, sizeof(int));
	feed(position, 40 * PAGE);
	submit(RECEIVE(fds[0]));
	for (i = 0; i < room; i++)
		data_cqe(&position);
	for (; i < 40; i++)
		data_cqe(&position);
	check("all of it", position == 40 * PAGE, 1);
	/* No room at all. */
	for (i = 0; i < 32; i++) {
		push(SQE(NOP, .user_data = 5));
		enter(1);
	}
	feed(position, 10);
	syscall(426, ring_fd, 0, 1, 1, 0, 0);
	for (i = 0; i < 32; i++)
		last_cqe("in the way", 5, 0);
	last_cqe("no room", MINE, -ENOSPC);
	submit(RECEIVE(fds[0]));
	data_until(&position, 40 * PAGE + 10);
	stop();
}

static void control(void)
{
	struct ctrl good = { 0, FLUSH }, bad;
	uint64_t position = 0, off;
	int i;

	start("control", CQE32, 4, 4);
	check("flush", reg(ZCRX_CTRL, &good, 0), 0);
	check("a number", reg(ZCRX_CTRL, &good, 1), -EINVAL);
	check("no argument", reg(ZCRX_CTRL, 0, 0), -EFAULT);
	check("bad address", reg(ZCRX_CTRL, (void *)8, 0), -EFAULT);
	bad = good, bad.resv[1] = 1;
	check("reserved", reg(ZCRX_CTRL, &bad, 0), -EFAULT);
	bad = good, bad.args[5] = 1;
	check("reserved of the operation", reg(ZCRX_CTRL, &bad, 0), -EINVAL);
	bad = good, bad.id = 1;
	check("no such instance", reg(ZCRX_CTRL, &bad, 0), -ENXIO);
	bad = good, bad.op = 77;
	check("unknown operation", reg(ZCRX_CTRL, &bad, 0), -EOPNOTSUPP);
	/* What comes back wrongly is consumed, and returns nothing. */
	submit(RECEIVE(fds[0]));
	feed(position, 4 * PAGE);
	for (i = 0; i < 4; i++)
		off = data_cqe(&position).extra[0];
	give_back(&zcrx, zcrx.area.len, 1, 0);
	check("beyond the area", flush(0), 0);
	give_back(&zcrx, 1ull << 48 | off, 1, 0);
	check("another area", flush(0), 0);
	give_back(&zcrx, off, 1, 1);
	check("padding", flush(0), 0);
	give_back(&zcrx, (1ull << 48) - 1, 1, 0);
	check("far beyond", flush(0), 0);
	check("consumed", *zcrx.head, 4);
	feed(position, 1);
	last_cqe("no buffers", MINE, -ENOMEM);
	/* An offset inside a buffer means the buffer; what is free already stays free. */
	give_back(&zcrx, off + 17, 1, 0);
	give_back(&zcrx, off, 1, 0);
	check("flushed", flush(0), 0);
	submit(RECEIVE(fds[0]));
	data_until(&position, 4 * PAGE + 1);
	feed(position, 3);
	data_until(&position, 4 * PAGE + 4);
	/* Counters that mean nothing: at most each entry is read once. */
	*zcrx.tail = zcrx.next + 1000000;
	*zcrx.head = 4711;
	check("scribbled", flush(0), 0);
	*zcrx.tail = 0;
	check("scribbled again", flush(0), 0);
	stop();
}

static uint32_t seed = 1;

static uint32_t draw(uint32_t below)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % below;
}

static void *send_all(void *arg)
{
	uint64_t total = *(uint64_t *)arg, position = 0;
	unsigned state = 77;
	static char bytes[70000];

	while (position < total) {
		uint64_t n = rand_r(&state) % (rand_r(&state) % 8 ? 3000 : sizeof(bytes)) + 1, i, sent = 0;

		n = n < total - position ? n : total - position;
		for (i = 0; i < n; i++)
			bytes[i] = byte_at(position + i);
		while (sent < n)
			sent += send(fds[1], bytes + sent, n - sent, 0);
		position += n;
	}
	shutdown(fds[1], SHUT_WR);
	return 0;
}

/*
 * A peer that sends parts of all sizes, as fast as it can. Each byte is checked; the buffers come
 * back in random order, flushed or not. A receive that ends for lack of buffers is begun again.
 */
static void stream(const char *name, unsigned flags, unsigned entries, unsigned area_pages, int flushes)
{
	struct big held[64], big;
	uint64_t total = 6 << 20, position = 0;
	unsigned n = 0, lacks = 0;
	pthread_t peer;

	start(name, flags, entries, area_pages);
	pthread_create(&peer, 0, send_all, &total);
	submit(RECEIVE(fds[0]));
	while (!failures) {
		while (n > draw(area_pages)) {
			unsigned i = draw(n);

			if (is_ring_full(&zcrx) && (!flushes || flush(0)))
				break;
			give_back(&zcrx, held[i].extra[0] + draw(held[i].res), held[i].res, 0);
			held[i] = held[--n];
		}
		if (flushes && draw(4) == 0)
			check("flushed", flush(0), 0);
		if (!comes(60000)) {
			check("the stream goes on", 0, 1);
			break;
		}
		if (cqes[(*cq_head & *cq_mask) << (ring_flags & CQE32 ? 1 : 0)].flags & (F_MORE | F_SKIP)) {
			held[n++] = data_cqe(&position);
			continue;
		}
		big = next_big();
		if (big.res != -ENOMEM) {
			check("the end", big.res, 0);
			break;
		}
		lacks++;
		submit(RECEIVE(fds[0]));
	}
	check("all of it", position == total, 1);
	pthread_join(peer, 0);
	printf("%s: %u times without a buffer\n", name, lacks);
	stop();
}

/* The refill ring in memory of the ring's; two instances; what is mapped where. */
static void mapped(void)
{
	uint64_t position = 0, off;
	int i;

	start("mapped", CQE32, 8, 2);
	check("the program's own", mmap(0, PAGE, PROT_READ, MAP_SHARED, ring_fd, MAP_OFFSET) == MAP_FAILED, 1);
	other = description(256, 4);
	other.region = (struct region){ 0, 2 * PAGE };
	check("registered", register_zcrx(&other), 0);
	check("its offset", other.region.mmap_offset == MAP_OFFSET + (1 << 16), 1);
	check("mapped", other.tail != MAP_FAILED && *other.tail == 0, 1);
	check("no such instance", mmap(0, PAGE, PROT_READ, MAP_SHARED, ring_fd, MAP_OFFSET + (2 << 16)) == MAP_FAILED, 1);
	zcrx = other;
	submit(RECEIVE(fds[0], .file_index = 1));
	for (i = 0; i < 300; i++) {
		feed(position, 4 * PAGE);
		data_until(&position, (i + 1) * 4 * PAGE);
		check("flushed", flush(1), 0);
	}
	check("consumed", *other.head, zcrx.next);
	feed(position, 1);
	off = data_cqe(&position).extra[0];
	check("in its area", off < zcrx.area.len, 1);
	stop();
}

/* An instance that two rings have, and that outlives the first one. */
static void exported(void)
{
	struct ctrl *unwritable = pages(1), c = { 0, EXPORT };
	struct ifq good, bad;
	uint64_t position = 0;
	int exporter, box, i;

	start("exported", CQE32, 8, 4);
	c.args[3] = 1;
	check("reserved", reg(ZCRX_CTRL, &c, 0), -EINVAL);
	*unwritable = (struct ctrl){ 0, EXPORT };
	mprotect(unwritable, PAGE, PROT_READ);
	check("nowhere to be told", reg(ZCRX_CTRL, unwritable, 0), -EFAULT);
	c = (struct ctrl){ 0, EXPORT };
	check("exported", reg(ZCRX_CTRL, &c, 0), 0);
	box = c.args[0];
	check("closed by execve", fcntl(box, F_GETFD), FD_CLOEXEC);
	submit(RECEIVE(fds[0]));
	feed(position, PAGE + 1);
	data_until(&position, PAGE + 1);
	cancel("cancelled");
	exporter = ring_fd;
	ring_fd = -1;
	check("a ring", ring("imported", ZCRX_RING | CQE_MIXED, 0), 0);
	good = (struct ifq){ .flags = IMPORT, .if_idx = box };
	bad = good, bad.rq_entries = 8;
	check("with entries", reg(ZCRX_IFQ, &bad, 1), -EINVAL);
	bad = good, bad.if_rxq = 1;
	check("with a queue", reg(ZCRX_IFQ, &bad, 1), -EINVAL);
	bad = good, bad.area = 8;
	check("with an area", reg(ZCRX_IFQ, &bad, 1), -EINVAL);
	bad = good, bad.region = 8;
	check("with a region", reg(ZCRX_IFQ, &bad, 1), -EINVAL);
	bad = good, bad.flags = IMPORT | NODEV;
	check("of both kinds", reg(ZCRX_IFQ, &bad, 1), -EINVAL);
	bad = good, bad.if_idx = -1;
	check("no descriptor", reg(ZCRX_IFQ, &bad, 1), -EBADF);
	bad = good, bad.if_idx = fds[0];
	check("another file", reg(ZCRX_IFQ, &bad, 1), -EBADF);
	submit(SQE(URING_CMD, .fd = box, .user_data = 6));
	last_cqe("it takes no commands", 6, -EOPNOTSUPP);
	check("imported", reg(ZCRX_IFQ, &good, 1), 0);
	check("its id", good.id, 0);
	check("its entries", good.rqes, 64);
	close(box);
	bad = (struct ifq){ .flags = IMPORT, .if_idx = box };
	check("closed", reg(ZCRX_IFQ, &bad, 1), -EBADF);
	close(exporter);
	submit(RECEIVE(fds[0]));
	for (i = 0; i < 20; i++) {
		uint64_t end = position + 3 * PAGE;

		feed(position, 3 * PAGE);
		data_until(&position, end);
		check("flushed", flush(0), 0);
	}
	cancel("cancelled");
	stop();
}

static void query(void)
{
	struct { uint64_t register_flags, area_flags; uint32_t ctrl, features, header, alignment; uint64_t resv; } answer = { 0 };
	struct { uint64_t next, data; uint32_t op, size; int32_t result; uint32_t resv[3]; } header = { 0, ADDR(&answer), 1, sizeof(answer) };

	section = "query";
	check("asked", syscall(427, -1, QUERY, &header, 0), 0);
	check("answered", header.result, 0);
	check("size", header.size, 40);
	check("without a device", answer.register_flags & NODEV, NODEV);
	if (is_engine) {
		check("operations", answer.ctrl, 2);
		check("nothing else", answer.register_flags | answer.area_flags | answer.features, NODEV | IMPORT);
	}
	check("header", answer.header, 8);
	check("alignment", answer.alignment, 64);
}

/* A ring that ends with a receive armed and buffers outstanding, and one that is forked. */
static void ends(void)
{
	uint64_t position = 0;
	int i, status;
	pid_t child;

	for (i = 0; i < 20; i++) {
		start("ends", i % 2 ? CQE32 : CQE_MIXED, 8, 4);
		submit(RECEIVE(fds[0]));
		position = 0;
		feed(position, 3 * PAGE);
		data_cqe(&position);
		close(ring_fd);
		ring_fd = -1;
		stop();
	}
	start("forked", CQE32, 8, 4);
	submit(RECEIVE(fds[0]));
	position = 0;
	feed(position, 10);
	child = fork();
	if (!child) {
		check("not the child's", syscall(426, ring_fd, 0, 1, 1, 0, 0) < 0 ? -errno : 0, -EEXIST);
		_exit(failures != 0);
	}
	check("waited", waitpid(child, &status, 0), child);
	check("the child", status, 0);
	data_until(&position, 10);
	feed(position, 4 * PAGE);
	data_until(&position, 10 + 4 * PAGE);
	stop();
}

static uint64_t any(void)
{
	switch (draw(6)) {
	case 0: return 0;
	case 1: return draw(20);
	case 2: return ~0ull >> draw(64);
	case 3: return (uint64_t)draw(8) * PAGE;
	case 4: return ADDR(zcrx.data) + draw(5) * PAGE;
	default: return (uint64_t)draw(1 << 24) << 40 | (uint64_t)draw(1 << 24) << 20 | draw(1 << 20);
	}
}

/* Registrations with random fields: some succeed, none does harm. */
static void random_registrations(void)
{
	int i, j, good = 0;

	check("a ring", ring("random registrations", ZCRX_RING | CQE32, 0), 0);
	zcrx = description(8, 4);
	for (i = 0; i < 20000; i++) {
		struct zcrx z = zcrx;

		z.ifq.area = ADDR(&z.area);
		z.ifq.region = ADDR(&z.region);
		for (j = draw(3); j > 0; j--) {
			uint64_t value = any();
			unsigned at = draw(4 * (offsetof(struct zcrx, data) / 4));

			memcpy((char *)&z + at / 4 * 4, &value, draw(2) ? 4 : 8);
		}
		/* Each instance keeps its memory until its ring ends. */
		z.region.size &= 0xffff;
		z.area.len &= 0xffff;
		good += reg(ZCRX_IFQ, &z.ifq, 1) == 0;
		if (good == 100) {
			check("a ring", ring("random registrations", ZCRX_RING | CQE32, 0), 0);
			good = 0;
		}
	}
	check("an instance", register_zcrx(&zcrx), 0);
	for (i = 0; i < 20000; i++) {
		struct ctrl c = { draw(2), 0 };

		for (j = draw(2); j > 0; j--)
			((uint32_t *)&c)[draw(18)] = any();
		if (reg(ZCRX_CTRL, &c, draw(8) == 0) == 0 && c.op == EXPORT)
			close(c.args[0]);
	}
	close(ring_fd);
	ring_fd = -1;
}

/* A refill ring that holds anything at all: data goes to the area, and nowhere else. */
static void scribbled(void)
{
	uint64_t position = 0;
	char *guarded = pages(6);
	struct big big;
	int i, j;

	start("scribbled", CQE32, 8, 4);
	/* A new instance between two pages that nobody may write. */
	zcrx = description(8, 4);
	zcrx.data = guarded + PAGE;
	zcrx.area.addr = ADDR(zcrx.data);
	check("registered", register_zcrx(&zcrx), 0);
	mprotect(guarded, PAGE, PROT_READ);
	mprotect(guarded + 5 * PAGE, PAGE, PROT_READ);
	submit(RECEIVE(fds[0], .file_index = 1));
	for (i = 0; i < 3000; i++) {
		for (j = 0; j < 48; j++)
			if (draw(2))
				__atomic_store_n(zcrx.head + j, (uint32_t)any(), __ATOMIC_RELAXED);
		if (draw(2))
			check("flushed", flush(1), 0);
		feed(position, 1 + draw(2 * PAGE));
		while (comes(0)) {
			big = next_big();
			if (big.flags & F_MORE) {
				check("in the area", big.extra[0] < 4 * PAGE && big.res > 0 && big.res <= PAGE, 1);
				continue;
			}
			check("no buffers", big.res, -ENOMEM);
			/* Sane entries, of all buffers. */
			for (j = 0; j < 8; j++)
				zcrx.rqes[j] = (struct rqe){ j % 4 * PAGE };
			for (j = 0; j < 4; j++) {
				__atomic_fetch_add(zcrx.tail, 8, __ATOMIC_RELEASE);
				flush(1);
			}
			submit(RECEIVE(fds[0], .file_index = 1));
		}
	}
	stop();
}

/* Memory that the program has unmapped: the kernel would have pinned it. */
static void unmapped(void)
{
	uint64_t position = 0;

	start("unmapped area", CQE32, 8, 4);
	munmap(zcrx.data, zcrx.area.len);
	feed(position, 10);
	submit(RECEIVE(fds[0]));
	last_cqe("no memory there", MINE, -EFAULT);
	stop();
	start("unmapped refill ring", CQE32, 8, 1);
	munmap(zcrx.head, PAGE);
	check("no memory there", flush(0), -EFAULT);
	feed(0, 2 * PAGE);
	submit(RECEIVE(fds[0]));
	position = 0;
	data_cqe(&position);
	feed(2 * PAGE, 1);
	last_cqe("no buffers", MINE, -ENOMEM);
	stop();
}

int main(void)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	is_engine = getenv("BLOCK_IO_URING") != 0;
	if (is_engine)
		block_io_uring();
	new_ring("start");
	devices();
	if (!has_since(7, 1))
		return failures != 0;
	malformed();
	fields();
	plain("plain", CQE32);
	plain("mixed", CQE_MIXED);
	requests();
	scarce();
	full(CQE32);
	full(CQE_MIXED);
	control();
	stream("stream", CQE32, 64, 64, 0);
	stream("mixed, flushed", CQE_MIXED, 8, 48, 1);
	stream("few buffers", CQE32, 4, 3, 0);
	stream("few buffers, flushed", CQE_MIXED, 2, 4, 1);
	mapped();
	exported();
	query();
	ends();
	random_registrations();
	if (is_engine) {
		scribbled();
		unmapped();
	}
	return failures != 0;
}
