/* Sockets through a ring. */
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "net_ring.h"

static char buf[1 << 20];

static int loopback(struct sockaddr_in *addr, int type)
{
	socklen_t n = sizeof(*addr);
	int fd = socket(AF_INET, type, 0);

	memset(addr, 0, sizeof(*addr));
	addr->sin_family = AF_INET;
	addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bind(fd, (void *)addr, n);
	getsockname(fd, (void *)addr, &n);
	if ((type & 15) == SOCK_STREAM)
		listen(fd, 16);
	return fd;
}

static int client(const struct sockaddr_in *addr)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (connect(fd, (void *)addr, sizeof(*addr)))
		perror("connect");
	return fd;
}

static void tcp_pair(int fds[2])
{
	struct sockaddr_in addr;
	int listener = loopback(&addr, SOCK_STREAM);

	fds[1] = client(&addr);
	fds[0] = accept(listener, 0, 0);
	close(listener);
}

static void put(int fd, const char *text)
{
	check("written", write(fd, text, strlen(text)), strlen(text));
}

static void fields(void)
{
	static const struct { const char *name; struct sqe sqe; int res; } bad[] = {
		{ "accept len", { ACCEPT, .len = 1 }, -EINVAL },
		{ "accept buf_index", { ACCEPT, .buf_index = 1 }, -EINVAL },
		{ "accept ioprio", { ACCEPT, .ioprio = 8 }, -EINVAL },
		{ "accept flags", { ACCEPT, .op_flags = 1 }, -EINVAL },
		{ "accept slot, close on exec", { ACCEPT, .file_index = 1, .op_flags = SOCK_CLOEXEC }, -EINVAL },
		{ "accept multishot, one slot", { ACCEPT, .ioprio = ACCEPT_MULTISHOT, .file_index = 1 }, -EINVAL },
		{ "connect len", { CONNECT, .len = 1 }, -EINVAL },
		{ "connect long address", { CONNECT, .addr = 8, .off = 129 }, -EINVAL },
		{ "connect bad address", { CONNECT, .addr = 8, .off = 16 }, -EFAULT },
		{ "send ioprio", { SEND, .ioprio = RECV_MULTISHOT }, -EINVAL },
		{ "send beside addr_len", { SEND, .file_index = 1 << 16 }, -EINVAL },
		{ "recv addr2", { RECV, .off = 1 }, -EINVAL },
		{ "recv file_index", { RECV, .file_index = 1 }, -EINVAL },
		{ "recv multishot without buffers", { RECV, .ioprio = RECV_MULTISHOT }, -EINVAL },
		{ "recv multishot, all", { RECV, BUFFER_SELECT, RECV_MULTISHOT, .op_flags = MSG_WAITALL }, -EINVAL },
		{ "recv multishot, no group", { RECV, BUFFER_SELECT, RECV_MULTISHOT, .buf_index = 9 }, -ENOBUFS },
		{ "recvmsg file_index", { RECVMSG, .file_index = 1 }, -EINVAL },
		{ "recvmsg bundle", { RECVMSG, .ioprio = BUNDLE }, -EINVAL },
		{ "sendmsg addr2", { SENDMSG, .off = 1 }, -EINVAL },
		{ "sendmsg file_index", { SENDMSG, .file_index = 1 }, -EINVAL },
		{ "sendmsg bad header", { SENDMSG, .addr = 8 }, -EFAULT },
		{ "recvmsg bad header", { RECVMSG, .addr = BAD_ADDRESS }, -EFAULT },
		{ "shutdown addr", { SHUTDOWN, .addr = 1 }, -EINVAL },
		{ "shutdown how", { SHUTDOWN, .len = 9 }, -EINVAL },
		{ "socket addr", { SOCKET, .addr = 1 }, -EINVAL },
		{ "socket type", { SOCKET, .off = SOCK_STREAM | 0x100 }, -EINVAL },
		{ "bind len", { BIND, .len = 1 }, -EINVAL },
		{ "listen addr2", { LISTEN, .off = 1 }, -EINVAL },
	};
	unsigned i;
	int pair[2], pipes[2];

	new_ring("fields");
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	if (pipe(pipes))
		perror("pipe");
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct sqe sqe = bad[i].sqe;

		if (sqe.opcode != SOCKET)
			sqe.fd = pair[0];
		does(bad[i].name, sqe, bad[i].res, 0);
	}
	for (i = 0; i < 7; i++) {
		static const uint8_t ops[] = { ACCEPT, CONNECT, SEND, RECV, SHUTDOWN, BIND, LISTEN };
		struct sqe sqe = { ops[i], .fd = pipes[0] };

		does("not a socket", sqe, -ENOTSOCK, 0);
		sqe.fd = 999;
		does("no file", sqe, -EBADF, 0);
		sqe.fd = -1;
		does("negative file", sqe, -EBADF, 0);
	}
	close(pair[1]);
	does("send to nobody", SQE(SEND, .fd = pair[0], .addr = ADDR(buf), .len = 1), -EPIPE, 0);
}

