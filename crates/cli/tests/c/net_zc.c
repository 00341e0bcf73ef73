/* Bundles of provided buffers, and sends with a notification when their buffer is free. */
#include "net_ring.h"
#include "tcp_pair.h"

enum { SEND_ZC = 47, SENDMSG_ZC = 48, CQE_SKIP = 64, GROUP = 1, ENTRIES = 8, SIZE = 10, REGISTER_BUFFERS = 0, INC = 2 };
enum { FIXED_BUF = 4, REPORT_USAGE = 8, F_NOTIF = 8, COPIED = 1 << 31 };

static char buf[1 << 16], sink[1 << 16];
static struct buf *br;
static uint16_t tail;

static void give(int n)
{
	while (n-- > 0) {
		struct buf *b = &br[tail % ENTRIES];

		b->addr = ADDR(buf + tail % ENTRIES * 100);
		b->len = SIZE;
		b->bid = tail % ENTRIES;
		tail++;
		__atomic_store_n(&br[0].tail, tail, __ATOMIC_RELEASE);
	}
}

static void new_group(const char *name, int flags)
{
	struct buf_reg r = { 0, ENTRIES, GROUP, flags };

	new_ring(name);
	if (!br)
		br = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(br, 0, 4096);
	tail = 0;
	r.addr = ADDR(br);
	check("group", reg(REGISTER_PBUF_RING, &r, 1), 0);
}

static int head(void)
{
	uint32_t status[10] = { GROUP };

	check("status", reg(PBUF_STATUS, status, 1), 0);
	return status[1];
}

static int holds(int n)
{
	return F_BUFFER | n << 16;
}

static void sent(int fd, int n)
{
	check("sent", send(fd, sink, n, MSG_NOSIGNAL), n);
	usleep(2000);
}

static struct sqe receive(int fd, int ioprio, int len)
{
	return SQE(RECV, BUFFER_SELECT, BUNDLE | ioprio, fd, .len = len, .buf_index = GROUP);
}

static struct sqe bundle(int fd, int len)
{
	return SQE(SEND, BUFFER_SELECT, BUNDLE, fd, .len = len, .buf_index = GROUP);
}

static void refused(void)
{
	int fds[2];

	new_group("refused", 0);
	tcp_pair(fds);
	does("message", SQE(SENDMSG, 0, BUNDLE, fds[0]), -EINVAL, 0);
	does("message", SQE(RECVMSG, 0, BUNDLE, fds[0]), -EINVAL, 0);
	does("nothing to send", bundle(fds[0], 0), -ENOBUFS, 0);
	does("nothing to fill", receive(fds[0], 0, 0), -ENOBUFS, 0);
	submit(SQE(SEND, 0, BUNDLE, fds[0], .addr = ADDR(buf), .len = 5));
	expect("a buffer of its own", 5, F_MORE);
	expect("and nothing behind it", 0, 0);
	close(fds[0]);
	close(fds[1]);
}

static void sends(void)
{
	int fds[2], i;

	new_group("sends", 0);
	tcp_pair(fds);
	for (i = 0; i < 300; i++)
		buf[i] = i;
	give(3);
	does("all there are", bundle(fds[1], 0), 30, holds(0));
	check("arrived", recv(fds[0], sink, 100, 0), 30);
	check("in order", sink[10] == buf[100] && sink[29] == buf[209], 1);
	give(3);
	submit(bundle(fds[1], 15));
	expect("whole buffers", 10, holds(3) | F_MORE);
	expect("and the rest", 20, holds(4));
	check("head", head(), 6);
	does("no more", bundle(fds[1], 0), -ENOBUFS, 0);
	close(fds[0]);
	close(fds[1]);

	new_group("incremental sends", INC);
	tcp_pair(fds);
	give(3);
	submit(bundle(fds[1], 15));
	expect("parts of buffers", 15, holds(0) | F_MORE | F_BUF_MORE);
	expect("and the rest", 15, holds(1));
	check("head", head(), 3);
	close(fds[0]);
	close(fds[1]);
}

