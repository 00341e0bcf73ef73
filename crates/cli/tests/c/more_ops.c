/* Pipes, numbers for registered files, epoll sets, multishot reads, and messages between rings. */
#include <sys/epoll.h>
#include <sys/socket.h>
#include "net_ring.h"

enum { MSG_RING = 40, READ_MULTISHOT = 49, FIXED_FD_INSTALL = 54, EPOLL_WAIT = 59, PIPE = 62, FILES_UPDATE_REG = 6, GROUP = 1 };
enum { TIMEOUT = 11, TIMEOUT_REMOVE = 12, UPDATE = 2 };
enum { DATA = 0, SEND_FD = 1, SKIP = 1, PASS = 2 };

static char buf[4096];
static struct buf *br;
static uint16_t tail;

static void give(int n)
{
	while (n-- > 0) {
		br[tail % 8] = (struct buf){ ADDR(buf + tail % 8 * 100), 10, tail % 8, br[tail % 8].tail };
		tail++;
		__atomic_store_n(&br[0].tail, tail, __ATOMIC_RELEASE);
	}
}

static void new_files(const char *name)
{
	int none[4] = { -1, -1, -1, -1 };

	new_ring(name);
	check("files", reg(REGISTER_FILES, none, 4), 0);
}

static void pipes(void)
{
	int p[2];

	new_ring("pipes");
	does("a pipe", SQE(PIPE, .addr = ADDR(p), .op_flags = O_NONBLOCK), 0, 0);
	check("it works", write(p[1], "x", 1) + read(p[0], buf, 10), 2);
	check("and does not block", read(p[0], buf, 10) == -1 && errno == EAGAIN, 1);
	close(p[0]);
	close(p[1]);
	does("file", SQE(PIPE, .fd = 1, .addr = ADDR(p)), -EINVAL, 0);
	does("offset", SQE(PIPE, .off = 1, .addr = ADDR(p)), -EINVAL, 0);
	does("addr3", SQE(PIPE, .addr3 = 1, .addr = ADDR(p)), -EINVAL, 0);
	does("flag", SQE(PIPE, .op_flags = 1, .addr = ADDR(p)), -EINVAL, 0);
	does("address", SQE(PIPE, .addr = BAD_ADDRESS), -EFAULT, 0);
	does("no table", SQE(PIPE, .addr = ADDR(p), .file_index = 1), -ENXIO, 0);
	new_files("pipes in slots");
	does("in slots", SQE(PIPE, .addr = ADDR(p), .file_index = 1), 0, 0);
	check("named", p[0] == 0 && p[1] == 1, 1);
	does("written", SQE(SEND, FIXED_FILE, 0, 1, .addr = ADDR("hi"), .len = 2), -ENOTSOCK, 0);
	does("close on exec", SQE(PIPE, .addr = ADDR(p), .file_index = 1, .op_flags = O_CLOEXEC), -EINVAL, 0);
	does("half outside", SQE(PIPE, .addr = ADDR(p), .file_index = 4), -EINVAL, 0);
	does("in any slots", SQE(PIPE, .addr = ADDR(p), .file_index = ANY_SLOT), 0, 0);
	check("the others", p[0] + p[1], 5);
	does("none is free", SQE(PIPE, .addr = ADDR(p), .file_index = ANY_SLOT), -ENFILE, 0);
}

static void installs(void)
{
	int fd, p[2];

	new_files("installs");
	does("slots", SQE(PIPE, .addr = ADDR(p), .file_index = 1), 0, 0);
	fd = run(SQE(FIXED_FD_INSTALL, FIXED_FILE, 0, 1));
	check("a number", fd > 2, 1);
	check("close on exec", fcntl(fd, F_GETFD), FD_CLOEXEC);
	check("of that file", write(fd, "abc", 3), 3);
	close(fd);
	fd = run(SQE(FIXED_FD_INSTALL, FIXED_FILE, 0, 0, .op_flags = 1));
	check("stays on exec", fcntl(fd, F_GETFD), 0);
	check("read", read(fd, buf, 10), 3);
	close(fd);
	does("not registered", SQE(FIXED_FD_INSTALL, .fd = 0), -EBADF, 0);
	does("empty", SQE(FIXED_FD_INSTALL, FIXED_FILE, 0, 3), -EBADF, 0);
	does("flag", SQE(FIXED_FD_INSTALL, FIXED_FILE, 0, 0, .op_flags = 2), -EINVAL, 0);
	does("length", SQE(FIXED_FD_INSTALL, FIXED_FILE, 0, 0, .len = 1), -EINVAL, 0);
}

