/*
 * Thousands of connections to an echo server on one ring, opened, half closed, reset and cancelled at random, in every way there is to receive and to
 * send; each byte is checked, and each request must get its CQEs and no others. Arguments: seed, connections. The seed is printed when something is wrong.
 * The CQ holds 64 entries: it overflows all the time.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "net_ring.h"

enum { SEND_ZC = 47, WRITE = 23, ENTRIES = 64, SIZE = 512, GROUP = 1, LIST = 2, AT_ONCE = 96, MOST = 20000, F_NOTIF = 8 };
enum { ACCEPTED = 1, RECEIVED, SENT, CANCELLED, PROVIDED };

static uint64_t seed = 1;
static int connections = 3000;
static struct sockaddr_in addr;
static struct buf *br;
static char memory[ENTRIES][SIZE], listed[ENTRIES][SIZE];
static uint16_t tail;

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

/* The server ------------------------------------------------------------------------------------------------------------------------------------------ */

struct peer {
	int fd, receives, sends, cancels, notifications, is_ended, is_multishot, uses;
	char own[4096], out[1 << 16];
	struct msghdr msg;
	struct iovec iov;
	int from, to;
};
static struct peer *peers;
static uint64_t server_rng;
static int served, live;

static void give(int bid)
{
	br[tail % ENTRIES].addr = ADDR(memory[bid]);
	br[tail % ENTRIES].len = SIZE;
	br[tail % ENTRIES].bid = bid;
	tail++;
	__atomic_store_n(&br[0].tail, tail, __ATOMIC_RELEASE);
}

static uint64_t name(int kind, struct peer *peer)
{
	return (uint64_t)kind << 56 | (uint64_t)(peer->uses & 0xffffff) << 24 | (peer - peers);
}

static void receive(struct peer *peer)
{
	struct sqe sqe = SQE(RECV, .fd = peer->fd, .addr = ADDR(peer->own), .user_data = name(RECEIVED, peer));

	peer->is_multishot = 0;
	sqe.len = 1 + rng(&server_rng) % sizeof(peer->own);
	switch (rng(&server_rng) % 9) {
	case 0:
		sqe.flags = FORCE_ASYNC;
		break;
	case 1:
		sqe.ioprio = POLL_FIRST;
		break;
	case 2:
		sqe.opcode = READ;
		sqe.off = -1;
		break;
	case 3:
		peer->iov = (struct iovec){ peer->own, sqe.len };
		peer->msg = (struct msghdr){ .msg_iov = &peer->iov, .msg_iovlen = 1 };
		sqe = SQE(RECVMSG, .fd = peer->fd, .addr = ADDR(&peer->msg), .len = 1, .user_data = sqe.user_data);
		break;
	case 4:
		sqe = SQE(RECV, BUFFER_SELECT, 0, peer->fd, .buf_index = LIST, .user_data = sqe.user_data);
		break;
	case 5:
	case 6:
		sqe = SQE(RECV, BUFFER_SELECT, RECV_MULTISHOT, peer->fd, .buf_index = GROUP, .user_data = sqe.user_data);
		peer->is_multishot = 1;
		break;
	case 7:
		sqe = SQE(RECV, BUFFER_SELECT, RECV_MULTISHOT | BUNDLE, peer->fd, .buf_index = GROUP, .user_data = sqe.user_data);
		peer->is_multishot = 1;
		break;
	}
	peer->receives = 1;
	submit(sqe);
}

static void send_back(struct peer *peer)
{
	struct sqe sqe = SQE(SEND, .fd = peer->fd, .addr = ADDR(peer->out + peer->from), .len = peer->to - peer->from,
			     .op_flags = MSG_NOSIGNAL, .user_data = name(SENT, peer));

	switch (rng(&server_rng) % 6) {
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
		sqe.opcode = WRITE;
		sqe.op_flags = 0;
		sqe.off = -1;
		break;
	}
	peer->sends = 1;
	submit(sqe);
}