/* A failed send gives back everything that it selected. */
static void sends_that_fail(void)
{
	struct { int flags, is_bundle, len, told, heads; } *one, all[] = {
		{ 0, 0, 5, 0, 1 }, { 0, BUNDLE, 0, 0, 3 }, { 0, BUNDLE, 15, 0, 1 }, { 0, BUNDLE | POLL_FIRST, 0, 0, 3 },
		{ INC, 0, 5, F_BUF_MORE, 0 }, { INC, 0, 10, 0, 1 }, { INC, BUNDLE, 0, 0, 3 }, { INC, BUNDLE, 15, F_BUF_MORE, 1 },
	};
	int fds[2];

	for (one = all; one < all + 8; one++) {
		new_group("sends that fail", one->flags);
		tcp_pair(fds);
		give(3);
		shutdown(fds[1], SHUT_WR);
		does("shut down", SQE(SEND, BUFFER_SELECT, one->is_bundle, fds[1], .len = one->len, .buf_index = GROUP), -EPIPE, holds(0) | one->told);
		check("head", head(), one->heads);
		close(fds[0]);
		close(fds[1]);
	}
}

static void receives(void)
{
	int fds[2];

	new_group("receives", 0);
	tcp_pair(fds);
	give(4);
	sent(fds[1], 25);
	does("whole buffers", receive(fds[0], 0, 0), 20, holds(0) | F_SOCK_NONEMPTY);
	check("head", head(), 2);
	give(3);
	sent(fds[1], 25);
	does("of what was asked for", receive(fds[0], 0, 25), 20, holds(2) | F_SOCK_NONEMPTY);
	does("and the rest", receive(fds[0], 0, 15), 10, holds(4));
	close(fds[0]);
	close(fds[1]);

	new_group("multishot", 0);
	tcp_pair(fds);
	give(8);
	submit(receive(fds[0], RECV_MULTISHOT, 0));
	sent(fds[1], 5);
	expect("less than one", 5, holds(0) | F_MORE);
	sent(fds[1], 25);
	expect("two", 20, holds(1) | F_MORE | F_SOCK_NONEMPTY);
	expect("the rest", 5, holds(3) | F_MORE);
	sent(fds[1], 55);
	expect("the last ones", 40, holds(4) | F_SOCK_NONEMPTY);
	nothing_comes("it has ended");
	close(fds[0]);
	close(fds[1]);

	new_group("limits", 0);
	tcp_pair(fds);
	give(8);
	submit(receive(fds[0], RECV_MULTISHOT, 20));
	sent(fds[1], 45);
	expect("so many at a time", 20, holds(0) | F_MORE | F_SOCK_NONEMPTY);
	expect("and again", 20, holds(2) | F_MORE | F_SOCK_NONEMPTY);
	expect("and the rest", 5, holds(4) | F_MORE);
	close(fds[1]);
	expect("the end", 0, F_SOCK_NONEMPTY);
	close(fds[0]);

	new_group("incremental", INC);
	tcp_pair(fds);
	give(4);
	sent(fds[1], 25);
	does("parts of buffers", receive(fds[0], 0, 0), 25, holds(0) | F_BUF_MORE);
	check("head", head(), 2);
	sent(fds[1], 15);
	does("from there on", receive(fds[0], 0, 0), 15, holds(2));
	check("head", head(), 4);
	close(fds[0]);
	close(fds[1]);
}

static struct sqe waits_for_all(int fd, int len)
{
	struct sqe sqe = receive(fd, 0, len);

	sqe.op_flags = MSG_WAITALL;
	return sqe;
}

/* Until a first piece has arrived: it has taken buffers. */
static void has_begun(void)
{
	int i;

	for (i = 0; i < 60000 && head() == 0; i++)
		usleep(1000);
}

/*
 * A bundle that arrives in pieces, and one that is cancelled before all of it has arrived: unused
 * buffers return to the group.
 */