/* POLL_FIRST looks at readiness first, and then at what the file is. */
static void polled_first(void)
{
	struct msghdr msg = { 0 };
	int file = open("/dev/null", O_RDWR), pipes[2];

	new_ring("polled first");
	if (pipe(pipes))
		perror("pipe");
	for (int flags = 0; flags <= FORCE_ASYNC; flags += FORCE_ASYNC) {
		does("no file", SQE(RECV, flags, POLL_FIRST, .fd = -1, .addr = ADDR(buf), .len = 3), -EBADF, 0);
		does("a file that is always ready", SQE(RECV, flags, POLL_FIRST, .fd = file, .addr = ADDR(buf), .len = 3), -EAGAIN, 0);
		does("to send to it", SQE(SEND, flags, POLL_FIRST, .fd = file, .addr = ADDR(buf), .len = 3), -ENOTSOCK, 0);
		does("a message of it", SQE(RECVMSG, flags, POLL_FIRST, .fd = file, .addr = ADDR(&msg), .len = 1), -ENOTSOCK, 0);
		does("to accept of it", SQE(ACCEPT, flags, ACCEPT_POLL_FIRST, .fd = file), -EAGAIN, 0);
		submit(SQE(RECV, flags, POLL_FIRST, .fd = pipes[0], .addr = ADDR(buf), .len = 3));
		nothing_comes("a pipe without data");
		check("written", write(pipes[1], "x", 1), 1);
		expect("with data", -ENOTSOCK, 0);
		check("read", read(pipes[0], buf, 1), 1);
	}
	does("not waiting", SQE(RECV, 0, POLL_FIRST, .fd = pipes[0], .addr = ADDR(buf), .len = 3, .op_flags = MSG_DONTWAIT), -EAGAIN, 0);
	close(file);
	close(pipes[0]);
	close(pipes[1]);
}

/* What waits for poll in a chain goes on while the program looks at memory only. */
static void polled_first_in_chain(void)
{
	struct iovec iov = { buf, 50 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fds[2];

	new_ring("polled first, in a chain");
	tcp_pair(fds);
	submit_linked(SQE(SEND, LINK, POLL_FIRST, .fd = fds[1], .addr = ADDR(buf), .len = 10), SQE(SENDMSG, 0, POLL_FIRST, .fd = fds[1], .addr = ADDR(&msg), .len = 1));
	for (int i = 0; i < 5000 && __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) != *cq_head + 2; i++)
		usleep(1000);
	check("both without a call", __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) - *cq_head, 2);
	expect("the first", 10, 0);
	expect("the second", 50, 0);
	close(fds[0]);
	close(fds[1]);
}

