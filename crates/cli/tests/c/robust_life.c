/* Rings that begin and end: in great number, with everything in flight, in children, by death. */
#include "robust_ring.h"
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

extern char **environ;

static long rss_kib(void)
{
	long total = 0, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%ld %ld", &total, &resident) != 2)
		resident = -1;
	if (f)
		fclose(f);
	return resident * 4;
}

static long mappings(void)
{
	char line[512];
	long n = 0;
	FILE *f = fopen("/proc/self/maps", "r");

	while (f && fgets(line, sizeof(line), f))
		n++;
	if (f)
		fclose(f);
	return n;
}

/* One ring with requests of every kind in flight, ended before any of them completes. */
static void one_full_ring(int round, int p[2])
{
	struct ring r;
	uint64_t ts[2] = { 100, 0 };
	char c;

	if (try_ring(&r, 8, 0, 0)) {
		check("a ring", 0, 1);
		return;
	}
	push(&r, SQE(.opcode = NOP));
	if (round % 4 == 0) {
		push(&r, SQE(.opcode = POLL_ADD, .fd = p[0], .op_flags = POLLIN));
		push(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1));
	}
	if (round % 16 == 0)
		push(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&c), .len = 1, .flags = FORCE_ASYNC));
	check("submitted", enter_call(r.fd, 8, 1, GETEVENTS, 0, 0), round % 16 == 0 ? 4 : round % 4 == 0 ? 3 : 1);
	check("a NOP", take(&r).res, 0);
	end_ring(&r);
}

/* Waits until a count is back to its old value. */
static int settles(int (*count)(const char *), const char *what, int to)
{
	for (int i = 0; i < 100 && count(what) > to; i++)
		sleep_ms(20);
	return count(what);
}

static void thousands(void)
{
	section = "10,000 rings";
	int p[2], fds, tasks, n = getenv("FEWER_RINGS") ? 1000 : 10000;
	uint64_t start, first = 0, last = 0;
	long rss, maps;

	pipe(p);
	for (int i = 0; i < 200; i++)
		one_full_ring(i, p);
	sleep_ms(100);
	fds = count_dir("fd");
	tasks = count_dir("task");
	rss = rss_kib();
	maps = mappings();
	for (int i = 0; i < n; i++) {
		start = now_us();
		one_full_ring(i, p);
		if (i < n / 10)
			first += now_us() - start;
		if (i >= n - n / 10)
			last += now_us() - start;
	}
	is_true("no descriptor stays", settles(count_dir, "fd", fds) <= fds);
	is_true("no thread stays", settles(count_dir, "task", tasks) <= tasks + 1);
	printf("%d rings: %d -> %d descriptors, %d -> %d threads, %ld -> %ld KiB, %ld -> %ld mappings, %.1f -> %.1f us a ring\n", n, fds, count_dir("fd"), tasks, count_dir("task"),
	       rss, rss_kib(), maps, mappings(), first / (n / 10.0), last / (n / 10.0));
	is_true("no memory stays", rss_kib() - rss < 4096);
	is_true("no mapping stays", mappings() - maps < 50);
	is_true("the last about as fast as the first (twenty times slower would be a leak, less is a busy machine)", last < 20 * first + 1000000);
	close(p[0]);
	close(p[1]);
}

static struct ring shared;
static volatile int woken;

static void *waits(void *arg)
{
	woken = 0;
	enter_call(shared.fd, 0, 1, GETEVENTS, 0, 0);
	woken = 1;
	return 0;
}

/*
 * close() while a thread waits inside: the thread keeps waiting, and delays no other. The next
 * completion wakes it.
 */
static void close_under_waiter(void)
{
	section = "close while another thread waits";
	uint64_t ts[2] = { 1, 0 };
	pthread_t thread;

	shared = new_ring(8);
	submit(&shared, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1));
	pthread_create(&thread, 0, waits, 0);
	sleep_ms(300);
	close(shared.fd);
	struct ring other = new_ring(8);
	works(&other);
	uint64_t start = now_us();
	pthread_join(thread, 0);
	check("woken", woken, 1);
	is_true("in time", now_us() - start < 30000000);
	check("by its CQE", waiting(&shared), 1);
	unmap_ring(&shared);
	works(&other);
	end_ring(&other);
}

/*
 * CQEs posted before close() are in the CQ after it, though no thread entered: only the mapping is
 * left to read.
 */
