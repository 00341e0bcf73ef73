/*
 * IOSQE_ASYNC on requests that may wait for ever: a thousand pending receives and reads occupy no
 * worker, whatever the limit. With the argument "block" the expectations are those without the
 * hybrid step, where each occupies a worker: the four workers are busy, and ready requests wait.
 */
#include <dirent.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include "net_ring.h"

enum { PENDING = 1000, WORKERS = 4, IOWQ_MAX_WORKERS = 19 };

static int ends[PENDING][2];
static char bytes[PENDING];

static int threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

static void open_ends(void)
{
	struct rlimit limit;
	int i;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (i = 0; i < PENDING; i++) {
		/* Every fourth is a pipe. */
		if (i % 4 == 3 ? pipe(ends[i]) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i])) {
			perror("ends");
			exit(1);
		}
	}
}

static struct sqe receive(int i)
{
	return SQE(i % 4 == 3 ? READ : RECV, FORCE_ASYNC, 0, ends[i][0], .addr = ADDR(bytes + i), .len = 1, .user_data = i,
		   .off = i % 4 == 3 ? -1 : 0);
}

static int ready_receive(void)
{
	static char byte;
	int pair[2], res;

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	write(pair[1], "r", 1);
	submit(SQE(RECV, FORCE_ASYNC, 0, pair[0], .addr = ADDR(&byte), .len = 1, .user_data = PENDING));
	res = comes(500) ? next() : -1;
	close(pair[0]);
	close(pair[1]);
	return res;
}

static void pending(void)
{
	uint32_t limits[2] = { 0, WORKERS };
	int i, most = 0;

	new_ring("pending");
	check("limit", reg(IOWQ_MAX_WORKERS, limits, 2), 0);
	for (i = 0; i < PENDING; i++) {
		submit(receive(i));
		if (threads() > most)
			most = threads();
	}
	check("what is ready is received", ready_receive(), 1);
	if (threads() > most)
		most = threads();
	/* This thread, the workers, and the watcher or poller. */
	check("few threads", most <= WORKERS + 3, 1);
	nothing_comes("nothing was sent");
	for (i = 0; i < PENDING; i += 2) {
		char c = i;

		if (i % 8 == 0) {
			submit(SQE(ASYNC_CANCEL, .addr = i, .user_data = PENDING));
			/* The cancelled request and the cancel, in either order. */
			check("cancelled", next() + next(), -ECANCELED);
			continue;
		}
		check("written", write(ends[i][1], &c, 1), 1);
		check("received", next(), 1);
		check("byte", bytes[i], c);
	}
	for (i = 1; i < PENDING; i += 2) {
		close(ends[i][1]);
		check("end", next(), 0);
	}
	check("all is told", comes(20), 0);
}

static void blocking(void)
{
	uint32_t limits[2] = { 0, WORKERS };
	int i;

	new_ring("blocking");
	check("limit", reg(IOWQ_MAX_WORKERS, limits, 2), 0);
	for (i = 0; i < WORKERS; i++)
		submit(receive(i));
	check("every worker is taken", ready_receive(), -1);
	for (i = 0; i < WORKERS; i++)
		write(ends[i][1], "x", 1);
	for (i = 0; i <= WORKERS; i++)
		next();
	check("all is told", comes(20), 0);
}

int main(int argc, char **argv)
{
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	open_ends();
	if (argc > 1)
		blocking();
	else
		pending();
	return failures != 0;
}