static void streams(void)
{
	int fds[2], status;

	new_ring("streams");
	tcp_pair(fds);
	put(fds[1], "abcdef");
	poll(&(struct pollfd){ fds[0], POLLIN }, 1, 1000);
	does("half", SQE(RECV, .fd = fds[0], .addr = ADDR(buf), .len = 3), 3, F_SOCK_NONEMPTY);
	does("the rest", SQE(RECV, .fd = fds[0], .addr = ADDR(buf), .len = 3), 3, 0);
	does("nothing, not waiting", SQE(RECV, .fd = fds[0], .addr = ADDR(buf), .len = 3, .op_flags = MSG_DONTWAIT), -EAGAIN, 0);
	does("poll first, not waiting", SQE(RECV, 0, POLL_FIRST, .fd = fds[0], .addr = ADDR(buf), .len = 3, .op_flags = MSG_DONTWAIT), -EAGAIN, 0);
	submit(SQE(RECV, .fd = fds[0], .addr = ADDR(buf), .len = 3));
	nothing_comes("recv waits");
	does("send", SQE(SEND, .fd = fds[1], .addr = ADDR("xyz"), .len = 3), 3, 0);
	expect("and is received", 3, 0);
	check("its bytes", memcmp(buf, "xyz", 3), 0);
	does("poll first", SQE(SEND, 0, POLL_FIRST, .fd = fds[1], .addr = ADDR("xyz"), .len = 3), 3, 0);
	does("received after poll", SQE(RECV, 0, POLL_FIRST, .fd = fds[0], .addr = ADDR(buf), .len = 9), 3, 0);
	status = fcntl(fds[0], F_GETFL);
	does("shutdown", SQE(SHUTDOWN, .fd = fds[1], .len = SHUT_WR), 0, 0);
	does("end", SQE(RECV, .fd = fds[0], .addr = ADDR(buf), .len = 3), 0, F_SOCK_NONEMPTY);
	check("blocking as before", fcntl(fds[0], F_GETFL), status);
	socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
	put(fds[1], "abcdef");
	does("Unix, half", SQE(RECV, .fd = fds[0], .addr = ADDR(buf), .len = 3), 3, F_SOCK_NONEMPTY);
	does("Unix, the rest", SQE(RECV, .fd = fds[0], .addr = ADDR(buf), .len = 3), 3, 0);
	does("bad buffer", SQE(SEND, .fd = fds[0], .addr = 8, .len = 3), -EFAULT, 0);
	put(fds[1], "abc");
	does("bad buffer to receive", SQE(RECV, .fd = fds[0], .addr = 8, .len = 3), -EFAULT, 0);
}

static void wait_all(void)
{
	int fds[2], got;

	new_ring("wait all");
	socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
	submit(SQE(RECV, .fd = fds[0], .addr = ADDR(buf), .len = 6, .op_flags = MSG_WAITALL));
	put(fds[1], "abc");
	nothing_comes("half is not all");
	put(fds[1], "def");
	expect("all", 6, 0);
	check("in order", memcmp(buf, "abcdef", 6), 0);
	submit_linked(SQE(RECV, LINK, .fd = fds[0], .addr = ADDR(buf), .len = 6, .op_flags = MSG_WAITALL), SQE(NOP));
	put(fds[1], "abc");
	nothing_comes("half is not all, again");
	shutdown(fds[1], SHUT_WR);
	expect("what there was", 3, 0);
	expect("less than all breaks a link", -ECANCELED, 0);
	memset(buf, 7, sizeof(buf));
	submit(SQE(SEND, .fd = fds[0], .addr = ADDR(buf), .len = sizeof(buf), .op_flags = MSG_WAITALL));
	nothing_comes("more than fits is not sent at once");
	for (got = 0; got < (int)sizeof(buf);)
		got += comes(0) ? (int)sizeof(buf) : read(fds[1], buf, 65536);
	expect("sent in parts", sizeof(buf), 0);
}

