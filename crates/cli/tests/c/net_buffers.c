/* Provided buffers, buffer rings and registered files, with sockets and pipes to use them. */
#include <netinet/in.h>
#include <sys/socket.h>
#include "net_ring.h"

#define BUFFER(bid) ((uint32_t)(bid) << 16 | F_BUFFER)
#define GROUP 7

static char buf[1 << 16];
static struct buf *br;

static struct sqe provide(int n, int len, int bid)
{
	return SQE(PROVIDE_BUFFERS, .fd = n, .addr = ADDR(buf + bid * 100), .len = len, .off = bid, .buf_index = GROUP);
}

static struct sqe receive(int fd, unsigned len)
{
	return SQE(RECV, BUFFER_SELECT, .fd = fd, .len = len, .buf_index = GROUP);
}

static struct sqe receive_many(int fd)
{
	return SQE(RECV, BUFFER_SELECT, RECV_MULTISHOT, .fd = fd, .buf_index = GROUP);
}

static void put(int fd, const char *text)
{
	check("written", write(fd, text, strlen(text)), strlen(text));
}

static void fields(void)
{
	struct sqe bad = provide(4, 100, 0), none = SQE(REMOVE_BUFFERS, .fd = 1, .buf_index = GROUP);

	new_ring("buffer fields");
	bad.fd = 0;
	does("none provided", bad, -E2BIG, 0);
	bad.fd = 65537;
	does("more than ids", bad, -E2BIG, 0);
	bad = provide(4, 0, 0);
	does("of no size", bad, -EINVAL, 0);
	bad = provide(4, 1, 0);
	bad.off = 65535;
	does("ids beyond the last", bad, -EINVAL, 0);
	bad.off = 65536;
	does("no such id", bad, -E2BIG, 0);
	bad = provide(4, 100, 0);
	bad.addr = -1ull;
	does("around the end", bad, -EOVERFLOW, 0);
	bad.addr = BAD_ADDRESS;
	does("not the program's", bad, -EFAULT, 0);
	does("from no group", none, -ENOENT, 0);
	does("as many as ids", provide(65536, 1, 0), 0, 0);
	does("one more", provide(1, 1, 0), -EOVERFLOW, 0);
	none.fd = 65536;
	does("all of them", none, 65535, 0);
	none.fd = 0;
	does("remove none", none, -EINVAL, 0);
	does("selected by what does not read", SQE(SENDMSG, BUFFER_SELECT, .fd = 0), -EOPNOTSUPP, 0);
}

