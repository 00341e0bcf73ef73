/*
 * One peer sends as fast as it can, another one a byte now and then: the CQE of that byte comes
 * after a bounded number of the flood's CQEs, which is counted, not timed.
 */
#include "order_ring.h"
#include "tcp_pair.h"

enum { READ_MULTISHOT = 49, RECV_MULTISHOT = 2 };
enum { PIECE = 512, BUFFERS = 256, ROUNDS = 100, PIECES = 5000, MOST = 256 };

static struct { uint64_t addr; uint32_t len; uint16_t bid, tail; } *bufs;
static char memory[BUFFERS][PIECE];
static int ended;

static void provide_again(int bid)
{
	unsigned tail = bufs[0].tail, slot = tail & (BUFFERS - 1);

	bufs[slot].addr = ADDR(memory[bid]);
	bufs[slot].len = PIECE;
	bufs[slot].bid = bid;
	__atomic_store_n(&bufs[0].tail, tail + 1, __ATOMIC_RELEASE);
}

static void *send_for_ever(void *arg)
{
	static char bytes[1 << 16];

	while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE) && send((int)(long)arg, bytes, sizeof(bytes), MSG_NOSIGNAL) > 0)
		;
	return 0;
}

static struct sqe receive(int opcode, int fd, char name)
{
	return SQE(.opcode = opcode, .fd = fd, .off = opcode == RECV ? 0 : -1, .ioprio = opcode == RECV ? RECV_MULTISHOT : 0, .flags = BUFFER_SELECT, .user_data = name);
}

static void floods(const char *name, unsigned setup, int opcode)
{
	struct ring r = new_ring_with(8, setup | SETUP_CQSIZE, 1024);
	struct { uint64_t addr; uint32_t entries; uint16_t group, flags; uint64_t resv[3]; } reg = { 0, BUFFERS };
	int flood[2], quiet[2], most = 0, floods = 0, got;
	uint32_t at;
	pthread_t sender;

	section = name;
	bufs = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	reg.addr = ADDR(bufs);
	check("buffer ring", register_call(r.fd, REGISTER_PBUF_RING, &reg, 1), 0);
	for (int i = 0; i < BUFFERS; i++)
		provide_again(i);
	tcp_pair(flood);
	tcp_pair(quiet);
	ended = 0;
	pthread_create(&sender, 0, send_for_ever, (void *)(long)flood[1]);
	submit(&r, receive(opcode, flood[0], 'F'));
	/* Of one buffer, which the flood cannot use up. */
	submit(&r, SQE(.opcode = RECV, .fd = quiet[0], .addr = ADDR(&at), .len = 1, .user_data = 'Q'));
	for (int i = 0; i < ROUNDS || floods < PIECES; i++) {
		uint32_t before = __atomic_load_n(r.cq_tail, __ATOMIC_ACQUIRE), after;

		write(quiet[1], "q", 1);
		for (got = 0; !got;) {
			struct cqe cqe = next_cqe(&r);

			if (cqe.user_data == 'Q') {
				got = 1;
				after = *r.cq_head - 1;
			} else if (cqe.res > 0) {
				provide_again(cqe.flags >> 16);
				floods++;
			}
			if (cqe.user_data == 'F' && !(cqe.flags & F_MORE))
				submit(&r, receive(opcode, flood[0], 'F'));
			if (cqe.res == NO_CQE)
				exit(1);
		}
		if ((int)(after - before) > most)
			most = after - before;
		submit(&r, SQE(.opcode = RECV, .fd = quiet[0], .addr = ADDR(&at), .len = 1, .user_data = 'Q'));
	}
	if (most > MOST)
		check("CQEs of the flood before the quiet one", most, MOST);
	__atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
	/* Closed with data that was not received, the connection is reset: a sender that waits for room
	 * would sleep through a mere shutdown. */
	end_ring(&r);
	close(flood[0]);
	pthread_join(sender, 0);
	close(flood[1]);
	close(quiet[0]);
	close(quiet[1]);
}

int main(void)
{
	block_if_asked();
	floods("recv", 0, RECV);
	floods("recv, DEFER_TASKRUN", DEFER, RECV);
	/* The kernel's multishot read has no turns: it goes on until its file is empty. */
	if (getenv("BLOCK_IO_URING"))
		floods("multishot read", 0, READ_MULTISHOT);
	return finish();
}