static void close_after_arrival(void)
{
	section = "close after what was waited for has come";
	for (int i = 0; i < 200; i++) {
		struct ring r = new_ring(8);
		int s[2];
		char buf[8];

		socketpair(AF_UNIX, SOCK_DGRAM, 0, s);
		submit(&r, SQE(.opcode = RECV, .fd = s[0], .addr = ADDR(buf), .len = sizeof(buf)));
		submit(&r, SQE(.opcode = POLL_ADD, .fd = s[0], .op_flags = POLLIN));
		/* One for the receive, one for the poll. */
		write(s[1], "came", 4);
		write(s[1], "came", 4);
		close(r.fd);
		check("both are there", waiting(&r), 2);
		while (waiting(&r))
			is_true("and well", take(&r).res > 0);
		unmap_ring(&r);
		close(s[0]);
		close(s[1]);
	}
}

static void close_under_worker(void)
{
	section = "close while a worker blocks";
	struct ring r = new_ring(8), other = new_ring(8);
	int p[2], tasks;
	char c;

	pipe(p);
	works(&other);
	tasks = count_dir("task");
	for (int i = 0; i < 4; i++)
		submit(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&c), .len = 1, .flags = FORCE_ASYNC));
	sleep_ms(50);
	end_ring(&r);
	is_true("the workers end", settles(count_dir, "task", tasks) <= tasks + 1);
	write(p[1], "x", 1);
	sleep_ms(20);
	fcntl(p[0], F_SETFL, O_NONBLOCK);
	check("nobody took the byte", read(p[0], &c, 1), 1);
	works(&other);
	end_ring(&other);
	close(p[0]);
	close(p[1]);
}

static int pair[2];

static void everything_in_flight(struct ring *r)
{
	static uint64_t long_ts[2] = { 1000, 0 };
	static char buf[4096];
	int p[2];

	pipe(p);
	for (int i = 0; i < 4; i++) {
		push(r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(buf), .len = 1, .flags = FORCE_ASYNC));
		push(r, SQE(.opcode = READ, .fd = pair[0], .addr = ADDR(buf), .len = 1));
		push(r, SQE(.opcode = POLL_ADD, .fd = p[0], .op_flags = POLLIN, .len = POLL_MULTISHOT));
		push(r, SQE(.opcode = TIMEOUT, .addr = ADDR(long_ts), .len = 1));
		push(r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(buf), .len = 1, .flags = LINK));
		push(r, SQE(.opcode = NOP));
	}
	check("all submitted", enter_call(r->fd, 24, 0, 0, 0, 0), 24);
}

static int exits_full(void)
{
	struct ring r = new_ring(32);

	everything_in_flight(&r);
	works(&r);
	exit(failures ? 1 : 3);
}

static int dies_full(void)
{
	struct ring r = new_ring(32);

	everything_in_flight(&r);
	works(&r);
	kill(getpid(), SIGKILL);
	return 0;
}

static int execs_full(void)
{
	struct ring r = new_ring(32);
	char number[16];

	everything_in_flight(&r);
	works(&r);
	sprintf(number, "%d", r.fd);
	execl("/proc/self/exe", "again", "after exec", number, (char *)0);
	return 0;
}

/* The image after exec: the ring's number is closed, and a new ring works. */
static int after_exec(int fd)
{
	section = "after exec";
	check("the ring is close-on-exec", enter_call(fd, 0, 0, 0, 0, 0), -EBADF);
	struct ring r = new_ring(8);
	works(&r);
	printf("in the new image: %s\n", failures ? "not well" : "well");
	fflush(stdout);
	return failures ? 1 : 4;
}

static void deaths(void)
{
	section = "death";
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	for (int i = 0; i < 10; i++) {
		check("exit", in_child(exits_full, 5), 3 << 8);
		check("kill", in_child(dies_full, 5), SIGKILL);
		check("exec", in_child(execs_full, 5), 4 << 8);
	}
	/* No dead process keeps the pair's other end open. */
	char c;
	fcntl(pair[1], F_SETFL, O_NONBLOCK);
	write(pair[0], "x", 1);
	check("the socket is whole", read(pair[1], &c, 1), 1);
	close(pair[0]);
	/* The kernel takes a while to take down the rings of dead processes. */
	struct pollfd end = { pair[1], POLLIN, 0 };
	poll(&end, 1, 10000);
	check("and ends", read(pair[1], &c, 1), 0);
	close(pair[1]);
}

static struct ring inherited;

