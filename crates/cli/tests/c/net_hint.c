/*
 * IOSQE_ASYNC on sockets: which thread makes the first attempt, and which eventfd is notified. With
 * the argument "weighed" light transfers must take no worker and heavy ones must; with "worker"
 * both must; without an argument threads are not checked.
 */
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include "net_ring.h"
#include "worker_count.h"

enum { LIGHT = 32 << 10, REGISTER_EVENTFD_ASYNC = 7 };

static char out[LIGHT + 1], in[LIGHT + 1];
static const char *hint;

/* After light transfers. */
static void check_none(const char *what)
{
	if (hint)
		check(what, workers(0) > 0, !strcmp(hint, "worker"));
}

static void unix_pair(int *ends)
{
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) {
		perror("socketpair");
		exit(1);
	}
}

static int listener(struct sockaddr_in *to)
{
	socklen_t len = sizeof(*to);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	*to = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (fd < 0 || bind(fd, (void *)to, len) || listen(fd, 4) || getsockname(fd, (void *)to, &len)) {
		perror("listener");
		exit(1);
	}
	return fd;
}

static void light(void)
{
	struct sockaddr_in to;
	int ends[2], accepts, client, accepted;

	new_ring("light");
	unix_pair(ends);
	does("send", SQE(SEND, FORCE_ASYNC, 0, ends[1], .addr = ADDR(out), .len = LIGHT), LIGHT, 0);
	check_none("a worker for a send");
	does("receive", SQE(RECV, FORCE_ASYNC, 0, ends[0], .addr = ADDR(in), .len = LIGHT), LIGHT, 0);
	check_none("a worker for a receive");
	submit(SQE(RECV, FORCE_ASYNC, 0, ends[0], .addr = ADDR(in), .len = LIGHT));
	check("nothing to receive", comes(20), 0);
	check_none("a worker for a receive that waits");
	check("written", write(ends[1], "x", 1), 1);
	expect("comes later", 1, 0);
	accepts = listener(&to);
	client = socket(AF_INET, SOCK_STREAM, 0);
	check("connected", connect(client, (void *)&to, sizeof(to)), 0);
	accepted = run(SQE(ACCEPT, FORCE_ASYNC, 0, accepts));
	check("accepted", accepted >= 0, 1);
	check_none("a worker for an accept");
	close(accepted);
	close(client);
	close(accepts);
	close(ends[0]);
	close(ends[1]);
}

static void heavy(void)
{
	int ends[2];

	new_ring("heavy");
	unix_pair(ends);
	does("send", SQE(SEND, FORCE_ASYNC, 0, ends[1], .addr = ADDR(out), .len = LIGHT + 1), LIGHT + 1, 0);
	if (hint)
		check("a worker", workers(0) > 0, 1);
	does("receive", SQE(RECV, FORCE_ASYNC, 0, ends[0], .addr = ADDR(in), .len = LIGHT + 1), LIGHT + 1, 0);
	check("all of it", memcmp(in, out, sizeof(in)), 0);
	close(ends[0]);
	close(ends[1]);
}

/* The eventfd is signalled after the CQE is there. */
static int event_pending(int eventfd, int ms)
{
	struct pollfd file = { .fd = eventfd, .events = POLLIN };
	uint64_t count;

	return poll(&file, 1, ms) == 1 && read(eventfd, &count, 8) == 8;
}

/*
 * An EVENTFD_ASYNC eventfd is also signalled for requests with IOSQE_ASYNC that completed at once.
 */
static void told(void)
{
	int event = eventfd(0, EFD_NONBLOCK), ends[2];

	new_ring("told");
	unix_pair(ends);
	check("registered", reg(REGISTER_EVENTFD_ASYNC, &event, 1), 0);
	does("send", SQE(SEND, 0, 0, ends[1], .addr = ADDR(out), .len = 10), 10, 0);
	check("of what was done at once", event_pending(event, 0), 0);
	does("send", SQE(SEND, FORCE_ASYNC, 0, ends[1], .addr = ADDR(out), .len = 10), 10, 0);
	check("of a send", event_pending(event, 10000), 1);
	does("receive", SQE(RECV, FORCE_ASYNC, 0, ends[0], .addr = ADDR(in), .len = 20), 20, 0);
	check("of a receive", event_pending(event, 10000), 1);
	does("nothing", SQE(NOP, FORCE_ASYNC), 0, 0);
	check("of nothing", event_pending(event, 10000), 1);
	does("malformed", SQE(SEND, FORCE_ASYNC, 1 << 9, ends[1]), -EINVAL, 0);
	check("of what is malformed", event_pending(event, 0), 0);
	close(event);
	close(ends[0]);
	close(ends[1]);
}

int main(int argc, char **argv)
{
	size_t i;

	hint = argc > 1 ? argv[1] : NULL;
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	for (i = 0; i < sizeof(out); i++)
		out[i] = i * 7 + i / 256;
	light();
	heavy();
	told();
	return failures != 0;
}
