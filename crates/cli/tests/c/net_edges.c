/*
 * Receives that wait for edges: each round leaves the stream in another state (emptied, half read,
 * ended, with urgent data, closed behind the ring's back), and the next receive must see it. No
 * step may depend on a receive being tried again.
 */
#include <sys/uio.h>
#include "net_ring.h"
#include "tcp_pair.h"

enum { READV = 1, REGISTER_FILES_UPDATE = 6 };

static char buf[4096];

/* The opcode that receives in this round. */
static int with;

static struct sqe receive(int fd, int len)
{
	static struct iovec iov;

	iov = (struct iovec){ buf, len };
	if (with == READV)
		return SQE(READV, .fd = fd, .off = -1, .addr = ADDR(&iov), .len = 1);
	return SQE(with, .fd = fd, .off = with == READ ? -1 : 0, .addr = ADDR(buf), .len = len);
}

static struct sqe receive_registered(void)
{
	struct sqe sqe = receive(0, 100);

	sqe.flags = FIXED_FILE;
	return sqe;
}

static void put(int fd, const char *text)
{
	check("sent", send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Receives once after a wait, so that the ring knows the file. */
static void wait_once(int fds[2])
{
	submit(receive(fds[0], 100));
	nothing_comes("nothing was sent");
	put(fds[1], "abc");
	check("after a wait", next(), 3);
}

static void streams(void)
{
	int fds[2], i;

	new_ring("streams");
	tcp_pair(fds);
	for (i = 0; i < 20; i++)
		wait_once(fds);
	/* More than fits: the rest causes no edge. */
	submit(receive(fds[0], 4));
	put(fds[1], "0123456789");
	check("as much as fits", next(), 4);
	check("and more", run(receive(fds[0], 4)), 4);
	check("and the rest", run(receive(fds[0], 4)), 2);
	/* Exactly as much. */
	submit(receive(fds[0], 3));
	put(fds[1], "xyz");
	check("exactly", next(), 3);
	submit(receive(fds[0], 3));
	nothing_comes("nothing is left");
	put(fds[1], "xyz");
	check("exactly again", next(), 3);
	/* The data is there before the receive is submitted. */
	put(fds[1], "early");
	check("early", run(receive(fds[0], 100)), 5);
	put(fds[1], "peeked");
	check("peeked", run(SQE(RECV, .fd = fds[0], .addr = ADDR(buf), .len = 100, .op_flags = MSG_PEEK)), 6);
	check("still there", run(receive(fds[0], 100)), 6);
	/* Two receives wait for the same stream. */
	submit(receive(fds[0], 2));
	submit(receive(fds[0], 2));
	put(fds[1], "1234");
	check("first", next(), 2);
	check("second", next(), 2);
	put(fds[1], "end");
	shutdown(fds[1], SHUT_WR);
	usleep(1000);
	check("before the end", run(receive(fds[0], 100)), 3);
	check("the end", run(receive(fds[0], 100)), 0);
	check("and again", run(receive(fds[0], 100)), 0);
	close(fds[0]);
	close(fds[1]);
}

static void ends(void)
{
	int fds[2];
	struct linger linger = { 1, 0 };

	new_ring("ends");
	tcp_pair(fds);
	wait_once(fds);
	submit(receive(fds[0], 100));
	shutdown(fds[0], SHUT_RD);
	check("shut down by ourselves", next(), 0);
	close(fds[0]);
	close(fds[1]);

	tcp_pair(fds);
	wait_once(fds);
	submit(receive(fds[0], 100));
	setsockopt(fds[1], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	close(fds[1]);
	check("reset", next(), -ECONNRESET);
	close(fds[0]);

	tcp_pair(fds);
	wait_once(fds);
	check("urgent", send(fds[1], "ab!cd", 3, MSG_OOB), 3);
	usleep(1000);
	check("before the mark", run(receive(fds[0], 100)), 2);
	put(fds[1], "ef");
	check("behind it", run(receive(fds[0], 100)), 2);
	close(fds[0]);
	close(fds[1]);
}

/* A number is closed in a way the engine does not see, and used again. */
static void reused(void)
{
	int fds[2], again[2], i;

	for (i = 0; i < 3; i++) {
		new_ring("reused");
		tcp_pair(fds);
		wait_once(fds);
		fclose(fdopen(fds[0], "r"));
		fclose(fdopen(fds[1], "r"));
		tcp_pair(again);
		check("the same number", again[0], fds[0]);
		submit(receive(again[0], 100));
		submit(receive(again[1], 100));
		put(again[1], "new");
		check("the new file's", next(), 3);
		put(again[0], "new");
		check("the other's", next(), 3);
		close(again[0]);
		close(again[1]);
	}
	/* Closed visibly, while another number keeps the file open. */
	new_ring("kept");
	tcp_pair(fds);
	wait_once(fds);
	again[0] = dup(fds[0]);
	close(fds[0]);
	put(fds[1], "kept");
	check("by the other number", run(receive(again[0], 100)), 4);
	fds[0] = open("/dev/null", O_RDONLY);
	put(fds[1], "kept");
	check("again", run(receive(again[0], 100)), 4);
	close(fds[0]);
	close(again[0]);
	close(fds[1]);
}

/* A registered file leaves its slot while a receive waits for it. */
static void registered(void)
{
	int fds[2], slots[1], i, none = -1;
	struct { uint32_t offset, resv; uint64_t fds; } update = { 0, 0, ADDR(&none) };

	new_ring("registered");
	tcp_pair(fds);
	slots[0] = fds[0];
	check("registered", reg(REGISTER_FILES, slots, 1), 0);
	for (i = 0; i < 3; i++) {
		submit(receive_registered());
		nothing_comes("nothing was sent");
		put(fds[1], "abc");
		check("after a wait", next(), 3);
	}
	submit(receive_registered());
	check("unregistered", reg(REGISTER_FILES_UPDATE, &update, 1), 1);
	put(fds[1], "last");
	check("held", next(), 4);
	update.fds = ADDR(&fds[0]);
	check("registered again", reg(REGISTER_FILES_UPDATE, &update, 1), 1);
	submit(receive_registered());
	put(fds[1], "again");
	check("received", next(), 5);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	int i;

	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	for (i = 0; i < 3; i++) {
		with = (int[]){ RECV, READ, READV }[i];
		streams();
		ends();
		reused();
		registered();
	}
	return failures != 0;
}
