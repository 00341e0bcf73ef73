/*
 * io-wq as a program sees it: number and names of threads, limits and CPUs and their reports,
 * cancels of queued requests and of those a worker sleeps in, pools that rings share, and what
 * happens where no thread can be started. The work is splices between pipes: they have no poll
 * direction, so each that waits occupies a worker. Argument: the section.
 */
#include "net_ring.h"
#include "worker_count.h"
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

enum { FSYNC = 3, SPLICE = 30 };
enum { IOWQ_AFF = 17, UNREGISTER_IOWQ_AFF = 18, IOWQ_MAX_WORKERS = 19 };
enum { SETUP_SQPOLL = 2, ATTACH_WQ = 32 };
enum { MANY = 24 };

static int from[MANY][2], to[MANY][2];

static void open_pipes(void)
{
	int i;

	for (i = 0; i < MANY; i++)
		if (pipe(from[i]) || pipe(to[i])) {
			perror("pipe");
			exit(1);
		}
}

/* Waits for a byte in one pipe and moves it to the other. */
static struct sqe wait_for(int i)
{
	return SQE(SPLICE, FORCE_ASYNC, 0, to[i][1], .off = -1, .addr = -1, .len = 1, .file_index = from[i][0], .user_data = i);
}

static void feed(int i)
{
	check("fed", write(from[i][1], "x", 1), 1);
}

static void drain(int i)
{
	char byte;

	check("a byte came through", read(to[i][0], &byte, 1), 1);
}

static struct sqe cancel_of(int i)
{
	return SQE(ASYNC_CANCEL, 0, 0, -1, .addr = i, .user_data = 1000);
}

/* Waits until there are so many, for up to 20 s. */
static void become(const char *what, int n)
{
	int i;

	for (i = 0; i < 2000 && workers(0) != n; i++)
		usleep(10000);
	check(what, workers(0), n);
}

static void set_max(const char *what, unsigned bound, unsigned unbound, unsigned old_bound, unsigned old_unbound)
{
	unsigned limits[2] = { bound, unbound };

	check(what, reg(IOWQ_MAX_WORKERS, limits, 2), 0);
	if (old_bound)
		check(what, limits[0], old_bound);
	if (old_unbound)
		check(what, limits[1], old_unbound);
}

static int cpus_of(int tid);

static void limits(void)
{
	unsigned limits[2] = { 0x80000000, 0 };
	int i, entries, most = 4 * cpus_of(0);

	new_ring("limits");
	entries = *sq_mask + 1;
	set_max("bounded ones to begin with", 0, 0, entries < most ? entries : most, 0);
	check("no address", reg(IOWQ_MAX_WORKERS, 0, 2), -EINVAL);
	check("three", reg(IOWQ_MAX_WORKERS, limits, 3), -EINVAL);
	check("too many", reg(IOWQ_MAX_WORKERS, limits, 2), -EINVAL);
	check("a bad address", reg(IOWQ_MAX_WORKERS, (void *)8, 2), -EFAULT);
	set_max("new limits", 2, 3, 0, 0);
	set_max("0 leaves alone", 0, 0, 2, 3);
	for (i = 0; i < 12; i++)
		submit(wait_for(i));
	become("no more than allowed", 3);
	set_max("more", 0, 5, 2, 3);
	become("a higher limit is used at once", 5);
	for (i = 0; i < 12; i++) {
		feed(i);
		check("done", next(), 1);
		drain(i);
		if (workers_of(5) > 5)
			check("never more than allowed", workers(0), 5);
	}
}

/* A thread that counts workers all the time. */
static volatile int most, is_over;

static void *count(void *arg)
{
	while (!is_over) {
		int n = workers_of(5);

		if (n > most)
			most = n;
	}
	return arg;
}

static void load(void)
{
	int file = open("/proc/self/exe", O_RDONLY), round, i;
	pthread_t counter;

	new_ring("load");
	set_max("new limits", 2, 3, 0, 0);
	pthread_create(&counter, 0, count, 0);
	for (round = 0; round < 200; round++) {
		for (i = 0; i < 12; i++) {
			push(wait_for(i));
			push(SQE(FSYNC, FORCE_ASYNC, 0, file, .user_data = 100 + i));
		}
		check("submitted", syscall(426, ring_fd, 24, 0, 0, 0, 0), 24);
		for (i = 0; i < 12; i++)
			feed(i);
		for (i = 0; i < 24; i++)
			check("done", next() < 0, 0);
		for (i = 0; i < 12; i++)
			drain(i);
	}
	is_over = 1;
	pthread_join(counter, 0);
	check("never more than 2 and 3", most > 5, 0);
	close(file);
}

