/* URING_CMD on sockets, block devices and other files of the kernel. */
#include <linux/loop.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/stat.h>
#include "kernel_release.h"
#include "net_ring.h"

enum { URING_CMD = 46, TIMEOUT = 11 };
enum { INQ, OUTQ, GETOPT, SETOPT, TIMESTAMP, GETNAME };
enum { CMD_FIXED = 1, CMD_MULTISHOT = 2, CQE_SKIP = 64 };
#define DISCARD 0x1200
#define TCP_OPTION(name) (IPPROTO_TCP | (uint64_t)(name) << 32)
#define SOCKET_OPTION(name) (SOL_SOCKET | (uint64_t)(name) << 32)
#define CMD(file, command, ...) SQE(URING_CMD, .fd = file, .off = command, ##__VA_ARGS__)
#define GET(file, option, value, len) CMD(file, GETOPT, .addr = option, .addr3 = ADDR(value), .file_index = len)
#define SET(file, option, value, len) CMD(file, SETOPT, .addr = option, .addr3 = ADDR(value), .file_index = len)

static int listener, tcp[2], udp, pair[2], pipes[2];

static void make_sockets(void)
{
	struct sockaddr_in addr = { AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
	socklen_t n = sizeof(addr);

	listener = socket(AF_INET, SOCK_STREAM, 0);
	udp = socket(AF_INET, SOCK_DGRAM, 0);
	tcp[1] = socket(AF_INET, SOCK_STREAM, 0);
	bind(listener, (void *)&addr, n);
	listen(listener, 4);
	getsockname(listener, (void *)&addr, &n);
	check("connected", connect(tcp[1], (void *)&addr, n), 0);
	tcp[0] = accept(listener, 0, 0);
	check("pairs", socketpair(AF_UNIX, SOCK_STREAM, 0, pair) | pipe(pipes), 0);
}

/* A send buffer that the peer does not read: the bytes stay in the queues. */
static void queues(void)
{
	static char big[1 << 16];
	int unsent;

	new_ring("queues");
	does("nothing to read", CMD(tcp[0], INQ), 0, 0);
	does("nothing to send", CMD(tcp[1], OUTQ), 0, 0);
	check("written", write(tcp[1], "abcde", 5), 5);
	check("arrives", poll(&(struct pollfd){ tcp[0], POLLIN }, 1, 60000), 1);
	does("five bytes to read", CMD(tcp[0], INQ), 5, 0);
	fcntl(tcp[1], F_SETFL, O_NONBLOCK);
	while (write(tcp[1], big, sizeof(big)) > 0)
		;
	fcntl(tcp[1], F_SETFL, 0);
	unsent = run(CMD(tcp[1], OUTQ));
	check("much to send", unsent > 0, 1);
	does("a listener has no bytes", CMD(listener, INQ), -EINVAL, 0);
	does("nor anything to send", CMD(listener, OUTQ), -EINVAL, 0);
	does("Unix sockets do not say", CMD(pair[0], INQ), -EOPNOTSUPP, 0);
	does("neither what they have to send", CMD(pair[0], OUTQ), -EOPNOTSUPP, 0);
	does("datagrams", CMD(udp, INQ), 0, 0);
	does("datagrams to send", CMD(udp, OUTQ), 0, 0);
}

static void options(void)
{
	static const int one = 1;
	int value = -1;

	new_ring("options");
	does("set", SET(tcp[0], SOCKET_OPTION(SO_KEEPALIVE), &one, 4), 0, 0);
	does("get", GET(tcp[0], SOCKET_OPTION(SO_KEEPALIVE), &value, 4), 4, 0);
	check("what was set", value, 1);
	does("set another level", SET(tcp[0], TCP_OPTION(TCP_NODELAY), &one, 4), 0, 0);
	does("get another level", GET(tcp[0], TCP_OPTION(TCP_NODELAY), &value, 4), -EOPNOTSUPP, 0);
	does("Unix socket", GET(pair[0], SOCKET_OPTION(SO_TYPE), &value, 4), 4, 0);
	check("its type", value, SOCK_STREAM);
	does("longer than the value", GET(tcp[0], SOCKET_OPTION(SO_TYPE), &value, 99), 4, 0);
	does("shorter than the value", GET(tcp[0], SOCKET_OPTION(SO_TYPE), &value, 1), 1, 0);
	does("no length", GET(tcp[0], SOCKET_OPTION(SO_TYPE), &value, 0), 0, 0);
	does("negative length", GET(tcp[0], SOCKET_OPTION(SO_TYPE), &value, -1), -EINVAL, 0);
	does("bad address", GET(tcp[0], SOCKET_OPTION(SO_TYPE), 8, 4), -EFAULT, 0);
	does("unknown option", GET(tcp[0], SOCKET_OPTION(9999), &value, 4), -ENOPROTOOPT, 0);
	does("set from a bad address", SET(tcp[0], SOCKET_OPTION(SO_KEEPALIVE), 8, 4), -EFAULT, 0);
	does("set too short", SET(tcp[0], SOCKET_OPTION(SO_KEEPALIVE), &one, 1), -EINVAL, 0);
	does("set, negative length", SET(tcp[0], SOCKET_OPTION(SO_KEEPALIVE), &one, -1), -EINVAL, 0);
	does("set an unknown option", SET(tcp[0], SOCKET_OPTION(9999), &one, 4), -ENOPROTOOPT, 0);
	does("set an unknown level", SET(tcp[0], 12345, &one, 4), -ENOPROTOOPT, 0);
	does("unknown command", CMD(tcp[0], 99), -EOPNOTSUPP, 0);
	does("time stamps need 32-byte CQEs", CMD(tcp[0], TIMESTAMP), -EINVAL, 0);
}

/* The address of a socket, since Linux 6.19. */
static void names(void)
{
	struct sockaddr_in addr, want;
	socklen_t n = sizeof(want);
	int known = has_since(6, 19), len = sizeof(addr);

	new_ring("names");
	getsockname(tcp[0], (void *)&want, &n);
	does("own name", CMD(tcp[0], GETNAME, .addr = ADDR(&addr), .addr3 = ADDR(&len)), known ? 0 : -EOPNOTSUPP, 0);
	check("own address", known && memcmp(&addr, &want, sizeof(addr)), 0);
	getpeername(tcp[0], (void *)&want, &n);
	does("peer's name", CMD(tcp[0], GETNAME, .addr = ADDR(&addr), .addr3 = ADDR(&len), .file_index = 1), known ? 0 : -EOPNOTSUPP, 0);
	check("peer's address", known && memcmp(&addr, &want, sizeof(addr)), 0);
	does("nobody's name", CMD(tcp[0], GETNAME, .addr = ADDR(&addr), .addr3 = ADDR(&len), .file_index = 2), known ? -EINVAL : -EOPNOTSUPP, 0);
	does("a length beside it", CMD(tcp[0], GETNAME, .addr = ADDR(&addr), .addr3 = ADDR(&len), .len = 1), known ? -EINVAL : -EOPNOTSUPP, 0);
	does("a flag beside it", CMD(tcp[0], GETNAME, .addr = ADDR(&addr), .addr3 = ADDR(&len), .op_flags = CMD_FIXED), known ? -EINVAL : -EOPNOTSUPP, 0);
	does("no peer", CMD(listener, GETNAME, .addr = ADDR(&addr), .addr3 = ADDR(&len), .file_index = 1), known ? -ENOTCONN : -EOPNOTSUPP, 0);
	does("bad address", CMD(tcp[0], GETNAME, .addr = 8, .addr3 = ADDR(&len)), known ? -EFAULT : -EOPNOTSUPP, 0);
	does("bad length", CMD(tcp[0], GETNAME, .addr = ADDR(&addr), .addr3 = 8), known ? -EFAULT : -EOPNOTSUPP, 0);
	len = -1;
	does("negative length", CMD(tcp[0], GETNAME, .addr = ADDR(&addr), .addr3 = ADDR(&len)), known ? -EINVAL : -EOPNOTSUPP, 0);
	len = 2;
	does("short", CMD(tcp[0], GETNAME, .addr = ADDR(&addr), .addr3 = ADDR(&len)), known ? 0 : -EOPNOTSUPP, 0);
	check("its full length", len, known ? sizeof(addr) : 2);
}

static void fields(void)
{
	static const struct { const char *name; struct sqe sqe; int res, on_pipe; } cases[] = {
		{ "ioprio", { URING_CMD, .ioprio = 1 }, -EINVAL, -EINVAL },
		{ "beside the command", { URING_CMD, .off = 1ull << 32 }, -EINVAL, -EINVAL },
		{ "len", { URING_CMD, .len = 1 }, 0, -EOPNOTSUPP },
		{ "addr", { URING_CMD, .addr = 1 }, 0, -EOPNOTSUPP },
		{ "addr3", { URING_CMD, .addr3 = 1 }, 0, -EOPNOTSUPP },
		{ "buf_index", { URING_CMD, .buf_index = 1 }, 0, -EOPNOTSUPP },
		{ "file_index", { URING_CMD, .file_index = 1 }, 0, -EOPNOTSUPP },
		{ "fixed", { URING_CMD, .op_flags = CMD_FIXED }, 0, -EOPNOTSUPP },
		{ "multishot", { URING_CMD, .op_flags = CMD_MULTISHOT }, -EINVAL, -EINVAL },
		{ "unknown flag", { URING_CMD, .op_flags = 4 }, -EINVAL, -EINVAL },
		{ "highest flag", { URING_CMD, .op_flags = 1u << 31 }, -EINVAL, -EINVAL },
		{ "select", { URING_CMD, BUFFER_SELECT }, -EINVAL, -EINVAL },
		{ "select, fixed, multishot", { URING_CMD, BUFFER_SELECT, .op_flags = CMD_FIXED | CMD_MULTISHOT }, -EINVAL, -EINVAL },
		{ "async", { URING_CMD, FORCE_ASYNC }, 0, -EOPNOTSUPP },
		{ "personality", { URING_CMD, .personality = 1 }, -EINVAL, -EINVAL },
	};
	unsigned i;

	new_ring("fields");
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sqe sqe = cases[i].sqe;

		sqe.fd = udp;
		does(cases[i].name, sqe, cases[i].res, 0);
		sqe.fd = pipes[0];
		does(cases[i].name, sqe, cases[i].on_pipe, 0);
	}
	does("multishot on a pipe", SQE(URING_CMD, BUFFER_SELECT, .fd = pipes[0], .op_flags = CMD_MULTISHOT), -EOPNOTSUPP, 0);
}