static void lists(void)
{
	struct iovec iov[2] = { { 0, 4 }, { 0, 4 } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 1 };
	int fds[2], pipes[2];

	new_ring("lists");
	socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
	if (pipe(pipes))
		perror("pipe");
	does("provide", provide(3, 100, 0), 0, 0);
	does("not a socket", receive(pipes[0], 9), -ENOTSOCK, 0);
	put(fds[1], "hello");
	does("part", receive(fds[0], 3), 3, BUFFER(0) | F_SOCK_NONEMPTY);
	does("as much as fits", receive(fds[0], 0), 2, BUFFER(1));
	does("not waiting", SQE(RECV, BUFFER_SELECT, .fd = fds[0], .op_flags = MSG_DONTWAIT, .buf_index = GROUP), -EAGAIN, 0);
	submit(receive(fds[0], 0));
	nothing_comes("recv waits");
	put(fds[1], "again");
	expect("the buffer was chosen when there was something", 5, BUFFER(2));
	check("its bytes", memcmp(buf + 200, "again", 5), 0);
	does("none left", receive(fds[0], 0), -ENOBUFS, 0);
	does("provide", provide(4, 100, 1), 0, 0);
	put(fds[1], "message");
	does("recvmsg", SQE(RECVMSG, BUFFER_SELECT, .fd = fds[0], .addr = ADDR(&msg), .len = 1, .buf_index = GROUP), 4, BUFFER(1) | F_SOCK_NONEMPTY);
	msg.msg_iovlen = 2;
	does("two places", SQE(RECVMSG, BUFFER_SELECT, .fd = fds[0], .addr = ADDR(&msg), .len = 1, .buf_index = GROUP), -EINVAL, 0);
	msg.msg_iovlen = 0;
	does("no place", SQE(RECVMSG, BUFFER_SELECT, .fd = fds[0], .addr = ADDR(&msg), .len = 1, .buf_index = GROUP), 3, BUFFER(2));
	put(pipes[1], "pipe");
	does("read", SQE(READ, BUFFER_SELECT, .fd = pipes[0], .len = 9, .off = -1, .buf_index = GROUP), 4, BUFFER(3));
	put(fds[1], "abc");
	submit(SQE(RECV, BUFFER_SELECT, .fd = fds[0], .len = 6, .op_flags = MSG_WAITALL, .buf_index = GROUP));
	nothing_comes("half is not all");
	put(fds[1], "def");
	expect("all into one buffer", 6, BUFFER(4));
	check("its bytes", memcmp(buf + 400, "abcdef", 6), 0);
	does("provide", provide(1, 100, 1), 0, 0);
	close(fds[1]);
	does("end", receive(fds[0], 0), 0, 0);
	does("no buffer went with it", SQE(REMOVE_BUFFERS, .fd = 9, .buf_index = GROUP), 1, 0);
}

/* A read that fails takes its buffer along: of a ring, if its file cannot be polled. */
static void failures_of_reads(int async)
{
	struct sqe from_list = SQE(READ, BUFFER_SELECT | async, .len = 10, .buf_index = GROUP), from_ring = from_list;
	int file = open("net_buffers.write", O_WRONLY | O_CREAT, 0600), directory = open(".", O_RDONLY), pipes[2];
	struct buf_reg ring = { ADDR(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), 8, GROUP + 1 };

	new_ring(async ? "failures on a worker" : "failures");
	if (pipe(pipes))
		perror("pipe");
	check("a ring of buffers", reg(REGISTER_PBUF_RING, &ring, 1), 0);
	for (uint16_t bid = 0; bid < 4; bid++)
		((struct buf *)ring.addr)[bid] = (struct buf){ ADDR(buf + bid * 100), 100, bid, 0 };
	__atomic_store_n((uint16_t *)(ring.addr + 14), 4, __ATOMIC_RELEASE);
	from_ring.buf_index = GROUP + 1;
	does("provide", provide(4, 100, 0), 0, 0);
	from_list.fd = from_ring.fd = file;
	does("not to be read, of a list", from_list, -EBADF, BUFFER(0));
	does("not to be read, of a ring", from_ring, -EBADF, BUFFER(0));
	from_list.fd = from_ring.fd = directory;
	does("a directory, of a list", from_list, -EISDIR, BUFFER(1));
	does("a directory, of a ring", from_ring, -EISDIR, BUFFER(1));
	from_list.fd = from_ring.fd = pipes[1];
	does("the pipe's other end, of a list", from_list, -EBADF, BUFFER(2));
	if (!async)
		does("the pipe's other end, of a ring", from_ring, -EBADF, 0);
	from_list.fd = from_ring.fd = -1;
	does("no file, of a list", from_list, -EBADF, 0);
	does("no file, of a ring", from_ring, -EBADF, 0);
	close(file);
	close(directory);
}