static int child_with_own_ring(void)
{
	section = "child with a ring of its own";
	struct ring r = new_ring(8);
	uint64_t ts[2] = { 0, 5000000 };
	int p[2];
	char c;

	pipe(p);
	works(&r);
	check("a timer", run(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1)), -ETIME);
	submit(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&c), .len = 1));
	submit(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&c), .len = 1, .flags = FORCE_ASYNC));
	write(p[1], "ab", 2);
	check("a read", next(&r), 1);
	check("another", next(&r), 1);
	end_ring(&r);
	return 0;
}

static int child_closes_inherited(void)
{
	section = "child closes what it inherited";
	close(inherited.fd);
	check("closed", enter_call(inherited.fd, 0, 0, 0, 0, 0), -EBADF);
	return child_with_own_ring();
}

static int child_only_exits(void)
{
	return 0;
}

static int grandchild(void)
{
	check("a grandchild", in_child(child_with_own_ring, 5), 0);
	return child_with_own_ring();
}

static void forks(void)
{
	section = "fork";
	static char c[4];
	uint64_t ts[2] = { 0, 400000000 };
	int p[2];

	pipe(p);
	inherited = new_ring(8);
	submit(&inherited, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(c), .len = 1, .user_data = 1));
	submit(&inherited, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(c + 1), .len = 1, .flags = FORCE_ASYNC, .user_data = 2));
	submit(&inherited, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1, .user_data = 3));
	check("own ring", in_child(child_with_own_ring, 5), 0);
	check("closes", in_child(child_closes_inherited, 5), 0);
	check("exits", in_child(child_only_exits, 5), 0);
	check("grandchildren", in_child(grandchild, 10), 0);
	works(&inherited);
	write(p[1], "xy", 2);
	int got = 0;
	for (int i = 0; i < 3; i++) {
		struct cqe cqe = next_cqe(&inherited);

		got |= 1 << cqe.user_data;
		check("a result", cqe.res, cqe.user_data == 3 ? -ETIME : 1);
	}
	check("all of the parent's requests end once", got, 14);
	check("no more", comes(&inherited, 20), 0);
	end_ring(&inherited);
	close(p[0]);
	close(p[1]);
}

static void spawns(void)
{
	section = "posix_spawn and vfork";
	struct ring r = new_ring(8);
	uint64_t ts[2] = { 0, 1000000 };
	int status, p[2];
	char c, *argv[] = { "true", 0 };
	pid_t pid;

	pipe(p);
	submit(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1, .op_flags = 64, .off = 0));
	submit(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&c), .len = 1, .flags = FORCE_ASYNC, .user_data = 7));
	for (int i = 0; i < 30; i++) {
		check("spawn", posix_spawnp(&pid, "true", 0, 0, argv, environ), 0);
		waitpid(pid, &status, 0);
		check("it ran", status, 0);
		pid = vfork();
		if (pid == 0) {
			/* What daemons do before exec: in the parent's memory. */
			close(r.fd);
			close(p[0]);
			dup2(1, p[1]);
			for (int fd = 3; fd < 64; fd++)
				close(fd);
			execlp("true", "true", (char *)0);
			_exit(9);
		}
		waitpid(pid, &status, 0);
		check("the vfork child ran", status, 0);
		while (waiting(&r))
			take(&r);
		if (*r.sq_flags & SQ_CQ_OVERFLOW)
			enter_call(r.fd, 0, 0, GETEVENTS, 0, 0);
	}
	write(p[1], "x", 1);
	int seen = 0;
	for (int i = 0; i < 1000 && !seen; i++)
		seen = next_cqe(&r).user_data == 7;
	check("the read came", seen, 1);
	end_ring(&r);
	close(p[0]);
	close(p[1]);
}

/* Rings made and ended in many threads at once, with forks in between. */
static void *churn(void *arg)
{
	for (int i = 0; i < 100; i++) {
		struct ring r;
		uint64_t ts[2] = { 0, 100000 };

		if (try_ring(&r, 4, 0, 0)) {
			check("a ring", 0, 1);
			break;
		}
		works(&r);
		check("a timer", run(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1)), -ETIME);
		end_ring(&r);
	}
	return 0;
}

static void churning(void)
{
	section = "threads that make rings while others fork";
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], 0, churn, 0);
	for (int i = 0; i < 30; i++)
		check("a child", in_child(child_with_own_ring, 10), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], 0);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "after exec"))
		return after_exec(atoi(argv[2]));
	block_if_asked();
	thousands();
	close_under_waiter();
	close_after_arrival();
	close_under_worker();
	deaths();
	forks();
	spawns();
	churning();
	return finish();
}