static void files(void)
{
	static const char *const without[] = { "/dev/zero", "/proc/self/maps", "/", "/dev/urandom" };
	int table[4] = { tcp[0], -1, pipes[0], pair[0] }, value, fd;
	unsigned i;

	new_ring("files");
	for (i = 0; i < sizeof(without) / sizeof(*without); i++) {
		fd = open(without[i], O_RDONLY);
		does(without[i], CMD(fd, INQ), -EOPNOTSUPP, 0);
		close(fd);
	}
	fd = eventfd(0, 0);
	does("eventfd", CMD(fd, GETOPT), -EOPNOTSUPP, 0);
	close(fd);
	does("the ring", CMD(ring_fd, INQ), -EOPNOTSUPP, 0);
	fd = open("/dev/null", O_RDWR);
	does("/dev/null takes anything", CMD(fd, 4711), 0, 0);
	close(fd);
	does("a closed number", CMD(fd, INQ), -EBADF, 0);
	fd = open("/dev/null", O_PATH);
	does("a path", CMD(fd, INQ), -EBADF, 0);
	close(fd);
	check("registered", reg(REGISTER_FILES, table, 4), 0);
	does("registered socket", SQE(URING_CMD, FIXED_FILE, .fd = 3, .off = GETOPT, .addr = SOCKET_OPTION(SO_TYPE), .addr3 = ADDR(&value), .file_index = 4), 4, 0);
	check("its type", value, SOCK_STREAM);
	does("empty slot", SQE(URING_CMD, FIXED_FILE, .fd = 1), -EBADF, 0);
	does("beyond the table", SQE(URING_CMD, FIXED_FILE, .fd = 4), -EBADF, 0);
	does("registered pipe", SQE(URING_CMD, FIXED_FILE, .fd = 2), -EOPNOTSUPP, 0);
}