static void accepting(void)
{
	struct sockaddr_in addr, peer;
	socklen_t n = sizeof(peer);
	int files[4] = { -1, -1, -1, -1 }, fd, listener = loopback(&addr, SOCK_STREAM), c[3];

	new_ring("accept");
	submit(SQE(ACCEPT, .fd = listener, .addr = ADDR(&peer), .off = ADDR(&n), .op_flags = SOCK_CLOEXEC | SOCK_NONBLOCK));
	nothing_comes("nobody there");
	check("others' calls still block", fcntl(listener, F_GETFL) & O_NONBLOCK, 0);
	c[0] = client(&addr);
	fd = next();
	check("a descriptor", fd > 2, 1);
	check("its flags", (fcntl(fd, F_GETFD) & FD_CLOEXEC) && (fcntl(fd, F_GETFL) & O_NONBLOCK), 1);
	check("its peer", peer.sin_family == AF_INET && n == sizeof(peer), 1);
	does("not waiting", SQE(ACCEPT, 0, ACCEPT_DONTWAIT, .fd = listener), -EAGAIN, 0);
	does("not a listener", SQE(ACCEPT, .fd = c[0]), -EINVAL, 0);
	submit(SQE(ACCEPT, 0, ACCEPT_MULTISHOT, .fd = listener));
	nothing_comes("nobody there yet");
	c[1] = client(&addr);
	check("first of many", next() > 2, 1);
	check("more to come", last_flags, F_MORE);
	c[2] = client(&addr);
	check("second of many", next() > 2, 1);
	check("even more to come", last_flags, F_MORE);
	shutdown(listener, SHUT_RDWR);
	expect("the listener is no more", -EINVAL, 0);
	does("no table", SQE(SOCKET, .fd = AF_INET, .off = SOCK_STREAM, .file_index = 3), -ENXIO, 0);
	check("a table", reg(REGISTER_FILES, files, 4), 0);
	does("beyond the table", SQE(SOCKET, .fd = AF_INET, .off = SOCK_STREAM, .file_index = 5), -EINVAL, 0);
	does("socket in slot 0", SQE(SOCKET, .fd = AF_INET, .off = SOCK_STREAM, .file_index = 1), 0, 0);
	n = sizeof(addr);
	addr.sin_port = 0;
	does("bind", SQE(BIND, FIXED_FILE, .fd = 0, .addr = ADDR(&addr), .off = n), 0, 0);
	does("listen", SQE(LISTEN, FIXED_FILE, .fd = 0, .len = 4), 0, 0);
	fd = run(SQE(SOCKET, .fd = AF_INET, .off = SOCK_STREAM));
	does("nobody there, fixed", SQE(ACCEPT, FIXED_FILE, ACCEPT_DONTWAIT, .fd = 0, .file_index = ANY_SLOT), -EAGAIN, 0);
	does("close-on-exec is for numbers", SQE(ACCEPT, FIXED_FILE, .fd = 0, .file_index = 2, .op_flags = SOCK_CLOEXEC), -EINVAL, 0);
	check("a number all the same", fd > 2, 1);
}

static void connecting(void)
{
	struct sockaddr_in addr;
	struct sockaddr_un name = { AF_UNIX, "" };
	int listener = loopback(&addr, SOCK_STREAM), fd = socket(AF_INET, SOCK_STREAM, 0), first, second;
	struct sqe to = { CONNECT, .addr = ADDR(&addr), .off = sizeof(addr) };

	new_ring("connect");
	to.fd = fd;
	does("connect", to, 0, 0);
	does("connect again", to, -EISCONN, 0);
	check("blocking as before", fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	to.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	does("a non-blocking socket waits too", to, 0, 0);
	close(listener);
	to.fd = socket(AF_INET, SOCK_STREAM, 0);
	does("refused", to, -ECONNREFUSED, 0);
	snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "uringlet-net-ops-%d", getpid());
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	check("bound", bind(listener, (void *)&name, sizeof(name)) | listen(listener, 0), 0);
	to = SQE(CONNECT, .addr = ADDR(&name), .off = sizeof(name));
	first = to.fd = socket(AF_UNIX, SOCK_STREAM, 0);
	does("the queue has room", to, 0, 0);
	second = to.fd = socket(AF_UNIX, SOCK_STREAM, 0);
	submit(to);
	nothing_comes("the queue is full");
	check("accepted", accept(listener, 0, 0) > 2, 1);
	expect("and has room again", 0, 0);
	close(first);
	close(second);
}