static int cpus_of(int tid)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	check("its CPUs", sched_getaffinity(tid, sizeof(set), &set), 0);
	return CPU_COUNT(&set);
}

/* A thread has its name before the pool knows it. */
static void cpus_become(const char *what, int tid, int n)
{
	int i;

	for (i = 0; i < 2000 && cpus_of(tid) != n; i++)
		usleep(10000);
	check(what, cpus_of(tid), n);
}

static void affinity(void)
{
	unsigned char mask[200] = { 0 };
	int tid = 0, all = cpus_of(0), first;

	for (first = 0; first < 1024; first++) {
		cpu_set_t set;

		sched_getaffinity(0, sizeof(set), &set);
		if (CPU_ISSET(first, &set))
			break;
	}
	new_ring("affinity");
	mask[first / 8] = 1 << first % 8;
	check("no address", reg(IOWQ_AFF, 0, 8), -EINVAL);
	check("no bytes", reg(IOWQ_AFF, mask, 0), -EINVAL);
	check("a bad address", reg(IOWQ_AFF, (void *)8, 8), -EFAULT);
	check("an argument", reg(UNREGISTER_IOWQ_AFF, mask, 0), -EINVAL);
	set_max("one worker", 1, 1, 0, 0);
	submit(wait_for(0));
	become("one is there", 1);
	workers(&tid);
	cpus_become("anywhere", tid, all);
	check("one CPU", reg(IOWQ_AFF, mask, sizeof(mask)), 0);
	cpus_become("who is there obeys", tid, 1);
	set_max("two workers", 1, 2, 0, 0);
	submit(wait_for(1));
	become("another one", 2);
	workers(&tid);
	cpus_become("who comes obeys", tid, 1);
	check("any CPU", reg(UNREGISTER_IOWQ_AFF, 0, 0), 0);
	cpus_become("who is there is free", tid, all);
	feed(0), feed(1);
	check("done", next(), 1);
	check("done", next(), 1);
	drain(0), drain(1);
}

static uint64_t data_of_next;

/* As next(), with the request that the CQE belongs to. */
static int next_of(void)
{
	if (!comes(5000))
		return -9999;
	data_of_next = cqes[*cq_head & *cq_mask].user_data;
	return next();
}

/* The results of a cancel and of its target, in either order. */
static void cancel_and_see(const char *what, int i, int *cancel, int *request)
{
	int n, res;

	submit(cancel_of(i));
	for (n = 0; n < 2; n++) {
		res = next_of();
		*(data_of_next == 1000 ? cancel : request) = res;
	}
}

static void cancels(void)
{
	int cancel = 0, request = 0, i;

	new_ring("cancels");
	set_max("one worker", 1, 1, 0, 0);
	submit(wait_for(0));
	become("one is there", 1);
	submit(wait_for(1));
	cancel_and_see("queued", 1, &cancel, &request);
	check("what is queued is found", cancel, 0);
	check("and ends", request, -ECANCELED);
	/* The worker is there, but may not have begun: then its request is found in the queue. */
	for (i = 0; i < 10000; i++) {
		cancel_and_see("running", 0, &cancel, &request);
		if (cancel != 0)
			break;
		check("what was not begun ends", request, -ECANCELED);
		submit(wait_for(0));
		usleep(1000);
	}
	check("what runs is interrupted", cancel, -EALREADY);
	check("and ends", request == -EINTR || request == -ECANCELED ? 0 : request, 0);
	submit(wait_for(2));
	feed(2);
	check("who comes behind it is not interrupted", next(), 1);
	drain(2);
}

static void spin(unsigned ns)
{
	struct timespec begun, now;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - begun.tv_sec) * 1000000000 + now.tv_nsec - begun.tv_nsec < ns);
}

/*
 * Cancels that arrive while a worker is about to sleep; behind each, on the same worker, a request
 * that is not cancelled.
 */
static void races(void)
{
	int round, n, res;

	new_ring("races");
	set_max("one worker", 1, 1, 0, 0);
	for (round = 0; round < 2000; round++) {
		int was_cancelled = 0;

		push(wait_for(0));
		push(wait_for(1));
		check("submitted", syscall(426, ring_fd, 2, 0, 0, 0, 0), 2);
		spin(round * 37 % 40000);
		submit(cancel_of(0));
		for (n = 0; n < 2; n++) {
			res = next_of();
			if (data_of_next == 1)
				check("who was not cancelled waits", res, 0);
			was_cancelled |= data_of_next == 0 && res < 0;
		}
		check("the cancelled one has ended", was_cancelled, 1);
		spin(round * 53 % 20000);
		feed(1);
		check("the one behind it ends as it should", next_of(), 1);
		drain(1);
		if (failures)
			return;
	}
}