static void multishot(void)
{
	int fds[2];

	new_ring("multishot");
	socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
	does("provide", provide(1, 3, 0), 0, 0);
	submit(receive_many(fds[0]));
	nothing_comes("recv waits");
	put(fds[1], "abc");
	expect("one buffer", 3, BUFFER(0) | F_MORE);
	does("provide", provide(1, 100, 1), 0, 0);
	put(fds[1], "def");
	expect("the next one", 3, BUFFER(1) | F_MORE);
	put(fds[1], "ghi");
	expect("none left", -ENOBUFS, 0);
	does("provide", provide(3, 2, 2), 0, 0);
	submit(receive_many(fds[0]));
	expect("what waited", 2, BUFFER(2) | F_MORE | F_SOCK_NONEMPTY);
	expect("and its rest", 1, BUFFER(3) | F_MORE);
	shutdown(fds[1], SHUT_WR);
	expect("end", 0, 0);
	socketpair(AF_UNIX, SOCK_DGRAM, 0, fds);
	put(fds[1], "x");
	does("provide", provide(2, 2, 5), 0, 0);
	submit(receive_many(fds[0]));
	expect("a datagram", 1, BUFFER(4) | F_MORE);
	put(fds[1], "y");
	expect("another one", 1, BUFFER(5) | F_MORE);
	put(fds[1], "z");
	expect("and the last one", 1, BUFFER(6) | F_MORE);
	expect("of datagrams nobody knows whether there is one: no buffer", -ENOBUFS, 0);
}

static void limits(void)
{
	struct sqe sqe;
	int fds[2];

	new_ring("limits");
	socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
	does("provide", provide(4, 100, 0), 0, 0);
	put(fds[1], "abcdefghij");
	sqe = receive_many(fds[0]);
	sqe.len = 3;
	sqe.file_index = 5;
	submit(sqe);
	expect("three at a time", 3, BUFFER(0) | F_MORE | F_SOCK_NONEMPTY);
	expect("until there are five", 3, BUFFER(1) | F_SOCK_NONEMPTY);
	nothing_comes("and no more");
}

/* Each message with its address in a buffer: header, address, ancillary data, payload. */
static void messages(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(addr);
	struct msghdr msg = { .msg_namelen = 20, .msg_controllen = 12 };
	struct { uint32_t namelen, controllen, payloadlen, flags; struct sockaddr_in name; } *out = (void *)buf;
	int receiver = socket(AF_INET, SOCK_DGRAM, 0), sender = socket(AF_INET, SOCK_DGRAM, 0);
	struct sqe sqe = { RECVMSG, BUFFER_SELECT, RECV_MULTISHOT, .fd = receiver, .addr = ADDR(&msg), .len = 1, .buf_index = GROUP };
	int pipe_ends[2];

	new_ring("recvmsg multishot");
	pipe(pipe_ends);
	bind(receiver, (void *)&addr, n);
	getsockname(receiver, (void *)&addr, &n);
	connect(sender, (void *)&addr, n);
	msg.msg_namelen = -1;
	does("a negative length", sqe, -EOVERFLOW, 0);
	msg.msg_namelen = 20;
	does("provide", provide(1, 47, 0), 0, 0);
	put(sender, "lost");
	sqe.fd = 999;
	does("no room, and no file", sqe, -EBADF, 0);
	sqe.fd = pipe_ends[0];
	does("no room, and no socket", sqe, -ENOTSOCK, 0);
	sqe.fd = receiver;
	does("no room for what comes first", sqe, -EFAULT, 0);
	does("provide", provide(2, 60, 1), 0, 0);
	does("remove", SQE(REMOVE_BUFFERS, .fd = 1, .buf_index = GROUP), 1, 0);
	submit(sqe);
	msg.msg_namelen = msg.msg_controllen = 0;
	expect("a message", 48 + 4, BUFFER(1) | F_MORE);
	out = (void *)(buf + 100);
	check("lengths", out->namelen == sizeof(addr) && out->controllen == 0 && out->payloadlen == 4 && out->flags == 0, 1);
	check("address", out->name.sin_family, AF_INET);
	check("payload", memcmp(buf + 100 + 48, "lost", 4), 0);
	put(sender, "longer than its buffer");
	expect("a cut message", 60, BUFFER(2) | F_MORE);
	out = (void *)(buf + 100 + 60);
	check("how much of it", out->payloadlen, 12);
	check("says so", out->flags, MSG_TRUNC);
	expect("and no buffer for the next one", -ENOBUFS, 0);
}