static void receives_in_pieces(void)
{
	int flags[2] = { 0, INC }, fds[2], inc, i;

	for (inc = 0; inc < 2; inc++) {
		new_group("in pieces", flags[inc]);
		tcp_pair(fds);
		give(4);
		for (i = 0; i < 1000; i++)
			buf[i] = 0, sink[i] = i;
		submit(waits_for_all(fds[0], 30));
		sent(fds[1], 15);
		nothing_comes("half of it");
		check("sent", send(fds[1], sink + 15, 15, MSG_NOSIGNAL), 15);
		expect("all of it", 30, holds(0));
		check("in order", buf[9] == 9 && buf[100] == 10 && buf[200] == 20 && buf[209] == 29, 1);
		close(fds[0]);
		close(fds[1]);

		new_group("in pieces, too few buffers", flags[inc]);
		tcp_pair(fds);
		give(2);
		submit(waits_for_all(fds[0], 30));
		sent(fds[1], 5 + SIZE);
		has_begun();
		give(2);
		sent(fds[1], 15);
		expect("those that there were", 20, holds(0) | F_SOCK_NONEMPTY);
		close(fds[0]);
		close(fds[1]);

		new_group("a piece, and cancelled", flags[inc]);
		tcp_pair(fds);
		give(4);
		submit(waits_for_all(fds[0], 30));
		sent(fds[1], 15);
		has_begun();
		submit(SQE(ASYNC_CANCEL, .fd = fds[0], .op_flags = 3, .user_data = 1));
		for (i = 0; i < 2; i++) {
			int res = next();

			check("the piece, the cancel", res == 15 || res == 1, 1);
		}
		check("head", head(), inc ? 1 : 2);
		sent(fds[1], 5);
		does("goes on there", receive(fds[0], 0, 0), 5, holds(inc ? 1 : 2));
		close(fds[0]);
		close(fds[1]);
	}
}

/* A CQE, and the notification behind it once the peer has read. */
static void announces(const char *what, struct sqe sqe, int res, int peer, int usage)
{
	submit(sqe);
	expect(what, res, F_MORE);
	if (res > 0)
		check(what, recv(peer, sink, res, MSG_WAITALL), res);
	expect(what, usage, F_NOTIF);
}

