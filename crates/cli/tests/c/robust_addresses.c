/* Bad addresses wherever a call or an SQE names one: the errno, and a ring that still works. */
#include "robust_ring.h"
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

static char *end_of_page, *read_only;
static struct ring r;
static int p[2], s[2], dir, file, listener;

/*
 * An address out of range, one that is not mapped, one of the kernel's, one with too little left,
 * one that cannot be written.
 */
static uint64_t bad(int kind)
{
	return (uint64_t[]){ 8, 0xdead0000, 0xffff888000000000ull, ADDR(end_of_page) - 4, ADDR(read_only) }[kind];
}

static void calls(void)
{
	section = "calls";
	struct params params = { 0 };
	char garbage[512];

	memset(garbage, 0xff, sizeof(garbage));
	for (int kind = 0; kind < 5; kind++) {
		void *at = (void *)bad(kind);

		check("setup", setup_call(4, at), -EFAULT);
		if (kind == 4)
			continue;
		check("buffers", register_call(r.fd, 0, at, 1), -EFAULT);
		check("files", register_call(r.fd, 2, at, 2), -EFAULT);
		check("eventfd", register_call(r.fd, 4, kind == 3 ? at + 2 : at, 1), -EFAULT);
		check("files update", register_call(r.fd, 6, at, 1), -EFAULT);
		check("probe", register_call(r.fd, 8, at, 10), -EFAULT);
		check("files2", register_call(r.fd, 13, at, 32), -EFAULT);
		check("buffers2", register_call(r.fd, 15, at, 32), -EFAULT);
		check("buffer ring", register_call(r.fd, 22, at, 1), -EFAULT);
		check("sync cancel", register_call(r.fd, 24, at, 1), -EFAULT);
		check("max workers", register_call(r.fd, 19, at, 2), -EFAULT);
		check("ring fds", register_call(r.fd, 20, at, 1), -EFAULT);
		check("alloc range", register_call(r.fd, 25, at, 0), -EFAULT);
		check("the long argument", enter_call(r.fd, 0, 1, GETEVENTS | EXT_ARG, at, 24), -EFAULT);
		check("a mask", enter_call(r.fd, 0, 1, GETEVENTS, at, 8), -EFAULT);
		uint64_t arg[3] = { 0, 0, bad(kind) };
		check("a timeout", enter_call(r.fd, 0, 1, GETEVENTS | EXT_ARG, arg, 24), -EFAULT);
		uint64_t iov[2] = { bad(kind), 100 };
		check("a buffer", register_call(r.fd, 0, iov, 1), -EFAULT);
		works(&r);
	}
	check("probe to be written", register_call(r.fd, 8, read_only, 10), -EFAULT);
	check("no structure", register_call(r.fd, 8, garbage, 10), -EINVAL);
	check("no parameters", setup_call(4, garbage), -EINVAL);
	check("no ring", setup_call(4, 0), -EFAULT);
	(void)params;
}

static int one(struct sqe sqe)
{
	return run(&r, sqe);
}

static void transfers(void)
{
	section = "transfers";
	for (int async = 0; async <= FORCE_ASYNC; async += FORCE_ASYNC) {
		for (int kind = 0; kind < 5; kind++) {
			uint64_t at = bad(kind);

			if (kind == 3)
				continue;
			struct iovec iov = { (void *)at, 100 };
			struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

			check("read", one(SQE(.opcode = READ, .fd = file, .addr = at, .len = 100, .flags = async)), -EFAULT);
			check("readv", one(SQE(.opcode = READV, .fd = file, .addr = ADDR(&iov), .len = 1, .flags = async)), -EFAULT);
			write(p[1], "x", 1);
			check("read of a pipe", one(SQE(.opcode = READ, .fd = p[0], .addr = at, .len = 100, .flags = async)), -EFAULT);
			char c;
			fcntl(p[0], F_SETFL, O_NONBLOCK);
			while (read(p[0], &c, 1) == 1)
				;
			fcntl(p[0], F_SETFL, 0);
			if (kind == 4)
				continue;
			check("write", one(SQE(.opcode = WRITE, .fd = file, .addr = at, .len = 100, .flags = async)), -EFAULT);
			check("write to a pipe", one(SQE(.opcode = WRITE, .fd = p[1], .addr = at, .len = 100, .flags = async)), -EFAULT);
			check("iovecs", one(SQE(.opcode = READV, .fd = file, .addr = at, .len = 1, .flags = async)), -EFAULT);
			check("iovecs for writing", one(SQE(.opcode = 2, .fd = file, .addr = at, .len = 1, .flags = async)), -EFAULT);
			check("send", one(SQE(.opcode = SEND, .fd = s[0], .addr = at, .len = 100, .flags = async)), -EFAULT);
			check("sendmsg", one(SQE(.opcode = SENDMSG, .fd = s[0], .addr = at, .len = 1, .flags = async)), -EFAULT);
			check("its iovecs", one(SQE(.opcode = SENDMSG, .fd = s[0], .addr = ADDR(&msg), .len = 1, .flags = async)), -EFAULT);
			check("recvmsg", one(SQE(.opcode = 10, .fd = s[0], .addr = at, .len = 1, .flags = async)), -EFAULT);
			works(&r);
		}
		/* The mapped part is read; the rest is not there. */
		check("to the end of the page", one(SQE(.opcode = READ, .fd = file, .addr = ADDR(end_of_page) - 10, .len = 10, .flags = async)), 10);
		check("from the end of the page", one(SQE(.opcode = WRITE, .fd = file, .addr = ADDR(end_of_page) - 10, .len = 10, .flags = async)), 10);
	}
	/* Buffers that are unmapped while their request waits. */
	char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	submit(&r, SQE(.opcode = RECV, .fd = s[0], .addr = ADDR(page), .len = 100));
	munmap(page, 4096);
	write(s[1], "hello", 5);
	check("an unmapped buffer", next(&r), -EFAULT);
	check("the data stay", read(s[0], end_of_page - 100, 100), 5);
	/* iovecs and headers may be freed once they are submitted. */
	page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*(struct iovec *)page = (struct iovec){ end_of_page - 100, 100 };
	submit(&r, SQE(.opcode = READV, .fd = p[0], .addr = ADDR(page), .len = 1));
	munmap(page, 4096);
	write(p[1], "hello", 5);
	check("unmapped iovecs", next(&r), 5);
}