static void add(int at, int bid, int len)
{
	br[at].addr = ADDR(buf + bid * 100);
	br[at].len = len;
	br[at].bid = bid;
	__atomic_store_n(&br[0].tail, at + 1, __ATOMIC_RELEASE);
}

static int head(void)
{
	uint32_t status[10] = { GROUP };
	int r = reg(PBUF_STATUS, status, 1);

	return r < 0 ? r : (int)status[1];
}

static void ring_fields(void *memory)
{
	struct buf_reg good = { ADDR(memory), 8, GROUP }, bad = good;

	new_ring("ring fields");
	check("no group", head(), -ENOENT);
	check("unregister no group", reg(UNREGISTER_PBUF_RING, &good, 1), -ENOENT);
	check("two at once", reg(REGISTER_PBUF_RING, &good, 2), -EINVAL);
	bad.addr = 0;
	check("nowhere", reg(REGISTER_PBUF_RING, &bad, 1), -EFAULT);
	bad.addr = ADDR(memory) + 8;
	check("not at a page", reg(REGISTER_PBUF_RING, &bad, 1), -EINVAL);
	bad.addr = 0x10000;
	check("not mapped", reg(REGISTER_PBUF_RING, &bad, 1), -EFAULT);
	bad = good;
	bad.entries = 3;
	check("no power of two", reg(REGISTER_PBUF_RING, &bad, 1), -EINVAL);
	bad.entries = 65536;
	check("too many", reg(REGISTER_PBUF_RING, &bad, 1), -EINVAL);
	bad = good;
	bad.flags = 4;
	check("unknown flag", reg(REGISTER_PBUF_RING, &bad, 1), -EINVAL);
	does("a list", provide(1, 100, 0), 0, 0);
	check("a list is no ring", head(), -EINVAL);
	check("a list is there", reg(REGISTER_PBUF_RING, &good, 1), -EEXIST);
	does("an empty list", SQE(REMOVE_BUFFERS, .fd = 1, .buf_index = GROUP), 1, 0);
	check("makes room", reg(REGISTER_PBUF_RING, &good, 1), 0);
	check("once", reg(REGISTER_PBUF_RING, &good, 1), -EEXIST);
	does("a ring is no list", provide(1, 100, 0), -EINVAL, 0);
	does("nor can it be emptied", SQE(REMOVE_BUFFERS, .fd = 1, .buf_index = GROUP), -EINVAL, 0);
	check("unregister", reg(UNREGISTER_PBUF_RING, &good, 1), 0);
	check("gone", head(), -ENOENT);
}

static void buffer_ring(const char *name, int flags, void *memory)
{
	struct buf_reg r = { flags & 1 ? 0 : ADDR(memory), 8, GROUP, flags };
	int fds[2];

	new_ring(name);
	check("register", reg(REGISTER_PBUF_RING, &r, 1), 0);
	br = memory;
	if (flags & 1)
		br = mmap(0, 8 * sizeof(*br), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_fd, 0x80000000ull | GROUP << 16);
	if (br == MAP_FAILED) {
		perror("mmap of the buffer ring");
		exit(1);
	}
	socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
	put(fds[1], "hellohellohello");
	does("empty", receive(fds[0], 5), -ENOBUFS, 0);
	add(0, 1, 10);
	add(1, 2, 10);
	does("part of a buffer", receive(fds[0], 4), 4, BUFFER(1) | F_SOCK_NONEMPTY | (flags & 2 ? F_BUF_MORE : 0));
	check("head", head(), flags & 2 ? 0 : 1);
	if (flags & 2) {
		check("what is left of it", br[0].addr == ADDR(buf + 104) && br[0].len == 6, 1);
		does("its rest", receive(fds[0], 0), 6, BUFFER(1) | F_SOCK_NONEMPTY);
		check("head moved on", head(), 1);
	}
	does("the next one", receive(fds[0], 50), flags & 2 ? 5 : 10, BUFFER(2) | (flags & 2 ? F_BUF_MORE : F_SOCK_NONEMPTY));
	check("bytes", memcmp(buf + 100, flags & 2 ? "hellohello" : "hell", flags & 2 ? 10 : 4), 0);
	add(2, 3, 10);
	add(3, 4, 10);
	if (!(flags & 2)) {
		does("the last byte", receive(fds[0], 50), 1, BUFFER(3));
		submit(receive(fds[0], 50));
		nothing_comes("recv waits");
		check("and holds no buffer", head(), 3);
		close(fds[1]);
		expect("end", 0, 0);
		check("no buffer went with it", head(), 3);
	}
	check("unregister", reg(UNREGISTER_PBUF_RING, &(struct buf_reg){ .group = GROUP }, 1), 0);
	does("no group", receive(fds[0], 5), -ENOBUFS, 0);
}