static void zero_copy(void)
{
	struct iovec iov = { buf, 10 }, registered = { buf, 1000 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fds[2], local[2];

	new_ring("zero copy");
	tcp_pair(fds);
	socketpair(AF_UNIX, SOCK_STREAM, 0, local);
	announces("sent", SQE(SEND_ZC, .fd = fds[1], .addr = ADDR(buf), .len = 10), 10, fds[0], 0);
	announces("reported", SQE(SEND_ZC, 0, REPORT_USAGE, fds[1], .addr = ADDR(buf), .len = 10), 10, fds[0], COPIED);
	announces("vectored", SQE(SEND_ZC, 0, VECTORIZED, fds[1], .addr = ADDR(&iov), .len = 1), 10, fds[0], 0);
	announces("async", SQE(SEND_ZC, FORCE_ASYNC, 0, fds[1], .addr = ADDR(buf), .len = 10), 10, fds[0], 0);
	announces("after poll", SQE(SEND_ZC, 0, POLL_FIRST, fds[1], .addr = ADDR(buf), .len = 10), 10, fds[0], 0);
	announces("message", SQE(SENDMSG_ZC, .fd = fds[1], .addr = ADDR(&msg), .len = 1), 10, fds[0], 0);
	announces("message report", SQE(SENDMSG_ZC, 0, REPORT_USAGE, fds[1], .addr = ADDR(&msg), .len = 1), 10, fds[0], COPIED);
	announces("unix", SQE(SEND_ZC, .fd = local[1], .addr = ADDR(buf), .len = 10), -EOPNOTSUPP, -1, 0);
	announces("unix message", SQE(SENDMSG_ZC, .fd = local[1], .addr = ADDR(&msg), .len = 1), -EOPNOTSUPP, -1, 0);
	announces("no socket", SQE(SEND_ZC, .fd = ring_fd, .addr = ADDR(buf), .len = 10), -ENOTSOCK, -1, 0);
	announces("no file", SQE(SEND_ZC, .fd = 1000, .addr = ADDR(buf), .len = 10), -EBADF, -1, 0);
	announces("bad address", SQE(SEND_ZC, .fd = fds[1], .addr = BAD_ADDRESS, .len = 10), -EFAULT, -1, 0);
	announces("unknown flag", SQE(SEND_ZC, 0, 64, fds[1], .addr = ADDR(buf), .len = 10), -EINVAL, -1, 0);
	announces("bundle", SQE(SEND_ZC, 0, BUNDLE, fds[1], .addr = ADDR(buf), .len = 10), -EINVAL, -1, 0);
	announces("beside the address", SQE(SEND_ZC, .fd = fds[1], .addr = ADDR(buf), .file_index = 1 << 16), -EINVAL, -1, 0);
	does("skipping", SQE(SEND_ZC, CQE_SKIP, 0, fds[1], .addr = ADDR(buf), .len = 10), -EINVAL, 0);
	does("unused field", SQE(SEND_ZC, .fd = fds[1], .addr = ADDR(buf), .len = 10, .pad2 = 1), -EINVAL, 0);
	does("selecting", SQE(SEND_ZC, BUFFER_SELECT, 0, fds[1], .addr = ADDR(buf), .len = 10), -EOPNOTSUPP, 0);
	announces("not registered", SQE(SEND_ZC, 0, FIXED_BUF, fds[1], .addr = ADDR(buf), .len = 10), -EFAULT, -1, 0);
	check("registered", reg(REGISTER_BUFFERS, &registered, 1), 0);
	announces("fixed", SQE(SEND_ZC, 0, FIXED_BUF, fds[1], .addr = ADDR(buf), .len = 10), 10, fds[0], 0);
	announces("fixed message", SQE(SENDMSG_ZC, 0, FIXED_BUF, fds[1], .addr = ADDR(&msg), .len = 1), 10, fds[0], 0);
	announces("outside", SQE(SEND_ZC, 0, FIXED_BUF, fds[1], .addr = ADDR(buf + 995), .len = 10), -EFAULT, -1, 0);
	announces("no such buffer", SQE(SEND_ZC, 0, FIXED_BUF, fds[1], .addr = ADDR(buf), .len = 10, .buf_index = 1), -EFAULT, -1, 0);
	submit_linked(SQE(READ, LINK, 0, 1000, .addr = ADDR(buf), .len = 1), SQE(SEND_ZC, .fd = fds[1], .addr = ADDR(buf), .len = 10));
	expect("breaks the link", -EBADF, 0);
	expect("cancelled", -ECANCELED, 0);
	expect("and said all the same", 0, F_NOTIF);
	close(fds[0]);
	close(fds[1]);
}

static void udp_pair(int fds[2])
{
	struct sockaddr_in addr[2];
	socklen_t len = sizeof(addr[0]);
	int i;

	for (i = 0; i < 2; i++) {
		addr[i] = (struct sockaddr_in){ AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
		fds[i] = socket(AF_INET, SOCK_DGRAM, 0);
		bind(fds[i], (void *)&addr[i], len);
		getsockname(fds[i], (void *)&addr[i], &len);
	}
	connect(fds[0], (void *)&addr[1], len);
	connect(fds[1], (void *)&addr[0], len);
}

static struct sqe zc(int fd, int len)
{
	return SQE(SEND_ZC, 0, REPORT_USAGE, fd, .addr = ADDR(buf), .len = len);
}

/*
 * Each request posts one CQE with its result, then one when its buffer is free; the order between
 * requests is open.
 */
static void notifies_of_each(const int *results, int n)
{
	int told[8] = { 0 }, i;

	for (i = 0; i < 2 * n; i++) {
		struct cqe cqe;

		if (!comes(60000))
			break;
		cqe = cqes[*cq_head & *cq_mask];
		__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
		check("flags", cqe.flags, told[cqe.user_data] ? F_NOTIF : F_MORE);
		check("result", cqe.res, told[cqe.user_data] ? COPIED : results[cqe.user_data]);
		told[cqe.user_data]++;
	}
	check("completions", i, 2 * n);
	nothing_comes("no more than that");
}

static void notifications_over_tcp(void)
{
	struct linger linger = { 1, 0 };
	int fds[2], i, n;

	new_ring("notifications over TCP");
	tcp_pair(fds);
	announces("nothing", zc(fds[1], 0), 0, -1, COPIED);
	for (i = 0; i < 3; i++) {
		struct sqe sqe = zc(fds[1], 10 + i);

		sqe.user_data = i;
		sqe.flags = i == 1 ? LINK : 0;
		push(sqe);
	}
	check("submitted", syscall(426, ring_fd, 3, 0, 0, 0, 0), 3);
	notifies_of_each((int[]){ 10, 11, 12 }, 3);
	check("arrived", recv(fds[0], sink, 33, MSG_WAITALL), 33);
	/* More than the sockets hold. */
	n = 4096;
	setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &n, sizeof(n));
	setsockopt(fds[0], SOL_SOCKET, SO_RCVBUF, &n, sizeof(n));
	for (i = 0; i < 60; i++)
		if (send(fds[1], sink, sizeof(sink), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			break;
	submit(SQE(SEND_ZC, 0, REPORT_USAGE, fds[1], .addr = ADDR(buf), .len = 5000, .op_flags = MSG_WAITALL));
	nothing_comes("no room");
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	for (i = 0; i < 60000 && !comes(1); i++)
		while (recv(fds[0], sink, sizeof(sink), 0) > 0)
			;
	expect("all of it", 5000, F_MORE);
	while (!comes(1) && recv(fds[0], sink, sizeof(sink), 0) != 0)
		;
	expect("and its buffer", COPIED, F_NOTIF);
	shutdown(fds[1], SHUT_WR);
	announces("shut down", zc(fds[1], 10), -EPIPE, -1, COPIED);
	close(fds[0]);
	close(fds[1]);

	tcp_pair(fds);
	setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	close(fds[0]);
	announces("reset", zc(fds[1], 10), -ECONNRESET, -1, COPIED);
	announces("and gone", zc(fds[1], 10), -EPIPE, -1, COPIED);
	close(fds[1]);
}

static void notifications_of_datagrams(void)
{
	int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET }, fds[2], i;
	struct sockaddr_in addr;
	socklen_t len = sizeof(addr);
	struct sqe sqe;

	new_ring("notifications of datagrams");
	udp_pair(fds);
	announces("sent", zc(fds[1], 10), 10, fds[0], COPIED);
	announces("nothing", zc(fds[1], 0), 0, -1, COPIED);
	check("an empty one", recv(fds[0], sink, 10, 0), 0);
	announces("the most", zc(fds[1], 65507), 65507, fds[0], COPIED);
	announces("too long", zc(fds[1], 65508), -EMSGSIZE, -1, COPIED);
	getsockname(fds[0], (void *)&addr, &len);
	close(fds[1]);
	fds[1] = socket(AF_INET, SOCK_DGRAM, 0);
	announces("nobody", zc(fds[1], 10), -EDESTADDRREQ, -1, COPIED);
	close(fds[0]);
	fds[0] = socket(AF_INET, SOCK_DGRAM, 0);
	check("bound", bind(fds[0], (void *)&addr, len), 0);
	sqe = zc(fds[1], 10);
	sqe.off = ADDR(&addr);
	sqe.file_index = len;
	announces("to an address", sqe, 10, fds[0], COPIED);
	sqe.flags = FORCE_ASYNC;
	announces("by a worker", sqe, 10, fds[0], COPIED);
	sqe.file_index = 4;
	announces("a short address", sqe, -EINVAL, -1, COPIED);
	close(fds[0]);
	close(fds[1]);
	for (i = 0; i < 3; i++) {
		socketpair(AF_UNIX, types[i], 0, fds);
		announces("local", zc(fds[1], 10), -EOPNOTSUPP, -1, COPIED);
		sqe = zc(fds[1], 10);
		sqe.flags = FORCE_ASYNC;
		announces("local, by a worker", sqe, -EOPNOTSUPP, -1, COPIED);
		close(fds[0]);
		close(fds[1]);
	}
}

int main(void)
{
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	refused();
	sends();
	sends_that_fail();
	receives();
	receives_in_pieces();
	zero_copy();
	notifications_over_tcp();
	notifications_of_datagrams();
	return failures != 0;
}
