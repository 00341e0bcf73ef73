/* Time stamps of sent data (URING_CMD, SOCKET_URING_OP_TX_TIMESTAMP), on UDP and TCP sockets. */
#include <time.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "big_cqe.h"
#include "tcp_pair.h"

enum { URING_CMD = 46, LINK_TIMEOUT = 15, TIMESTAMP = 4, SKIP_SUCCESS = 64, CANCEL_ALL = 1, CANCEL_FD = 2 };
enum { TYPE_SHIFT = 17, STARTED = 100 };
#define STAMPS(file, ...) SQE(URING_CMD, .fd = file, .off = TIMESTAMP, ##__VA_ARGS__)
#define WANTED (SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY)
#define UDP_WANTED (WANTED | SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE)

static int receiver;

static void set_stamps(int fd, int flags)
{
	check("stamps are asked for", setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags)), 0);
}

/* A UDP socket that is connected to the receiver. */
static int sender(int family, int flags)
{
	struct sockaddr_in v4 = { AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
	struct sockaddr_in6 v6 = { AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = socket(family, SOCK_DGRAM, 0);
	socklen_t n = family == AF_INET ? sizeof(v4) : sizeof(v6);
	void *addr = family == AF_INET ? (void *)&v4 : (void *)&v6;

	if (receiver)
		close(receiver);
	receiver = socket(family, SOCK_DGRAM, 0);
	if (bind(receiver, addr, n))
		return -1;
	getsockname(receiver, addr, &n);
	check("connected", connect(fd, addr, n), 0);
	set_stamps(fd, flags);
	return fd;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* A stamp of this type and key, later than `since`. */
static void stamp(const char *what, int type, int key, uint64_t since)
{
	struct big big = next_big();
	uint64_t at = big.extra[0] * 1000000000 + big.extra[1];

	check(what, big.res, key);
	check(what, big.flags, F_MORE | type << TYPE_SHIFT | (ring_flags & CQE_MIXED ? F_32 : 0));
	check(what, big.user_data, STARTED);
	check("nanoseconds", big.extra[1] < 1000000000, 1);
	/* The clock may be set meanwhile, but hardly by a minute. */
	check("its time", at + 60000000000 > since && at < now_ns() + 60000000000, 1);
}

static void last_cqe(const char *what, uint64_t user_data, int res)
{
	struct big big = next_big();

	check(what, big.user_data, user_data);
	check(what, big.res, res);
	check(what, big.flags & F_MORE, 0);
}

static void cancel(const char *what)
{
	submit(SQE(ASYNC_CANCEL, .addr = STARTED, .user_data = 7));
	last_cqe(what, 7, 0);
	last_cqe(what, STARTED, -ECANCELED);
}

static int queued(int fd)
{
	return poll(&(struct pollfd){ fd }, 1, 0) == 1;
}

static void datagrams(const char *name, unsigned flags, int family)
{
	uint64_t since = now_ns();
	int i, fd;

	check("a ring", ring(name, flags, 0), 0);
	fd = sender(family, UDP_WANTED);
	if (fd < 0)
		return;
	check("sent before", send(fd, "a", 1, 0), 1);
	submit(STAMPS(fd, .user_data = STARTED));
	stamp("before, scheduled", SCM_TSTAMP_SCHED, 0, since);
	stamp("before, sent", SCM_TSTAMP_SND, 0, since);
	for (i = 1; i < 100; i++) {
		check("sent", send(fd, "b", 1, 0), 1);
		stamp("scheduled", SCM_TSTAMP_SCHED, i, since);
		stamp("sent", SCM_TSTAMP_SND, i, since);
	}
	for (i = 0; i < 10; i++)
		check("sent", send(fd, "c", 1, 0), 1);
	for (i = 100; i < 110; i++) {
		stamp("scheduled with others", SCM_TSTAMP_SCHED, i, since);
		stamp("sent with others", SCM_TSTAMP_SND, i, since);
	}
	check("the queue is empty", queued(fd), 0);
	nothing_comes("no more");
	cancel("cancelled");
	close(fd);
}

static void streams(const char *name, unsigned flags)
{
	uint64_t since = now_ns();
	int fds[2];

	check("a ring", ring(name, flags, 0), 0);
	tcp_pair(fds);
	set_stamps(fds[1], WANTED | SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_ACK);
	submit(STAMPS(fds[1], .user_data = STARTED));
	check("sent", send(fds[1], "abc", 3, 0), 3);
	stamp("scheduled", SCM_TSTAMP_SCHED, 2, since);
	stamp("sent", SCM_TSTAMP_SND, 2, since);
	stamp("confirmed", SCM_TSTAMP_ACK, 2, since);
	check("sent", send(fds[1], "d", 1, 0), 1);
	stamp("scheduled", SCM_TSTAMP_SCHED, 3, since);
	stamp("sent", SCM_TSTAMP_SND, 3, since);
	stamp("confirmed", SCM_TSTAMP_ACK, 3, since);
	/* An error of the socket is no stamp. */
	setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
	close(fds[0]);
	check("reset", poll(&(struct pollfd){ fds[1], POLLIN }, 1, 60000), 1);
	nothing_comes("a reset is none");
	cancel("cancelled");
	close(fds[1]);
}

static void refusals(void)
{
	int pair[2], pipes[2], udp = socket(AF_INET, SOCK_DGRAM, 0);
	unsigned flags[] = { CQE32, CQE_MIXED }, i;

	check("pairs", socketpair(AF_UNIX, SOCK_STREAM, 0, pair) | pipe(pipes), 0);
	new_ring("16-byte CQEs");
	does("needs 32-byte CQEs", STAMPS(udp), -EINVAL, 0);
	does("also a linked one", STAMPS(udp), -EINVAL, 0);
	for (i = 0; i < 2; i++) {
		check("a ring", ring("refusals", flags[i], 0), 0);
		submit(STAMPS(pair[0], .user_data = STARTED));
		cancel("Unix sockets have none");
		submit(STAMPS(pipes[0], .user_data = 2));
		last_cqe("a pipe", 2, -EOPNOTSUPP);
		submit(STAMPS(999, .user_data = 3));
		last_cqe("a closed number", 3, -EBADF);
		submit(STAMPS(udp, .user_data = 4, .op_flags = 4));
		last_cqe("an unknown flag", 4, -EINVAL);
		submit(STAMPS(udp, .user_data = 5, .op_flags = 2));
		last_cqe("the flag of multishot commands", 5, -EINVAL);
	}
}

/* Cancel by descriptor, a link behind it, a timeout, a registered file, a number that is closed. */
static void requests(unsigned flags)
{
	uint64_t since = now_ns(), ts[2] = { 0, 1000000 };
	int fd = sender(AF_INET, UDP_WANTED), other;

	check("a ring", ring("requests", flags, 0), 0);
	submit_linked(STAMPS(fd, .user_data = STARTED, .flags = LINK), SQE(NOP, .user_data = 8));
	check("sent", send(fd, "a", 1, 0), 1);
	stamp("scheduled", SCM_TSTAMP_SCHED, 0, since);
	stamp("sent", SCM_TSTAMP_SND, 0, since);
	submit(SQE(ASYNC_CANCEL, .fd = fd, .op_flags = CANCEL_FD, .user_data = 7));
	last_cqe("by descriptor", 7, 0);
	last_cqe("cancelled", STARTED, -ECANCELED);
	last_cqe("the rest of its chain", 8, -ECANCELED);
	submit_linked(STAMPS(fd, .user_data = STARTED, .flags = LINK), SQE(LINK_TIMEOUT, .addr = ADDR(ts), .len = 1, .user_data = 9));
	last_cqe("its timeout", 9, -ETIME);
	last_cqe("timed out", STARTED, -ECANCELED);
	submit(STAMPS(fd, .user_data = STARTED, .flags = SKIP_SUCCESS | FORCE_ASYNC));
	check("sent", send(fd, "b", 1, 0), 1);
	stamp("skips nothing, scheduled", SCM_TSTAMP_SCHED, 1, since);
	stamp("skips nothing, sent", SCM_TSTAMP_SND, 1, since);
	cancel("cancelled");
	check("registered", reg(REGISTER_FILES, &fd, 1), 0);
	submit(STAMPS(0, .user_data = STARTED, .flags = FIXED_FILE));
	other = dup(fd);
	close(fd);
	check("sent", send(other, "c", 1, 0), 1);
	stamp("registered file, scheduled", SCM_TSTAMP_SCHED, 2, since);
	stamp("registered file, sent", SCM_TSTAMP_SND, 2, since);
	cancel("cancelled");
	submit(STAMPS(other, .user_data = STARTED));
	close(other);
	submit(SQE(SEND, FIXED_FILE, .fd = 0, .addr = ADDR("d"), .len = 1, .user_data = 6));
	last_cqe("sent", 6, 1);
	stamp("closed number, scheduled", SCM_TSTAMP_SCHED, 3, since);
	stamp("closed number, sent", SCM_TSTAMP_SND, 3, since);
	cancel("cancelled");
}

/* What the command leaves where it is: stamps with data, and stamps that are not to be reported. */
static void left_alone(void)
{
	static const int flags[] = { UDP_WANTED & ~SOF_TIMESTAMPING_OPT_TSONLY, UDP_WANTED & ~SOF_TIMESTAMPING_SOFTWARE };
	char data[2000], control[2000];
	unsigned i;

	for (i = 0; i < 2; i++) {
		struct msghdr msg = { .msg_iov = &(struct iovec){ data, sizeof(data) }, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
		int fd = sender(AF_INET, flags[i]);

		check("a ring", ring("left alone", CQE32, 0), 0);
		submit(STAMPS(fd, .user_data = STARTED));
		check("sent", send(fd, "a", 1, 0), 1);
		check("queued", poll(&(struct pollfd){ fd }, 1, 60000), 1);
		nothing_comes("not taken");
		check("still there", recvmsg(fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0, 1);
		check("its second stamp too", recvmsg(fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0, 1);
		check("no more", recvmsg(fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) < 0, 1);
		cancel("cancelled");
		close(fd);
	}
}

/* Stamps for which the CQ has no room stay in the queue until there is another one. */
static void full(unsigned flags)
{
	uint64_t since = now_ns();
	int fd = sender(AF_INET, UDP_WANTED & ~SOF_TIMESTAMPING_TX_SCHED), i, room = flags & CQE32 ? 32 : 16;

	check("a ring", ring("full", flags, 32), 0);
	submit(STAMPS(fd, .user_data = STARTED));
	for (i = 0; i < 40; i++)
		check("sent", send(fd, "a", 1, 0), 1);
	syscall(426, ring_fd, 0, room, 1, 0, 0);
	check("the others wait", queued(fd), 1);
	for (i = 0; i < room; i++)
		stamp("sent", SCM_TSTAMP_SND, i, since);
	check("sent", send(fd, "b", 1, 0), 1);
	for (; i < 41; i++) {
		if (i == 2 * room)
			check("sent", send(fd, "c", 1, 0), 1);
		stamp("sent later", SCM_TSTAMP_SND, i, since);
	}
	close(fd);
}

/* Where errors may be in the queue, the engine takes nothing: it cannot take stamps alone. */
static void errors(void)
{
	int fd = sender(AF_INET, UDP_WANTED), one = 1;

	check("a ring", ring("errors", CQE32, 0), 0);
	setsockopt(fd, SOL_IP, IP_RECVERR, &one, sizeof(one));
	submit(STAMPS(fd, .user_data = STARTED));
	if (getenv("BLOCK_IO_URING")) {
		last_cqe("refused", STARTED, -EOPNOTSUPP);
		return;
	}
	check("sent", send(fd, "a", 1, 0), 1);
	stamp("scheduled", SCM_TSTAMP_SCHED, 0, now_ns());
	stamp("sent", SCM_TSTAMP_SND, 0, now_ns());
	cancel("cancelled");
	close(fd);
}

int main(void)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	new_ring("start");
	datagrams("datagrams", CQE32, AF_INET);
	datagrams("datagrams, mixed", CQE_MIXED, AF_INET);
	datagrams("datagrams, deferred", CQE32 | SINGLE_ISSUER | DEFER_TASKRUN, AF_INET);
	datagrams("datagrams, IPv6", CQE_MIXED | SINGLE_ISSUER | DEFER_TASKRUN, AF_INET6);
	streams("streams", CQE32);
	streams("streams, mixed", CQE_MIXED | SINGLE_ISSUER | DEFER_TASKRUN);
	refusals();
	requests(CQE32);
	requests(CQE_MIXED);
	left_alone();
	full(CQE32);
	full(CQE_MIXED);
	errors();
	return failures != 0;
}