static void names(void)
{
	section = "names";
	for (int kind = 0; kind < 3; kind++) {
		uint64_t at = bad(kind);
		struct stat st;

		check("openat", one(SQE(.opcode = 18, .fd = dir, .addr = at)), -EFAULT);
		check("openat2", one(SQE(.opcode = 28, .fd = dir, .addr = ADDR("x"), .off = at, .len = 24)), -EFAULT);
		check("statx", one(SQE(.opcode = 21, .fd = dir, .addr = at, .off = ADDR(&st), .len = 0x7ff)), -EFAULT);
		check("statx's answer", one(SQE(.opcode = 21, .fd = dir, .addr = ADDR("."), .off = at, .len = 0x7ff)), -EFAULT);
		check("unlinkat", one(SQE(.opcode = 36, .fd = dir, .addr = at)), -EFAULT);
		check("mkdirat", one(SQE(.opcode = 37, .fd = dir, .addr = at, .len = 0700)), -EFAULT);
		check("renameat", one(SQE(.opcode = 35, .fd = dir, .addr = at, .len = dir, .off = ADDR("x"))), -EFAULT);
		check("to", one(SQE(.opcode = 35, .fd = dir, .addr = ADDR("x"), .len = dir, .off = at)), -EFAULT);
		check("symlinkat", one(SQE(.opcode = 38, .fd = dir, .addr = at, .off = ADDR("x"))), -EFAULT);
		check("linkat", one(SQE(.opcode = 39, .fd = dir, .addr = at, .len = dir, .off = ADDR("x"))), -EFAULT);
	}
	works(&r);
}

static void others(void)
{
	section = "other operations";
	for (int kind = 0; kind < 3; kind++) {
		uint64_t at = bad(kind);
		int ep = epoll_create1(0), tcp = socket(AF_INET, SOCK_STREAM, 0);

		check("timeout", one(SQE(.opcode = TIMEOUT, .addr = at, .len = 1)), -EFAULT);
		check("link timeout", (push(&r, SQE(.opcode = NOP, .flags = LINK)), push(&r, SQE(.opcode = LINK_TIMEOUT, .addr = at, .len = 1)),
				       enter_call(r.fd, 2, 2, GETEVENTS, 0, 0), take(&r), next(&r)), -EFAULT);
		check("epoll_ctl", one(SQE(.opcode = 29, .fd = ep, .len = EPOLL_CTL_ADD, .off = p[0], .addr = at)), -EFAULT);
		check("connect", one(SQE(.opcode = 16, .fd = tcp, .addr = at, .off = 16)), -EFAULT);
		check("bind", one(SQE(.opcode = 56, .fd = tcp, .addr = at, .off = 16)), -EFAULT);
		check("files update", one(SQE(.opcode = 20, .addr = at, .len = 1)), -ENXIO);
		uint64_t len = 16;
		struct sockaddr_in address;
		submit(&r, SQE(.opcode = ACCEPT, .fd = listener, .addr = at, .off = ADDR(&len)));
		socklen_t size = sizeof(address);
		getsockname(listener, (void *)&address, &size);
		connect(tcp, (void *)&address, size);
		check("accept", next(&r), -EFAULT);
		close(tcp);
		close(ep);
	}
	works(&r);
}

int main(void)
{
	struct sockaddr_in any = { AF_INET };

	block_if_asked();
	end_of_page = mmap(0, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	read_only = end_of_page + 8192;
	mprotect(end_of_page + 4096, 4096, PROT_NONE);
	mprotect(read_only, 4096, PROT_READ);
	end_of_page += 4096;
	memset(end_of_page - 4096, 0, 4096);
	pipe(p);
	socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	dir = open(".", O_RDONLY | O_DIRECTORY);
	file = open("addresses", O_RDWR | O_CREAT | O_TRUNC, 0600);
	for (int i = 0; i < 100; i++)
		write(file, end_of_page - 4096, 4096);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	bind(listener, (void *)&any, sizeof(any));
	listen(listener, 8);
	r = new_ring(8);
	calls();
	transfers();
	names();
	others();
	return finish();
}