static void chains(void)
{
	uint64_t ts[2] = { 0, 10000000 };
	uint32_t iopoll[30] = { [2] = 1 };
	struct sqe sqe;
	int value = -1;

	new_ring("chains");
	sqe = GET(tcp[0], SOCKET_OPTION(9999), &value, 4);
	sqe.flags = LINK;
	submit_linked(sqe, SQE(NOP));
	expect("an error", -ENOPROTOOPT, 0);
	expect("breaks the chain", -ECANCELED, 0);
	sqe = GET(tcp[0], SOCKET_OPTION(SO_TYPE), &value, 1);
	sqe.flags = LINK;
	submit_linked(sqe, SQE(NOP));
	expect("a cut value", 1, 0);
	expect("does not", 0, 0);
	sqe = GET(tcp[0], SOCKET_OPTION(SO_TYPE), &value, 4);
	sqe.flags = CQE_SKIP;
	submit(sqe);
	nothing_comes("its result is skipped");
	check("its value is there", value, SOCK_STREAM);
	value = -1;
	submit_linked(SQE(TIMEOUT, LINK, .addr = ADDR(ts), .len = 1, .op_flags = 32), GET(tcp[0], SOCKET_OPTION(SO_TYPE), &value, 4));
	expect("a while", -ETIME, 0);
	expect("then the option", 4, 0);
	check("its type", value, SOCK_STREAM);
	does("nothing to cancel", SQE(ASYNC_CANCEL, .addr = 77), -ENOENT, 0);
	close(ring_fd);
	open_ring("iopoll", iopoll);
	does("a socket cannot be polled for completion", CMD(tcp[0], INQ), -EOPNOTSUPP, 0);
	does("nor a pipe", CMD(pipes[0], INQ), -EOPNOTSUPP, 0);
	does("a closed number", CMD(999, INQ), -EBADF, 0);
}