/* A second ring that attaches to the first one's pool. */
static void attached(void)
{
	uint32_t params[30] = { 0 };
	int first, second, i;

	new_ring("attached");
	set_max("three workers", 1, 3, 0, 0);
	first = ring_fd;
	params[2] = ATTACH_WQ;
	params[6] = first;
	open_ring("attached", params);
	set_max("the first one's limits", 0, 0, 1, 3);
	for (i = 0; i < 6; i++)
		submit(wait_for(i));
	become("the second ring's work", 3);
	second = ring_fd;
	ring_fd = first;
	set_max("either changes them", 0, 4, 1, 3);
	ring_fd = second;
	become("for both", 4);
	for (i = 0; i < 6; i++)
		feed(i);
	for (i = 0; i < 6; i++)
		check("done", next(), 1);
	for (i = 0; i < 6; i++)
		drain(i);
}

/* To what a ring may attach. */
static void attach_to(void)
{
	uint32_t params[30] = { 0 };
	int plain, polled;

	open_ring("attach_to", params);
	plain = ring_fd;
	memset(params, 0, sizeof(params));
	params[2] = SETUP_SQPOLL;
	open_ring("attach_to", params);
	polled = ring_fd;
	for (int from = 0; from < 2; from++)
		for (int to = 0; to < 3; to++) {
			int ok, fd;

			memset(params, 0, sizeof(params));
			params[2] = ATTACH_WQ | (from ? SETUP_SQPOLL : 0);
			params[6] = (int[]){ plain, polled, 1 }[to];
			fd = syscall(425, 8, params);
			ok = to < 2 && (!from || to == 1);
			check(from ? "SQPOLL attaches to another's thread" : "a ring attaches to both kinds", fd < 0 ? -errno : 0, ok ? 0 : -EINVAL);
			if (fd >= 0)
				close(fd);
		}
}

/* No thread can be started: everything completes all the same. */
static void no_threads(void)
{
	struct rlimit none = { 1, 1 }, old;
	int i;

	new_ring("no threads");
	getrlimit(RLIMIT_NPROC, &old);
	none.rlim_max = old.rlim_max;
	if (getuid() == 0 && setresuid(54321, 54321, 54321)) {
		perror("setresuid");
		exit(1);
	}
	setrlimit(RLIMIT_NPROC, &none);
	for (i = 0; i < MANY; i++)
		feed(i);
	for (i = 0; i < MANY; i++)
		submit(wait_for(i));
	for (i = 0; i < MANY; i++) {
		check("done without a thread", next(), 1);
		drain(i);
	}
	check("there is none", workers(0), 0);
	setrlimit(RLIMIT_NPROC, &old);
	submit(wait_for(0));
	become("there is one again", 1);
	/* It is the only one, whatever is asked for. */
	setrlimit(RLIMIT_NPROC, &none);
	for (i = 1; i < 12; i++)
		submit(wait_for(i));
	for (i = 0; i < 12; i++)
		feed(i);
	for (i = 0; i < 12; i++)
		check("one does it all", next(), 1);
	check("it is alone", workers(0), 1);
	for (i = 0; i < 12; i++)
		drain(i);
}

static void retire(void)
{
	int i;

	new_ring("retire");
	set_max("four workers", 4, 4, 0, 0);
	for (i = 0; i < 8; i++)
		submit(wait_for(i));
	become("four are there", 4);
	for (i = 0; i < 8; i++)
		feed(i);
	for (i = 0; i < 8; i++)
		check("done", next(), 1);
	for (i = 0; i < 8; i++)
		drain(i);
	/* Linux keeps one. */
	for (i = 0; i < 3000 && workers(0) > 1; i++)
		usleep(10000);
	check("idle workers end", workers(0) > 1, 0);
	feed(0);
	check("and others come", run(wait_for(0)), 1);
	drain(0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} sections[] = {
		{ "limits", limits }, { "load", load }, { "affinity", affinity }, { "cancels", cancels }, { "races", races },
		{ "attached", attached }, { "attach-to", attach_to }, { "no-threads", no_threads }, { "retire", retire },
	};
	unsigned i;

	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	open_pipes();
	for (i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
		if (argc > 1 && !strcmp(argv[1], sections[i].name)) {
			sections[i].run();
			return failures ? 1 : 0;
		}
	fprintf(stderr, "no such section\n");
	return 2;
}