static void cancel(struct peer *peer)
{
	peer->cancels++;
	submit(SQE(ASYNC_CANCEL, .addr = name(RECEIVED, peer), .user_data = name(CANCELLED, peer)));
}

/* What comes next on a connection. */
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
	if (!peer->receives && !peer->sends && !peer->cancels && !peer->notifications && (peer->is_ended == 2 || (peer->is_ended && !waits))) {
		close(peer->fd);
		peer->fd = -1;
		peer->uses++;
		served++;
		live--;
	} else if (peer->receives && !peer->cancels && rng(&server_rng) % 10 == 0) {
		cancel(peer);
	}
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

static void take_buffers(struct peer *peer, struct cqe cqe, int is_listed)
{
	int bid = cqe.flags >> 16, left = cqe.res;

	for (; left > 0; bid = (bid + 1) % ENTRIES) {
		int n = left < SIZE ? left : SIZE;

		take(peer, is_listed ? listed[bid] : memory[bid], n);
		left -= n;
		if (is_listed)
			submit(SQE(PROVIDE_BUFFERS, .fd = 1, .addr = ADDR(listed[bid]), .len = SIZE, .off = bid, .buf_index = LIST,
				   .user_data = (uint64_t)PROVIDED << 56));
		else
			give(bid);
	}
}

static void received(struct peer *peer, struct cqe cqe)
{
	if (cqe.res > 0 && cqe.flags & F_BUFFER)
		take_buffers(peer, cqe, !peer->is_multishot);
	else if (cqe.res > 0)
		take(peer, peer->own, cqe.res);
	if (cqe.flags & F_MORE)
		return;
	peer->receives = 0;
	if (cqe.res == 0)
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
	else if (cqe.res != -EINTR)
		peer->is_ended = 2;
}

static void handle(int listener, struct cqe cqe)
{
	struct peer *peer = &peers[cqe.user_data & 0xffffff];

	switch (cqe.user_data >> 56) {
	case ACCEPTED:
		if (cqe.res >= 0) {
			peer = &peers[cqe.res];
			peer->fd = cqe.res;
			peer->from = peer->to = peer->is_ended = 0;
			live++;
			go_on(peer);
		}
		if (!(cqe.flags & F_MORE))
			submit(SQE(ACCEPT, 0, ACCEPT_MULTISHOT, .fd = listener, .user_data = (uint64_t)ACCEPTED << 56));
		return;
	case PROVIDED:
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
	}
	go_on(peer);
}