static void files(void)
{
	int none[4] = { -1, -1, -1, -1 }, pipes[2], fds[2];
	struct sqe update = { FILES_UPDATE, .addr = ADDR(fds), .len = 2 };

	new_ring("files");
	if (pipe(pipes))
		perror("pipe");
	does("no table", update, -ENXIO, 0);
	check("a table", reg(REGISTER_FILES, none, 4), 0);
	memcpy(fds, pipes, sizeof(fds));
	does("two files", update, 2, 0);
	close(pipes[0]);
	put(pipes[1], "abc");
	close(pipes[1]);
	does("they live on", SQE(READ, FIXED_FILE, .fd = 0, .addr = ADDR(buf), .len = 9, .off = -1), 3, 0);
	fds[0] = -2;
	fds[1] = -1;
	does("one stays, one goes", update, 2, 0);
	does("the last writer is gone", SQE(READ, FIXED_FILE, .fd = 0, .addr = ADDR(buf), .len = 9, .off = -1), 0, 0);
	update.off = 3;
	does("beyond the table", update, -EINVAL, 0);
	update.off = -2;
	does("around the end", update, -EOVERFLOW, 0);
	update.off = 0;
	fds[0] = 0;
	fds[1] = 999;
	does("the second is none", update, 1, 0);
	fds[0] = 999;
	does("the first is none", update, -EBADF, 0);
	does("and its slot is empty", SQE(READ, FIXED_FILE, .fd = 0, .addr = ADDR(buf), .len = 9, .off = -1), -EBADF, 0);
	fds[0] = ring_fd;
	does("a ring", update, -EBADF, 0);
	update.addr = 8;
	does("nowhere", update, -EFAULT, 0);
	update.len = 0;
	does("nothing", update, -EINVAL, 0);
	fds[0] = fds[1] = 2;
	update = SQE(FILES_UPDATE, .addr = ADDR(fds), .len = 2, .off = UINT32_MAX);
	does("any slots", update, 2, 0);
	check("told which", fds[0] != fds[1] && fds[0] >= 0 && fds[0] < 4 && fds[1] >= 0 && fds[1] < 4, 1);
	fds[0] = fds[1] = 2;
	does("the other two", update, 2, 0);
	does("no slot left", update, -ENFILE, 0);
}

int main(void)
{
	void *memory = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	setvbuf(stdout, 0, _IOLBF, 0);
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	fields();
	lists();
	failures_of_reads(0);
	failures_of_reads(FORCE_ASYNC);
	multishot();
	limits();
	messages();
	ring_fields(memory);
	buffer_ring("ring of the program's", 0, memory);
	buffer_ring("ring to be mapped", 1, 0);
	memset(memory, 0, 4096);
	buffer_ring("incremental", 2, memory);
	files();
	return failures != 0;
}