/* A loop device on a file of 1 MiB; -1: there is none to be had. */
static int loop_device(int flags, int *backing)
{
	char name[64];
	int control = open("/dev/loop-control", O_RDWR), device, tries, number;

	*backing = open("backing", O_RDWR | O_CREAT | O_TRUNC, 0600);
	check("a backing file", ftruncate(*backing, 1 << 20), 0);
	for (tries = 0; control >= 0 && tries < 100; tries++) {
		struct loop_config config = { .fd = *backing, .block_size = 512, .info.lo_flags = LO_FLAGS_AUTOCLEAR };

		number = ioctl(control, LOOP_CTL_GET_FREE);
		snprintf(name, sizeof(name), "/dev/loop%d", number);
		if (number >= 0 && access(name, F_OK))
			mknod(name, S_IFBLK | 0600, makedev(7, number));
		device = open(name, O_RDWR);
		if (device >= 0 && ioctl(device, LOOP_CONFIGURE, &config) == 0) {
			int opened = open(name, flags);

			close(control);
			close(device);
			return opened;
		}
		close(device);
	}
	close(control);
	return -1;
}

static void blocks(void)
{
	static char data[8192], zero[8192];
	int backing, fd = loop_device(O_RDWR, &backing);

	new_ring("block devices");
	if (fd < 0) {
		printf("no loop device: discard is not tested\n");
		return;
	}
	memset(data, 'x', sizeof(data));
	check("written", pwrite(fd, data, sizeof(data), 65536), sizeof(data));
	check("on the disk", fsync(fd), 0);
	does("discard", CMD(fd, DISCARD, .addr = 65536, .addr3 = 4096), 0, 0);
	check("read", pread(fd, data, 8192, 65536), 8192);
	check("the first half is gone", memcmp(data, zero, 4096), 0);
	check("the second is not", data[4096] == 'x' && data[8191] == 'x', 1);
	does("async", SQE(URING_CMD, FORCE_ASYNC, .fd = fd, .off = DISCARD, .addr = 69632, .addr3 = 4096), 0, 0);
	check("read again", pread(fd, data, 8192, 65536), 8192);
	check("all is gone", memcmp(data, zero, 8192), 0);
	does("unaligned start", CMD(fd, DISCARD, .addr = 1, .addr3 = 4096), -EINVAL, 0);
	does("unaligned length", CMD(fd, DISCARD, .addr3 = 100), -EINVAL, 0);
	does("nothing", CMD(fd, DISCARD), -EINVAL, 0);
	does("beyond the end", CMD(fd, DISCARD, .addr = 1 << 20, .addr3 = 4096), -EINVAL, 0);
	does("an overflow", CMD(fd, DISCARD, .addr = ~0ull << 9, .addr3 = 4096), -EINVAL, 0);
	does("len", CMD(fd, DISCARD, .addr3 = 4096, .len = 1), -EINVAL, 0);
	does("a flag", CMD(fd, DISCARD, .addr3 = 4096, .op_flags = CMD_FIXED), -EINVAL, 0);
	does("file_index", CMD(fd, DISCARD, .addr3 = 4096, .file_index = 1), -EINVAL, 0);
	does("another command", CMD(fd, DISCARD + 1, .addr3 = 4096), -EINVAL, 0);
	does("a socket's command", CMD(fd, INQ), -EINVAL, 0);
	submit_linked(SQE(URING_CMD, LINK, .fd = fd, .off = DISCARD), SQE(NOP));
	expect("an error", -EINVAL, 0);
	expect("breaks the chain", -ECANCELED, 0);
	close(fd);
	close(backing);
	fd = loop_device(O_RDONLY, &backing);
	does("opened for reading", CMD(fd, DISCARD, .addr3 = 4096), -EBADF, 0);
	close(fd);
	close(backing);
}

int main(void)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	make_sockets();
	queues();
	options();
	names();
	fields();
	files();
	chains();
	blocks();
	return failures != 0;
}