static void serve(int listener)
{
	struct buf_reg r = { 0, ENTRIES, GROUP };
	int i;

	peers = mmap(0, sizeof(*peers) * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	for (i = 0; i < 4096; i++)
		peers[i].fd = -1;
	br = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	r.addr = ADDR(br);
	check("group", reg(REGISTER_PBUF_RING, &r, 1), 0);
	for (i = 0; i < ENTRIES; i++)
		give(i);
	check("list", run(SQE(PROVIDE_BUFFERS, .fd = ENTRIES, .addr = ADDR(listed), .len = SIZE, .buf_index = LIST)), 0);
	submit(SQE(ACCEPT, 0, ACCEPT_MULTISHOT, .fd = listener, .user_data = (uint64_t)ACCEPTED << 56));
	while (served < connections) {
		struct cqe cqe;

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

/* The clients ----------------------------------------------------------------------------------------------------------------------------------------- */

struct client {
	int fd;
	uint32_t name;
	int wants, sent, received, end;
};
enum { HALF_CLOSES, RESETS, CLOSES };
static uint64_t client_rng;

static void open_one(struct client *client, int ep, uint32_t name)
{
	struct epoll_event event = { EPOLLIN | EPOLLOUT | EPOLLET, { .ptr = client } };
	int one = 1;

	*client = (struct client){ .fd = socket(AF_INET, SOCK_STREAM, 0), .name = name, .wants = 1 + rng(&client_rng) % MOST };
	/* Most of them to the end. */
	client->end = rng(&client_rng) % 8 ? HALF_CLOSES : rng(&client_rng) % 2 ? RESETS : CLOSES;
	if (rng(&client_rng) % 3 == 0)
		client->wants = rng(&client_rng) % 64;
	if (connect(client->fd, (void *)&addr, sizeof(addr)))
		wrong("connect", errno, 0);
	setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	fcntl(client->fd, F_SETFL, O_NONBLOCK);
	epoll_ctl(ep, EPOLL_CTL_ADD, client->fd, &event);
}

/* Whether the connection is over. */
static int send_some(struct client *client)
{
	struct linger linger = { 1, 0 };
	char bytes[3000];
	int i, n = client->wants - client->sent;

	if (n > 0) {
		n = n < (int)sizeof(bytes) ? n : (int)sizeof(bytes);
		n = 1 + rng(&client_rng) % n;
		for (i = 0; i < n; i++)
			bytes[i] = byte_of(client->name, client->sent + i);
		n = send(client->fd, bytes, n, MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN)
			wrong("send", errno, 0);
		client->sent += n > 0 ? n : 0;
		if (client->sent < client->wants && n > 0)
			return rng(&client_rng) % 4 ? send_some(client) : 0;
	}
	if (client->sent < client->wants || client->wants < 0)
		return 0;
	if (client->end == RESETS)
		setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	if (client->end != HALF_CLOSES)
		return 1;
	shutdown(client->fd, SHUT_WR);
	client->wants = -1 - client->wants;
	return 0;
}

static int receive_some(struct client *client)
{
	char bytes[8192];
	int i, n;

	while ((n = recv(client->fd, bytes, sizeof(bytes), 0)) > 0) {
		for (i = 0; i < n; i++)
			if (bytes[i] != byte_of(client->name, client->received + i))
				wrong("byte", client->received + i, client->name);
		client->received += n;
	}
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n < 0)
		wrong("recv", errno, 0);
	if (client->wants >= 0)
		wrong("the end came early", client->received, client->wants);
	if (client->received != client->sent)
		wrong("bytes", client->received, client->sent);
	return 1;
}

static void *ask(void *unused)
{
	static struct client clients[AT_ONCE];
	struct epoll_event events[AT_ONCE];
	int ep = epoll_create1(0), opened = 0, over = 0, i, n;

	for (; opened < AT_ONCE && opened < connections; opened++)
		open_one(&clients[opened], ep, opened);
	while (over < connections) {
		n = epoll_wait(ep, events, AT_ONCE, 20000);
		if (n <= 0)
			wrong("no answer, connections that are over", over, connections);
		for (i = 0; i < n; i++) {
			struct client *client = events[i].data.ptr;

			if (!receive_some(client) && !send_some(client)) {
				struct epoll_event again = { EPOLLIN | EPOLLOUT | EPOLLET, { .ptr = client } };

				/* More to be sent than was: looked at again. */
				if (client->wants > client->sent)
					epoll_ctl(ep, EPOLL_CTL_MOD, client->fd, &again);
				continue;
			}
			close(client->fd);
			over++;
			if (opened < connections)
				open_one(client, ep, opened++);
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	socklen_t len = sizeof(addr);
	pthread_t thread;
	int listener;

	if (argc > 1)
		seed = strtoull(argv[1], 0, 0);
	if (argc > 2)
		connections = atoi(argv[2]);
	client_rng = seed * 0x9e3779b97f4a7c15 | 1;
	server_rng = ~client_rng | 1;
	signal(SIGPIPE, SIG_IGN);
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	new_ring("chaos");
	listener = socket(AF_INET, SOCK_STREAM, 0);
	addr = (struct sockaddr_in){ AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
	bind(listener, (void *)&addr, sizeof(addr));
	listen(listener, AT_ONCE);
	getsockname(listener, (void *)&addr, &len);
	pthread_create(&thread, 0, ask, 0);
	serve(listener);
	pthread_join(thread, 0);
	return failures != 0;
}
