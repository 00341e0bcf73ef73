/*
 * An echo server on one ring: multishot accept, multishot receives into a small buffer ring that
 * runs dry all the time, sends. Its clients check every byte. Two processes serve: the blocking
 * listener is shared with a second server, and neither may delay the other.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <signal.h>
#include <sys/wait.h>
#include "net_ring.h"

enum { CLIENTS = 12, MESSAGES = 60, MOST = 4000, BUFFERS = 16, SIZE = 512, GROUP = 1 };
enum { ACCEPTED = 1ull << 32, RECEIVED = 2ull << 32, SENT = 3ull << 32 };

static struct sockaddr_in addr;
static struct buf *br;
static char memory[BUFFERS][SIZE];
static uint16_t tail;
/*
 * Bytes that wait to be sent back on each connection. One send at a time is in flight, so that
 * bytes stay in order.
 */
static struct { char bytes[1 << 16]; int from, to, is_sending, is_ended; } peers[1024];

static void give(int bid)
{
	br[tail % BUFFERS].addr = ADDR(memory[bid]);
	br[tail % BUFFERS].len = SIZE;
	br[tail % BUFFERS].bid = bid;
	tail++;
	__atomic_store_n(&br[0].tail, tail, __ATOMIC_RELEASE);
}

static void receive(int fd)
{
	push(SQE(RECV, BUFFER_SELECT, RECV_MULTISHOT, .fd = fd, .buf_index = GROUP, .user_data = RECEIVED | fd));
}

static void send_back(int fd)
{
	int n = peers[fd].to - peers[fd].from;

	if (n > 0 && !peers[fd].is_sending) {
		push(SQE(SEND, .fd = fd, .addr = ADDR(peers[fd].bytes + peers[fd].from), .len = n, .op_flags = MSG_WAITALL, .user_data = SENT | fd));
		peers[fd].is_sending = 1;
	} else if (n == 0 && peers[fd].is_ended) {
		memset(&peers[fd], 0, sizeof(peers[fd]));
		close(fd);
	}
}

static void received(int fd, struct cqe cqe)
{
	if (cqe.flags & F_BUFFER) {
		int bid = cqe.flags >> 16;

		if (peers[fd].from == peers[fd].to && !peers[fd].is_sending)
			peers[fd].from = peers[fd].to = 0;
		memcpy(peers[fd].bytes + peers[fd].to, memory[bid], cqe.res);
		peers[fd].to += cqe.res;
		give(bid);
	}
	if (!(cqe.flags & F_MORE)) {
		if (cqe.res > 0 || cqe.res == -ENOBUFS)
			receive(fd);
		else
			peers[fd].is_ended = 1;
	}
	send_back(fd);
}

static void handle(int listener, struct cqe cqe)
{
	int fd = (int)(uint32_t)cqe.user_data;

	switch (cqe.user_data & ~0xffffffffull) {
	case ACCEPTED:
		if (cqe.res >= 0)
			receive(cqe.res);
		if (!(cqe.flags & F_MORE))
			push(SQE(ACCEPT, 0, ACCEPT_MULTISHOT, .fd = listener, .user_data = ACCEPTED));
		break;
	case RECEIVED:
		received(fd, cqe);
		break;
	case SENT:
		if (cqe.res <= 0)
			exit(1);
		peers[fd].from += cqe.res;
		peers[fd].is_sending = 0;
		send_back(fd);
		break;
	}
}

static void serve(int listener)
{
	struct buf_reg r = { 0, BUFFERS, GROUP };
	uint32_t submitted = 0;
	int i;

	br = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	r.addr = ADDR(br);
	new_ring("server");
	check("buffer ring", reg(REGISTER_PBUF_RING, &r, 1), 0);
	for (i = 0; i < BUFFERS; i++)
		give(i);
	push(SQE(ACCEPT, 0, ACCEPT_MULTISHOT, .fd = listener, .user_data = ACCEPTED));
	for (;;) {
		int n = syscall(426, ring_fd, *sq_tail - submitted, 1, 1, 0, 0);

		if (n < 0 && errno != EINTR)
			exit(1);
		submitted += n > 0 ? n : 0;
		while (*cq_head != __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE)) {
			struct cqe cqe = cqes[*cq_head & *cq_mask];

			__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
			handle(listener, cqe);
			/* Leaves room for the requests that one CQE causes. */
			if (*sq_tail - submitted > 28)
				break;
		}
	}
}

static int tcp(void)
{
	int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static void *talk(void *seed)
{
	unsigned state = (unsigned)(uintptr_t)seed;
	char out[MOST], in[MOST];
	int i, j, n, got, fd = tcp();

	if (connect(fd, (void *)&addr, sizeof(addr)))
		return (void *)1;
	for (i = 0; i < MESSAGES; i++) {
		n = 1 + (unsigned)rand_r(&state) % MOST;
		for (j = 0; j < n; j++)
			out[j] = rand_r(&state);
		if (write(fd, out, n) != n)
			return (void *)2;
		for (j = 0; j < n; j += got) {
			got = poll(&(struct pollfd){ fd, POLLIN }, 1, 10000) == 1 ? read(fd, in + j, n - j) : 0;
			if (got <= 0)
				return (void *)3;
		}
		if (memcmp(in, out, n))
			return (void *)4;
	}
	close(fd);
	return 0;
}

int main(void)
{
	pthread_t threads[CLIENTS];
	socklen_t n = sizeof(addr);
	pid_t servers[2];
	int i, round, status, listener = tcp();
	void *result;

	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	addr.sin_family = AF_INET;
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bind(listener, (void *)&addr, n);
	getsockname(listener, (void *)&addr, &n);
	listen(listener, 64);
	new_ring("first");
	section = "echo";
	for (i = 0; i < 2; i++) {
		servers[i] = fork();
		if (!servers[i])
			serve(listener);
	}
	for (round = 0; round < 4; round++) {
		for (i = 0; i < CLIENTS; i++)
			pthread_create(&threads[i], 0, talk, (void *)(uintptr_t)(round * CLIENTS + i + 1));
		for (i = 0; i < CLIENTS; i++) {
			pthread_join(threads[i], &result);
			check("a client (1 connect, 2 write, 3 silence, 4 other bytes)", (int)(uintptr_t)result, 0);
		}
	}
	check("the listener is as it was", fcntl(listener, F_GETFL) & O_NONBLOCK, 0);
	for (i = 0; i < 2; i++) {
		check("a server is still there", waitpid(servers[i], &status, WNOHANG), 0);
		kill(servers[i], SIGKILL);
		waitpid(servers[i], &status, 0);
	}
	return failures != 0;
}