static void epolls(void)
{
	struct epoll_event event = { EPOLLIN, { .u64 = 42 } }, events[4];
	int p[2], ep = epoll_create1(0);

	new_ring("epolls");
	pipe(p);
	epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &event);
	submit(SQE(EPOLL_WAIT, .fd = ep, .addr = ADDR(events), .len = 4));
	nothing_comes("nothing is ready");
	write(p[1], "x", 1);
	expect("ready", 1, 0);
	check("told", events[0].data.u64 == 42 && events[0].events == EPOLLIN, 1);
	does("ready already", SQE(EPOLL_WAIT, .fd = ep, .addr = ADDR(events), .len = 4), 1, 0);
	does("asynchronous", SQE(EPOLL_WAIT, FORCE_ASYNC, 0, ep, .addr = ADDR(events), .len = 4), 1, 0);
	does("no room", SQE(EPOLL_WAIT, .fd = ep, .addr = ADDR(events), .len = 0), -EINVAL, 0);
	does("no epoll set", SQE(EPOLL_WAIT, .fd = p[0], .addr = ADDR(events), .len = 1), -EINVAL, 0);
	does("no file", SQE(EPOLL_WAIT, .fd = 999, .addr = ADDR(events), .len = 1), -EBADF, 0);
	does("bad address", SQE(EPOLL_WAIT, .fd = ep, .addr = BAD_ADDRESS, .len = 1), -EFAULT, 0);
	does("unused field", SQE(EPOLL_WAIT, .fd = ep, .off = 1, .addr = ADDR(events), .len = 1), -EINVAL, 0);
	read(p[0], buf, 1);
	submit(SQE(EPOLL_WAIT, .fd = ep, .addr = ADDR(events), .len = 4, .user_data = 5));
	submit(SQE(ASYNC_CANCEL, .addr = 5));
	check("cancelled", next() + next(), -ECANCELED);
	close(p[0]);
	close(p[1]);
	close(ep);
}

static struct sqe reads(int fd)
{
	return SQE(READ_MULTISHOT, BUFFER_SELECT, 0, fd, .buf_index = GROUP);
}

static int holds(int n)
{
	return F_BUFFER | n << 16;
}

static void multishot(void)
{
	struct buf_reg r = { 0, 8, GROUP };
	int p[2], s[2], null = open("/dev/null", O_RDONLY);

	new_ring("multishot reads");
	br = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	r.addr = ADDR(br);
	check("group", reg(REGISTER_PBUF_RING, &r, 1), 0);
	pipe(p);
	does("no buffers", reads(p[0]), -ENOBUFS, 0);
	give(3);
	does("no selection", SQE(READ_MULTISHOT, .fd = p[0], .buf_index = GROUP), -EINVAL, 0);
	does("an address", SQE(READ_MULTISHOT, BUFFER_SELECT, 0, p[0], .addr = 1, .buf_index = GROUP), -EINVAL, 0);
	does("a length", SQE(READ_MULTISHOT, BUFFER_SELECT, 0, p[0], .len = 1, .buf_index = GROUP), -EINVAL, 0);
	does("no readiness", reads(null), -EBADFD, 0);
	does("no file", reads(999), -EBADF, 0);
	does("the wrong end", reads(p[1]), -EBADF, 0);
	submit(reads(p[0]));
	nothing_comes("nothing is there");
	write(p[1], "12345", 5);
	expect("some", 5, holds(0) | F_MORE);
	check("here", memcmp(buf, "12345", 5), 0);
	write(p[1], "0123456789abcdefghij-----", 25);
	expect("more", 10, holds(1) | F_MORE);
	expect("than", 10, holds(2) | F_MORE);
	expect("fits", -ENOBUFS, 0);
	give(2);
	submit(reads(p[0]));
	expect("the rest", 5, holds(3) | F_MORE);
	close(p[1]);
	expect("the end", 0, 0);
	close(p[0]);
	socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	submit(reads(s[0]));
	write(s[1], "abc", 3);
	check("of a socket", next(), 3);
	close(s[0]);
	close(s[1]);
	close(null);
}

/* Selects another ring's CQEs, and back. */
static struct { int fd; struct sqe *sqes; char *rings; uint32_t *ptrs[6]; struct cqe *cqes; } kept;

static void swap(void)
{
	typeof(kept) now = { ring_fd, sqes, rings, { sq_tail, sq_mask, sq_array, cq_head, cq_tail, cq_mask }, cqes };

	ring_fd = kept.fd, sqes = kept.sqes, rings = kept.rings, cqes = kept.cqes;
	sq_tail = kept.ptrs[0], sq_mask = kept.ptrs[1], sq_array = kept.ptrs[2];
	cq_head = kept.ptrs[3], cq_tail = kept.ptrs[4], cq_mask = kept.ptrs[5];
	kept = now;
}

