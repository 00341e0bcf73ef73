/*
 * Thousands of connections to an echo server on one ring, opened, half closed, reset and cancelled
 * at random, with every way to receive, send and cancel. Each byte is checked, and each request
 * must get its CQEs and no others. Arguments: seed, connections, and the use of the ring: default,
 * defer (DEFER_TASKRUN), workers (IOSQE_ASYNC on everything), files (registered sockets), both of
 * the last two, or a number: IOSQE_ASYNC with at most so many workers of each class, and with a
 * file beside the sockets. A failure prints the seed. The CQ holds 64 entries, so it overflows all
 * the time.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "net_ring.h"

enum { READV = 1, WRITEV = 2, CLOSE = 19, WRITE = 23, SEND_ZC = 47, SENDMSG_ZC = 48, READ_MULTISHOT = 49 };
enum { ENTRIES = 64, SIZE = 512, GROUP = 1, LIST = 2, BIT_BY_BIT = 3, INC = 2, AT_ONCE = 96, MOST = 20000, SLOTS = 1024, F_NOTIF = 8 };
enum { CANCEL_ALL = 1, CANCEL_FD = 2, CANCEL_ANY = 4, CANCEL_FD_FIXED = 8 };
enum { SINGLE_ISSUER = 1 << 12, DEFER_TASKRUN = 1 << 13 };
enum { ACCEPTED = 1, RECEIVED, SENT, CANCELLED, SHUT, BLOCKS_DONE, OTHERS };

static uint64_t seed = 1;
static int connections = 3000;
static int defers, uses_workers, uses_files;
static struct sockaddr_in addr;

/* Provided buffers: of a ring, of a list, and of a ring with incremental buffers. */
static struct group {
	struct buf *ring;
	uint16_t tail;
	char memory[ENTRIES][SIZE];
	int filled[ENTRIES];
	/* The order in which buffers were provided, and the position of each. */
	uint8_t given[1 << 16];
	uint16_t when[ENTRIES];
} groups[4];

static void wrong(const char *what, long got, long want)
{
	printf("seed %llu: %s: %ld, expected %ld\n", (unsigned long long)seed, what, got, want);
	fflush(stdout);
	_exit(1);
}