static void messages(void)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec out[2] = { { "abc", 3 }, { "def", 3 } }, in[2] = { { buf, 4 }, { buf + 10, 4 } };
	struct msghdr send = { .msg_iov = out, .msg_iovlen = 2 }, recv = { .msg_iov = in, .msg_iovlen = 2 };
	struct sockaddr_in addr, from = { 0 }, to;
	struct cmsghdr *cmsg;
	int fds[2], pipes[2], receiver = loopback(&addr, SOCK_DGRAM), sender = loopback(&to, SOCK_DGRAM);

	new_ring("messages");
	socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
	does("sendmsg", SQE(SENDMSG, .fd = fds[1], .addr = ADDR(&send), .len = 1), 6, 0);
	does("recvmsg", SQE(RECVMSG, .fd = fds[0], .addr = ADDR(&recv), .len = 1), 6, 0);
	check("scattered", memcmp(buf, "abcd", 4) | memcmp(buf + 10, "ef", 2), 0);
	/*
	 * Header and iovecs belong to the program again once the request has been submitted;
	 * results are written to the header.
	 */
	recv.msg_name = &from;
	recv.msg_namelen = sizeof(from);
	submit(SQE(RECVMSG, .fd = receiver, .addr = ADDR(&recv), .len = 1));
	memset(in, 0, sizeof(in));
	recv.msg_iov = 0;
	recv.msg_iovlen = 99;
	recv.msg_flags = -1;
	recv.msg_controllen = 77;
	send.msg_name = &addr;
	send.msg_namelen = sizeof(addr);
	does("to an address", SQE(SENDMSG, .fd = sender, .addr = ADDR(&send), .len = 1), 6, 0);
	expect("from an address", 6, 0);
	check("address", from.sin_port == to.sin_port && recv.msg_namelen == sizeof(from), 1);
	check("told in the header", recv.msg_flags == 0 && recv.msg_controllen == 0 && recv.msg_iovlen == 99, 1);
	does("send to an address", SQE(SEND, .fd = sender, .addr = ADDR("12345"), .len = 5, .off = ADDR(&addr), .file_index = sizeof(addr)), 5, 0);
	recv = (struct msghdr){ .msg_iov = &(struct iovec){ buf, 2 }, .msg_iovlen = 1 };
	submit_linked(SQE(RECVMSG, LINK, .fd = receiver, .addr = ADDR(&recv), .len = 1, .op_flags = MSG_WAITALL), SQE(NOP));
	expect("cut", 2, 0);
	check("said so", recv.msg_flags & MSG_TRUNC, MSG_TRUNC);
	expect("a cut message breaks a link of whoever wanted all", -ECANCELED, 0);
	if (pipe(pipes))
		perror("pipe");
	send = (struct msghdr){ .msg_iov = out, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	cmsg = CMSG_FIRSTHDR(&send);
	*cmsg = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(cmsg), &pipes[1], sizeof(int));
	out[0] = (struct iovec){ "abc", 3 };
	recv = (struct msghdr){ .msg_iov = &(struct iovec){ buf, 9 }, .msg_iovlen = 1, .msg_control = buf + 64, .msg_controllen = 64 };
	submit(SQE(RECVMSG, .fd = fds[0], .addr = ADDR(&recv), .len = 1));
	does("send a descriptor", SQE(SENDMSG, .fd = fds[1], .addr = ADDR(&send), .len = 1), 3, 0);
	expect("receive a descriptor", 3, 0);
	check("it is one", recv.msg_controllen == sizeof(control) && fcntl(*(int *)CMSG_DATA(CMSG_FIRSTHDR(&recv)), F_GETFD) >= 0, 1);
	send = (struct msghdr){ .msg_iov = out, .msg_iovlen = 1025 };
	does("too many iovecs", SQE(SENDMSG, .fd = fds[1], .addr = ADDR(&send), .len = 1), -EMSGSIZE, 0);
}

/* Files for which poll says "ready" though the operation would block. */
static void futile(void)
{
	struct sockaddr_un name = { AF_UNIX, "" };
	struct sockaddr_in addr;
	int receiver = socket(AF_UNIX, SOCK_DGRAM, 0), sender = socket(AF_UNIX, SOCK_DGRAM, 0), fd;
	struct rusage before, after;

	new_ring("futile");
	snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "uringlet-futile-%d", getpid());
	check("bound", bind(receiver, (void *)&name, sizeof(name)), 0);
	while (sendto(sender, "x", 1, MSG_DONTWAIT, (void *)&name, sizeof(name)) == 1)
		;
	getrusage(RUSAGE_SELF, &before);
	submit(SQE(SEND, .fd = sender, .addr = ADDR("y"), .len = 1, .off = ADDR(&name), .file_index = sizeof(name)));
	check("the receiver is full", comes(200), 0);
	getrusage(RUSAGE_SELF, &after);
	check("nobody runs round in circles", after.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_utime.tv_usec - before.ru_stime.tv_usec > 100000, 0);
	check("read", read(receiver, buf, 9), 1);
	/* The kernel sends an empty datagram here: its earlier attempts have used the byte up. */
	check("and has room again", next() >= 0, 1);
	fd = loopback(&addr, SOCK_DGRAM);
	shutdown(fd, SHUT_RD);
	does("nothing will ever come", SQE(RECV, .fd = fd, .addr = ADDR(buf), .len = 9), 0, 0);
}

int main(void)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	fields();
	polled_first();
	polled_first_in_chain();
	streams();
	wait_all();
	accepting();
	connecting();
	messages();
	futile();
	return failures != 0;
}
