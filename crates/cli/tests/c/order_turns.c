/*
 * A multishot request that always finds something lets the others have their turn: how many of its
 * CQEs come before the one of a quiet file.
 */
#include "order_ring.h"
#include "tcp_pair.h"

enum { RECVMSG = 10, READ_MULTISHOT = 49 };
enum { RECV_MULTISHOT = 2, ACCEPT_MULTISHOT = 1, BUNDLE = 16 };
enum { PIECE = 64, PIECES = 200 };

typedef void pair_fn(int fds[2]);

static void unix_stream(int fds[2])
{
	socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
}

static void unix_datagrams(int fds[2])
{
	socketpair(AF_UNIX, SOCK_DGRAM, 0, fds);
}

static void pipe_pair(int fds[2])
{
	pipe(fds);
}

/* A listener, and a descriptor that stands for its clients. */
static struct sockaddr_in listener_addr;

static void listener(int fds[2])
{
	socklen_t len = sizeof(listener_addr);

	listener_addr = (struct sockaddr_in){ AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	bind(fds[0], (void *)&listener_addr, len);
	listen(fds[0], 256);
	getsockname(fds[0], (void *)&listener_addr, &len);
	fds[1] = -1;
}

static struct msghdr message;

static const struct kind {
	const char *name;
	pair_fn *pair;
	struct sqe sqe;
	/* Pieces of its flood. */
	int pieces;
} kinds[] = {
	{ "recv of a TCP stream", tcp_pair, { .opcode = RECV, .ioprio = RECV_MULTISHOT, .flags = BUFFER_SELECT }, PIECES },
	{ "recv of a Unix stream", unix_stream, { .opcode = RECV, .ioprio = RECV_MULTISHOT, .flags = BUFFER_SELECT }, PIECES },
	{ "recv of datagrams", unix_datagrams, { .opcode = RECV, .ioprio = RECV_MULTISHOT, .flags = BUFFER_SELECT }, 10 },
	{ "recvmsg of a TCP stream", tcp_pair, { .opcode = RECVMSG, .ioprio = RECV_MULTISHOT, .flags = BUFFER_SELECT, .len = 1 }, PIECES },
	{ "bundles", tcp_pair, { .opcode = RECV, .ioprio = RECV_MULTISHOT | BUNDLE, .flags = BUFFER_SELECT, .len = PIECE }, 10 },
	{ "multishot read of a pipe", pipe_pair, { .opcode = READ_MULTISHOT, .off = -1, .flags = BUFFER_SELECT }, 30 },
	{ "multishot read of a socket", unix_stream, { .opcode = READ_MULTISHOT, .off = -1, .flags = BUFFER_SELECT }, 30 },
	{ "accept", listener, { .opcode = ACCEPT, .ioprio = ACCEPT_MULTISHOT }, 100 },
	{ "poll", pipe_pair, { .opcode = POLL_ADD, .len = POLL_MULTISHOT, .op_flags = POLLIN }, PIECES },
};

static struct sqe request(const struct kind *kind, int fd, char name)
{
	struct sqe sqe = kind->sqe;

	sqe.fd = fd;
	sqe.user_data = name;
	if (sqe.opcode == RECVMSG)
		sqe.addr = ADDR(&message);
	return sqe;
}

/* The flood's pieces, at once if the file has no message boundaries. */
static void flood(const struct kind *kind, int fd)
{
	static char bytes[PIECE * PIECES];

	for (int i = 0; kind->pair == listener && i < kind->pieces; i++) {
		int client = socket(AF_INET, SOCK_STREAM, 0);

		connect(client, (void *)&listener_addr, sizeof(listener_addr));
	}
	for (int i = 0; kind->pair == unix_datagrams && i < kind->pieces; i++)
		send(fd, bytes, PIECE, 0);
	if (kind->pair != unix_datagrams && kind->pair != listener)
		write(fd, bytes, PIECE * kind->pieces);
}

static unsigned piece_size(const struct kind *kind)
{
	return kind->sqe.opcode == RECVMSG ? PIECE + 16 : PIECE;
}

static struct ring ring_of(unsigned setup, const struct kind *kind)
{
	struct ring r = new_ring_with(64, setup | SETUP_CQSIZE, 4096);

	provide(&r, 2048, piece_size(kind));
	return r;
}

/* All have something when they are submitted. */
static void ready_before(const struct kind *kind, int which)
{
	struct ring r;
	int a[2], b[2], quiet[2];

	/* The engine reads from a pipe only after a poll, so its first CQE comes later. */
	if (kind->sqe.opcode == READ_MULTISHOT && kind->pair == pipe_pair)
		return;
	r = ring_of(ring_kinds[which].setup, kind);
	printf("%s, %s, ready before:", kind->name, ring_kinds[which].name);
	kind->pair(a);
	flood(kind, a[1]);
	unix_stream(quiet);
	write(quiet[1], "q", 1);
	push(&r, request(kind, a[0], 'A'));
	push(&r, SQE(.opcode = RECV, .fd = quiet[0], .ioprio = RECV_MULTISHOT, .flags = BUFFER_SELECT, .user_data = 'Q'));
	submit_all(&r);
	print_runs(&r);
	end_ring(&r);
}

/* All wait, and get something from SENDs and WRITEs of one submission. */
static void ready_later(const struct kind *kind, int which)
{
	static char bytes[PIECE * PIECES];
	struct ring r = ring_of(ring_kinds[which].setup, kind);
	int a[2], b[2], quiet[2];

	if (kind->pair == listener || kind->pair == unix_datagrams) {
		end_ring(&r);
		return;
	}
	printf("%s, %s, ready later:", kind->name, ring_kinds[which].name);
	kind->pair(a);
	kind->pair(b);
	unix_stream(quiet);
	push(&r, request(kind, a[0], 'A'));
	push(&r, request(kind, b[0], 'B'));
	push(&r, SQE(.opcode = RECV, .fd = quiet[0], .ioprio = RECV_MULTISHOT, .flags = BUFFER_SELECT, .user_data = 'Q'));
	submit_all(&r);
	push(&r, SQE(.opcode = WRITE, .fd = a[1], .off = -1, .addr = ADDR(bytes), .len = PIECE * kind->pieces, .user_data = 'a'));
	push(&r, SQE(.opcode = WRITE, .fd = b[1], .off = -1, .addr = ADDR(bytes), .len = PIECE * kind->pieces, .user_data = 'b'));
	push(&r, SQE(.opcode = WRITE, .fd = quiet[1], .off = -1, .addr = ADDR(bytes), .len = 1, .user_data = 'q'));
	submit_all(&r);
	print_runs(&r);
	end_ring(&r);
}

int main(void)
{
	block_if_asked();
	for (unsigned k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (unsigned which = 0; which < RING_KINDS; which++) {
			ready_before(&kinds[k], which);
			ready_later(&kinds[k], which);
		}
	return failures > 0;
}