static uint64_t rng(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Byte `at` of a connection's stream. */
static char byte_of(uint32_t name, uint32_t at)
{
	uint32_t x = (name * 2654435761u) ^ (at * 40503u);

	return x ^ x >> 15 ^ x >> 7;
}

/* The server -------------------------------------------------------------------------------- */

struct peer {
	int fd, receives, sends, cancels, shuts, notifications, is_ended, uses;
	/* The kind of buffers that it receives with. */
	int group, is_message, is_shut;
	char own[4096], out[1 << 16];
	struct msghdr msg;
	struct iovec iov;
	int from, to;
};
static struct peer *peers;
static uint64_t server_rng;
static int served, live;

static void give(int group, int bid)
{
	struct group *g = &groups[group];

	g->filled[bid] = 0;
	if (group == LIST) {
		submit(SQE(PROVIDE_BUFFERS, .fd = 1, .addr = ADDR(g->memory[bid]), .len = SIZE, .off = bid, .buf_index = LIST,
			   .user_data = (uint64_t)OTHERS << 56));
		return;
	}
	g->ring[g->tail % ENTRIES].addr = ADDR(g->memory[bid]);
	g->ring[g->tail % ENTRIES].len = SIZE;
	g->ring[g->tail % ENTRIES].bid = bid;
	g->given[g->tail] = bid;
	g->when[bid] = g->tail++;
	__atomic_store_n(&g->ring[0].tail, g->tail, __ATOMIC_RELEASE);
}

static uint64_t name(int kind, struct peer *peer)
{
	return (uint64_t)kind << 56 | (uint64_t)(peer->uses & 0xffffff) << 24 | (peer - peers);
}

/* With the request flags of this run. */
static void submit_on(struct peer *peer, struct sqe sqe)
{
	sqe.fd = peer->fd;
	if (uses_files)
		sqe.flags |= FIXED_FILE;
	if (uses_workers)
		sqe.flags |= FORCE_ASYNC;
	submit(sqe);
}

static struct sqe selecting(struct peer *peer, int opcode, int flags, int group)
{
	peer->group = group;
	return SQE(opcode, BUFFER_SELECT, flags, .buf_index = group);
}

static struct sqe receiving(struct peer *peer, int ring)
{
	int len = 1 + rng(&server_rng) % sizeof(peer->own);

	peer->iov = (struct iovec){ peer->own, len };
	peer->msg = (struct msghdr){ .msg_iov = &peer->iov, .msg_iovlen = 1 };
	switch (rng(&server_rng) % 15) {
	case 0:
		return SQE(RECV, FORCE_ASYNC, .addr = ADDR(peer->own), .len = len);
	case 1:
		return SQE(RECV, 0, POLL_FIRST, .addr = ADDR(peer->own), .len = len);
	case 2:
		return SQE(READ, .off = -1, .addr = ADDR(peer->own), .len = len);
	case 3:
		return SQE(READV, .off = -1, .addr = ADDR(&peer->iov), .len = 1);
	case 4:
		return SQE(RECVMSG, .addr = ADDR(&peer->msg), .len = 1);
	case 5:
		return SQE(RECV, .addr = ADDR(peer->own), .len = len, .op_flags = MSG_WAITALL);
	case 6:
		return selecting(peer, RECV, 0, LIST);
	case 7:
		return selecting(peer, READ, 0, ring);
	case 8:
		return selecting(peer, RECV, RECV_MULTISHOT, LIST);
	case 9:
		return selecting(peer, RECV, RECV_MULTISHOT, ring);
	case 10:
		return selecting(peer, RECV, RECV_MULTISHOT | BUNDLE, GROUP);
	case 11:
		/* Linux 6.18's workers lose track of the buffers that they filled. */
		return selecting(peer, RECV, uses_workers ? 0 : BUNDLE, GROUP);
	case 12:
		/* Only the message's header stands before its bytes. */
		peer->msg = (struct msghdr){ 0 };
		peer->is_message = 1;
		struct sqe sqe = selecting(peer, RECVMSG, RECV_MULTISHOT, GROUP);

		sqe.addr = ADDR(&peer->msg);
		sqe.len = 1;
		return sqe;
	case 13:
		return selecting(peer, READ_MULTISHOT, 0, ring);
	}
	return SQE(RECV, .addr = ADDR(peer->own), .len = len);
}

static void receive(struct peer *peer)
{
	struct sqe sqe;

	peer->group = peer->is_message = 0;
	sqe = receiving(peer, rng(&server_rng) % 2 ? GROUP : BIT_BY_BIT);
	sqe.user_data = name(RECEIVED, peer);
	peer->receives = 1;
	submit_on(peer, sqe);
}

static void send_back(struct peer *peer)
{
	static struct iovec iov;
	static struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct sqe sqe = SQE(SEND, .addr = ADDR(peer->out + peer->from), .len = peer->to - peer->from, .op_flags = MSG_NOSIGNAL);

	iov = (struct iovec){ peer->out + peer->from, sqe.len };
	switch (rng(&server_rng) % 8) {
	case 0:
		sqe.flags = FORCE_ASYNC;
		break;
	case 1:
		sqe.op_flags |= MSG_WAITALL;
		break;
	case 2:
		sqe.opcode = SEND_ZC;
		break;
	case 3:
		sqe = SQE(SENDMSG_ZC, .addr = ADDR(&msg), .len = 1, .op_flags = MSG_NOSIGNAL);
		break;
	case 4:
		sqe = SQE(SENDMSG, .addr = ADDR(&msg), .len = 1, .op_flags = MSG_NOSIGNAL | MSG_WAITALL);
		break;
	case 5:
		sqe = SQE(WRITE, .addr = sqe.addr, .len = sqe.len, .off = -1);
		break;
	case 6:
		sqe = SQE(WRITEV, .addr = ADDR(&iov), .len = 1, .off = -1);
		break;
	}
	sqe.user_data = name(SENT, peer);
	peer->sends = 1;
	submit_on(peer, sqe);
}

/* Cancels the receive, or every request of the connection, or any request. */
static void cancel(struct peer *peer)
{
	struct sqe sqe = SQE(ASYNC_CANCEL, .addr = name(RECEIVED, peer), .user_data = name(CANCELLED, peer));
	int by_fd = CANCEL_FD | (uses_files ? CANCEL_FD_FIXED : 0), all = rng(&server_rng) % 2 ? CANCEL_ALL : 0;

	switch (peer->is_ended == 2 ? 0 : rng(&server_rng) % 40) {
	case 0 ... 19:
		sqe.op_flags = all;
		break;
	case 20 ... 38:
		sqe.addr = 0;
		sqe.fd = peer->fd;
		sqe.op_flags = by_fd | all;
		break;
	default:
		sqe.addr = 0;
		sqe.op_flags = CANCEL_ANY | all;
	}
	peer->cancels++;
	submit(sqe);
}

/* Some are half closed first, with a pause: a worker may look at the number late. */
static void end(struct peer *peer)
{
	if (!peer->is_shut && rng(&server_rng) % 4 == 0) {
		peer->shuts = 1;
		submit_on(peer, SQE(SHUTDOWN, .len = SHUT_WR, .user_data = name(SHUT, peer)));
		return;
	}
	if (uses_files)
		submit(SQE(CLOSE, .file_index = peer->fd + 1, .user_data = (uint64_t)OTHERS << 56));
	else
		close(peer->fd);
	peer->fd = -1;
	peer->uses++;
	served++;
	live--;
}

/* The next step of a connection. */
static void go_on(struct peer *peer)
{
	int waits = peer->to - peer->from;

	if (peer->is_ended < 2 && waits && !peer->sends && !peer->notifications)
		send_back(peer);
	/* Not more than there is room for. */
	if (!peer->is_ended && !peer->receives && waits < 8192)
		receive(peer);
	if (peer->is_ended == 2 && peer->receives && !peer->cancels)
		cancel(peer);
	if (!peer->receives && !peer->sends && !peer->cancels && !peer->shuts && !peer->notifications &&
	    (peer->is_ended == 2 || (peer->is_ended && !waits)))
		end(peer);
	else if (peer->receives && !peer->cancels && rng(&server_rng) % 10 == 0)
		cancel(peer);
}

static void take(struct peer *peer, const char *from, int n)
{
	if (peer->from == peer->to && !peer->sends && !peer->notifications)
		peer->from = peer->to = 0;
	if (peer->to + n > (int)sizeof(peer->out))
		wrong("room", peer->to + n, sizeof(peer->out));
	memcpy(peer->out + peer->to, from, n);
	peer->to += n;
}

/*
 * What the CQE says and what follows from it: the bytes of one buffer, or of as many as they fill.
 */
static void take_buffers(struct peer *peer, struct cqe cqe)
{
	struct group *g = &groups[peer->group];
	int bid = cqe.flags >> 16, left = cqe.res;

	if (peer->is_message) {
		uint32_t *said = (void *)g->memory[bid];

		if (left != 16 + (int)said[2])
			wrong("length of a message", left, 16 + said[2]);
		take(peer, g->memory[bid] + 16, said[2]);
		give(peer->group, bid);
		return;
	}
	do {
		uint16_t next = g->when[bid] + 1;
		int room = SIZE - g->filled[bid], n = left < room ? left : room;

		if (n > 0)
			take(peer, g->memory[bid] + g->filled[bid], n);
		left -= n > 0 ? n : 0;
		if (cqe.flags & F_BUF_MORE)
			g->filled[bid] += n;
		else
			give(peer->group, bid);
		bid = g->given[next];
	} while (left > 0);
}

static void received(struct peer *peer, struct cqe cqe)
{
	if (cqe.flags & F_BUFFER)
		take_buffers(peer, cqe);
	else if (cqe.res > 0)
		take(peer, peer->own, cqe.res);
	if (cqe.flags & F_MORE)
		return;
	peer->receives = 0;
	if (cqe.res == 0 || (peer->is_message && cqe.res == 16))
		peer->is_ended = peer->is_ended ? peer->is_ended : 1;
	else if (cqe.res < 0 && cqe.res != -ECANCELED && cqe.res != -ENOBUFS && cqe.res != -EINTR)
		peer->is_ended = 2;
}

static void sent(struct peer *peer, struct cqe cqe)
{
	if (cqe.flags & F_NOTIF) {
		if (--peer->notifications < 0)
			wrong("notifications", peer->notifications, 0);
		return;
	}
	peer->sends = 0;
	peer->notifications += !!(cqe.flags & F_MORE);
	if (cqe.res > 0)
		peer->from += cqe.res;
	else if (cqe.res != -EINTR && cqe.res != -ECANCELED)
		peer->is_ended = 2;
}

static void accept_on(int listener)
{
	submit(SQE(ACCEPT, 0, ACCEPT_MULTISHOT, .fd = listener, .file_index = uses_files ? ANY_SLOT : 0, .user_data = (uint64_t)ACCEPTED << 56));
}

#include "net_chaos_load.h"

static void handle(int listener, struct cqe cqe)
{
	struct peer *peer = &peers[cqe.user_data & 0xffffff];

	switch (cqe.user_data >> 56) {
	case ACCEPTED:
		if (cqe.res >= 0) {
			peer = &peers[cqe.res];
			peer->fd = cqe.res;
			peer->from = peer->to = peer->is_ended = peer->is_shut = 0;
			live++;
			go_on(peer);
		} else if (cqe.res != -ECANCELED) {
			wrong("accept", cqe.res, 0);
		}
		if (!(cqe.flags & F_MORE))
			accept_on(listener);
		return;
	case BLOCKS_DONE:
		block_done(cqe.user_data & 0xff, cqe.res);
		return;
	case OTHERS:
		if (cqe.res < 0)
			wrong("provide or close", cqe.res, 0);
		return;
	}
	if ((cqe.user_data >> 24 & 0xffffff) != (uint64_t)(peer->uses & 0xffffff) || peer->fd < 0)
		wrong("a CQE of an earlier connection", cqe.user_data >> 56, 0);
	switch (cqe.user_data >> 56) {
	case RECEIVED:
		if (!peer->receives)
			wrong("a CQE of no receive", cqe.res, 0);
		received(peer, cqe);
		break;
	case SENT:
		if (!peer->sends && !(cqe.flags & F_NOTIF))
			wrong("a CQE of no send", cqe.res, 0);
		sent(peer, cqe);
		break;
	case CANCELLED:
		peer->cancels--;
		touch_disk();
		break;
	case SHUT:
		if (!peer->shuts)
			wrong("a CQE of no shutdown", cqe.res, 0);
		peer->shuts = 0;
		peer->is_shut = 1;
	}
	go_on(peer);
}

static void provide(int group, int flags)
{
	struct buf_reg r = { 0, ENTRIES, group, flags };
	int i;

	groups[group].ring = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	r.addr = ADDR(groups[group].ring);
	check("group", reg(REGISTER_PBUF_RING, &r, 1), 0);
	for (i = 0; i < ENTRIES; i++)
		give(group, i);
}

static void serve(int listener)
{
	int i, slots[SLOTS];

	peers = mmap(0, sizeof(*peers) * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	for (i = 0; i < 4096; i++)
		peers[i].fd = -1;
	memset(slots, -1, sizeof(slots));
	if (uses_files)
		check("files", reg(REGISTER_FILES, slots, SLOTS), 0);
	provide(GROUP, 0);
	provide(BIT_BY_BIT, INC);
	check("list", run(SQE(PROVIDE_BUFFERS, .fd = ENTRIES, .addr = ADDR(groups[LIST].memory), .len = SIZE, .buf_index = LIST)), 0);
	accept_on(listener);
	while (served < connections) {
		struct cqe cqe;

		/* Completions are taken here only, and never recursively. */
		if (defers)
			syscall(426, ring_fd, 0, 0, 1, 0, 0);
		if (!comes(20000)) {
			for (i = 0; i < 4096; i++)
				if (peers[i].fd >= 0)
					printf("%d: receives %d sends %d cancels %d notifications %d ended %d from %d to %d\n", i, peers[i].receives,
					       peers[i].sends, peers[i].cancels, peers[i].notifications, peers[i].is_ended, peers[i].from,
					       peers[i].to);
			wrong("nothing comes, live connections", live, 0);
		}
		cqe = cqes[*cq_head & *cq_mask];
		__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
		handle(listener, cqe);
	}
}

#include "net_chaos_clients.h"

int main(int argc, char **argv)
{
	socklen_t len = sizeof(addr);
	uint32_t params[30] = { 0 };
	pthread_t thread, counter;
	int listener;

	if (argc > 1)
		seed = strtoull(argv[1], 0, 0);
	if (argc > 2)
		connections = atoi(argv[2]);
	if (argc > 3) {
		defers = !strcmp(argv[3], "defer");
		params[2] = defers ? SINGLE_ISSUER | DEFER_TASKRUN : 0;
		limit = atoi(argv[3]);
		uses_workers = limit || !strcmp(argv[3], "workers") || !strcmp(argv[3], "both");
		uses_files = !strcmp(argv[3], "files") || !strcmp(argv[3], "both");
	}
	client_rng = seed * 0x9e3779b97f4a7c15 | 1;
	server_rng = ~client_rng | 1;
	signal(SIGPIPE, SIG_IGN);
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	open_ring("chaos", params);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	addr = (struct sockaddr_in){ AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
	bind(listener, (void *)&addr, sizeof(addr));
	listen(listener, AT_ONCE);
	getsockname(listener, (void *)&addr, &len);
	begin_load(&counter);
	pthread_create(&thread, 0, ask, 0);
	serve(listener);
	end_load(counter);
	pthread_join(thread, 0);
	return failures != 0;
}