static void messages(void)
{
	uint32_t params[30] = { 0, 0, 1 << 6 };
	int other, disabled, p[2];
	struct { uint32_t offset, resv; uint64_t fds; } update = { 0, 0, ADDR(p) };

	new_files("the other ring");
	other = ring_fd;
	/* Kept, so that closing it does not affect the next step. */
	swap();
	ring_fd = -1;
	new_ring("messages");
	submit(SQE(MSG_RING, .fd = ring_fd, .off = 7, .len = 9));
	check("to itself, and done", next() + next(), 9);
	does("to another", SQE(MSG_RING, .fd = other, .off = 8, .len = 10), 0, 0);
	does("with flags", SQE(MSG_RING, .fd = other, .off = 8, .len = 11, .op_flags = PASS, .file_index = 0x50000), 0, 0);
	swap();
	expect("it came", 10, 0);
	expect("with flags", 11, 0x50000);
	swap();
	does("no ring", SQE(MSG_RING, .fd = 0), -EBADFD, 0);
	does("no file", SQE(MSG_RING, .fd = 999), -EBADF, 0);
	does("flag", SQE(MSG_RING, .fd = other, .op_flags = 4), -EINVAL, 0);
	does("skipping all", SQE(MSG_RING, .fd = other, .op_flags = SKIP), -EINVAL, 0);
	does("command", SQE(MSG_RING, .fd = other, .addr = 2), -EINVAL, 0);
	does("flags not passed", SQE(MSG_RING, .fd = other, .file_index = 1), -EINVAL, 0);
	disabled = syscall(425, 8, params);
	does("disabled", SQE(MSG_RING, .fd = disabled), -EBADFD, 0);
	close(disabled);
	does("no such file", SQE(MSG_RING, .fd = other, .addr = SEND_FD, .addr3 = 0, .file_index = 1), -EBADF, 0);
	check("files", reg(REGISTER_FILES, (int[]){ -1, -1 }, 2), 0);
	pipe(p);
	check("registered", reg(FILES_UPDATE_REG, &update, 1), 1);
	does("a file", SQE(MSG_RING, .fd = other, .addr = SEND_FD, .file_index = 2, .off = 3), 0, 0);
	does("anywhere", SQE(MSG_RING, .fd = other, .addr = SEND_FD, .file_index = ANY_SLOT, .off = 4), 2, 0);
	does("in silence", SQE(MSG_RING, .fd = other, .addr = SEND_FD, .file_index = 1, .op_flags = SKIP), 0, 0);
	does("to itself", SQE(MSG_RING, .fd = ring_fd, .addr = SEND_FD, .file_index = 1), -EINVAL, 0);
	does("a length", SQE(MSG_RING, .fd = other, .addr = SEND_FD, .len = 1, .file_index = 1), -EINVAL, 0);
	does("no slot", SQE(MSG_RING, .fd = other, .addr = SEND_FD, .file_index = 99), -EINVAL, 0);
	swap();
	expect("it came", 0, 0);
	expect("and where to", 2, 0);
	nothing_comes("silence");
	write(p[1], "via", 3);
	does("the file works there", SQE(READ, FIXED_FILE, 0, 1, .addr = ADDR(buf), .len = 10, .off = -1), 3, 0);
}

/* A timeout without a length is over before the next SQE, which does not find it. */
static void over(void)
{
	uint64_t none[2] = { 0, 0 }, later[2] = { 1000, 0 };
	const struct { const char *name; struct sqe sqe; } ways[] = {
		{ "remove", { TIMEOUT_REMOVE, .addr = 't' } },
		{ "update", { TIMEOUT_REMOVE, .addr = 't', .off = ADDR(later), .op_flags = UPDATE } },
		{ "cancel", { ASYNC_CANCEL, .addr = 't' } },
	};
	int i, n, results[2];

	new_ring("a timeout that is over");
	for (i = 0; i < 6; i++) {
		struct sqe sqe = ways[i / 2].sqe;

		sqe.flags = i % 2 ? FORCE_ASYNC : 0;
		push(SQE(TIMEOUT, .addr = ADDR(none), .len = 1, .user_data = 't'));
		push(sqe);
		check("submitted", syscall(426, ring_fd, 2, 0, 0, 0, 0), 2);
		for (n = 0; n < 2; n++) {
			int is_timeout = comes(60000) && cqes[*cq_head & *cq_mask].user_data == 't';

			results[is_timeout] = next();
		}
		check(ways[i / 2].name, results[0], -ENOENT);
		check("the timeout", results[1], -ETIME);
	}
}

int main(void)
{
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	pipes();
	installs();
	epolls();
	multishot();
	messages();
	over();
	return failures != 0;
}
