/*
 * Writes while the machine has too many dirty pages: /proc/vmstat is the test's own file here
 * ($VMSTAT), so the machine is as near its limits as the program wants. Throttled writes have
 * deadlines. The test checks that none is done before its own, and, unless this machine was too
 * slow to see it, that other requests complete meanwhile. At the limits the engine writes 1.25 MiB
 * a second: a write of so many bytes, which is done at once, delays those behind it by the time
 * that they cost.
 */
#include "robust_ring.h"
#include <stdbool.h>
#include <sys/uio.h>

enum { WRITEV = 2, BLOCK = 1024, RATE = 5 << 18, MIB = 1 << 20, CANCEL_ALL = 1, CANCEL_FD = 2, LATEST = 64 };
static const char *mode;
static int vmstat;
/* Untouched memory, which takes no pages. */
static char large[64 * MIB], text[LATEST][BLOCK];

static void machine_is(bool near)
{
	long limit = 1L << 28;
	char lines[512];
	int n = snprintf(lines, sizeof(lines),
		"nr_free_pages 4096\nnr_inactive_file 4096\nnr_active_file 4096\nnr_dirty %012ld\nnr_writeback 0\nnr_dirtied 0\nnr_written 0\n"
		"nr_dirty_threshold %ld\nnr_dirty_background_threshold %ld\n", near ? limit : 0, limit, limit / 2);

	check("the machine's state", pwrite(vmstat, lines, n, 0), n);
}

/* A counter of this process, as `uringlet stat` shows it. */
static long counter(const char *name)
{
	char command[512], key[64], said[65536];

	snprintf(command, sizeof(command), "env -u LD_PRELOAD \"$UNDER_TEST\" stat --json %d", getpid());
	snprintf(key, sizeof(key), "\"%s\":", name);
	FILE *out = popen(command, "r");
	said[out ? fread(said, 1, sizeof(said) - 1, out) : 0] = 0;
	if (out)
		pclose(out);
	char *total = strstr(said, "\"total\""), *at = total ? strstr(total, key) : 0;

	return at ? strtol(at + strlen(key), 0, 10) : -1;
}

/* The CQEs, by user_data, and their times. */
static struct { int res, times; unsigned turn; uint64_t at; } came[LATEST];
static unsigned turns;

static void note(struct cqe cqe)
{
	if (cqe.res == NO_CQE || cqe.user_data >= LATEST) {
		check("a CQE", cqe.res, 0);
		exit(1);
	}
	came[cqe.user_data].res = cqe.res;
	came[cqe.user_data].times++;
	came[cqe.user_data].turn = ++turns;
	came[cqe.user_data].at = now_us();
}

static int result(struct ring *r, unsigned user_data)
{
	while (!came[user_data].times)
		note(next_cqe(r));
	return came[user_data].res;
}

static bool is_past(uint64_t due)
{
	if (now_us() < due)
		return false;
	printf("%s: this machine is too slow to see it\n", section);
	return true;
}

static int fresh(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);

	is_true("the file opens", fd >= 0);
	return fd;
}

static struct sqe a_write(int fd, unsigned at, uint64_t user_data)
{
	memset(text[user_data], 'A' + user_data, BLOCK);
	return SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(text[user_data]), .len = BLOCK, .off = (uint64_t)at * BLOCK, .user_data = user_data);
}

static bool has(int fd, unsigned at, unsigned user_data)
{
	char back[BLOCK];

	return pread(fd, back, BLOCK, (off_t)at * BLOCK) == BLOCK && !memcmp(back, text[user_data], BLOCK);
}

/*
 * Near the limits a first write is done at once: no other one is done before the time (us) that
 * this returns.
 */
static uint64_t owe(struct ring *r, int bytes)
{
	uint64_t before = now_us();
	int fd = fresh("first");

	check("the first goes at once", run(r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(large), .len = bytes)), bytes);
	close(fd);
	return before + bytes * 1000000ull / RATE;
}

static void submit_all(struct ring *r, unsigned n)
{
	check("submitted", enter_call(r->fd, n, 0, 0, 0, 0), n);
}

static int far_away(void)
{
	section = "far from the limits";
	machine_is(false);
	struct ring r = new_ring(8);
	int fd = fresh("far");

	for (int i = 0; i < 40; i++)
		check("a write", run(&r, a_write(fd, i, 1)), BLOCK);
	check("none is put off", counter("throttled"), 0);
	if (!strcmp(mode, "adaptive"))
		is_true("the caller writes", counter("writes_inline") > 0);
	return 0;
}

/* Requests of all kinds while writes are throttled. */
static void others_go_on(struct ring *r, int fd, uint64_t due)
{
	char back[BLOCK];
	uint64_t ts[2] = { 0, 5000000 };

	push(r, SQE(.opcode = NOP, .user_data = 40));
	push(r, SQE(.opcode = READ, .fd = fd, .addr = ADDR(back), .len = BLOCK, .user_data = 41));
	push(r, SQE(.opcode = READ, .fd = fd, .addr = ADDR(back), .len = BLOCK, .user_data = 42, .flags = FORCE_ASYNC));
	push(r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1, .user_data = 43));
	push(r, SQE(.opcode = NOP, .user_data = 44, .flags = LINK));
	push(r, a_write(fd, 20, 20));
	submit_all(r, 6);
	check("a NOP", result(r, 40), 0);
	check("a read", result(r, 41), BLOCK);
	check("a worker's read", result(r, 42), BLOCK);
	check("a timeout", result(r, 43), -ETIME);
	check("a NOP before a write", result(r, 44), 0);
	if (!is_past(due))
		for (int i = 1; i <= 23; i++)
			check("no write is done", came[i].times, 0);
}

static int put_off(void)
{
	section = "put off";
	enum { WRITES = 12 };
	struct iovec iov[2] = { { text[21], 100 }, { text[21] + 100, BLOCK - 100 } };
	uint64_t minutes[2] = { 600, 0 };
	machine_is(true);
	struct ring r = new_ring(64);
	int fd = fresh("near"), another = fresh("another"), n = 0;

	check("something to read", pwrite(another, large, BLOCK, 0), BLOCK);
	uint64_t due = owe(&r, 4 * MIB), before = now_us();
	for (int i = 1; i <= 8; i++)
		push(&r, a_write(fd, i, i));
	push(&r, a_write(another, 21, 21));
	r.sqes[(*r.sq_tail - 1) % 64] = SQE(.opcode = WRITEV, .fd = fd, .addr = ADDR(iov), .len = 2, .off = 21 * BLOCK, .user_data = 21);
	struct sqe before_a_nop = a_write(fd, 22, 22), timed = a_write(fd, 23, 23);
	before_a_nop.flags = timed.flags = LINK;
	push(&r, before_a_nop);
	push(&r, SQE(.opcode = NOP, .user_data = 45));
	push(&r, timed);
	push(&r, SQE(.opcode = LINK_TIMEOUT, .addr = ADDR(minutes), .len = 1, .user_data = 46));
	submit_all(&r, 13);
	is_true("none is done when submit returns", !waiting(&r) || is_past(due));
	/* The iovecs were read. */
	memset(iov, 0, sizeof(iov));
	others_go_on(&r, another, due);
	uint64_t after = now_us();
	long now = counter("throttled_now"), most = counter("throttled_max");
	if (!is_past(due)) {
		check("put off at this moment", now, WRITES);
		check("the most", most, WRITES);
		check("put off ever", counter("throttled"), WRITES);
	}
	/* No thread is inside the engine. */
	for (uint64_t end = now_us() + 60000000; !waiting(&r) && now_us() < end;)
		sleep_ms(1);
	for (int i = 1; i <= 23; i = i == 8 ? 20 : i + 1) {
		check("a write is whole", result(&r, i), BLOCK);
		is_true("in its place", has(i == 20 ? another : fd, i, i));
		is_true("not before its time", came[i].at >= due);
		n++;
	}
	check("as many writes", n, WRITES);
	check("a NOP behind one", result(&r, 45), 0);
	is_true("is behind it", came[45].turn > came[22].turn);
	check("a timeout that was not needed", result(&r, 46), -ECANCELED);
	check("and no more", comes(&r, 20), 0);
	for (int i = 0; i < LATEST; i++)
		is_true("each once", came[i].times <= 1);
	check("none is put off any more", counter("throttled_now"), 0);
	is_true("put off in all", counter("throttled") <= WRITES);
	long ns = counter("throttled_ns"), least = due > after ? (due - after) * 1000 * WRITES : 0;
	is_true("for as long, at least", ns >= least);
	is_true("and at most", ns <= (now_us() - before) * 1000 * WRITES);
	end_ring(&r);
	return 0;
}

static int cancelled(void)
{
	section = "cancelled";
	machine_is(true);
	struct ring r = new_ring(16);
	int fd = fresh("cancelled"), another = fresh("another");
	uint64_t soon[2] = { 0, 5000000 }, due = owe(&r, 32 * MIB);

	for (int i = 1; i <= 4; i++)
		push(&r, a_write(i <= 2 ? fd : another, i, i));
	struct sqe timed = a_write(fd, 5, 5);
	timed.flags = LINK;
	push(&r, timed);
	push(&r, SQE(.opcode = LINK_TIMEOUT, .addr = ADDR(soon), .len = 1, .user_data = 46, .flags = LINK));
	push(&r, SQE(.opcode = NOP, .user_data = 47));
	submit_all(&r, 7);
	submit(&r, SQE(.opcode = ASYNC_CANCEL, .addr = 1, .user_data = 40));
	submit(&r, SQE(.opcode = ASYNC_CANCEL, .addr = 1, .user_data = 41));
	submit(&r, SQE(.opcode = ASYNC_CANCEL, .fd = another, .op_flags = CANCEL_FD | CANCEL_ALL, .user_data = 42));
	int by_user_data = result(&r, 40), again = result(&r, 41), by_file = result(&r, 42), guard = result(&r, 46);
	if (is_past(due))
		return 0;
	check("by user_data", by_user_data, 0);
	check("again", again, -ENOENT);
	check("by file", by_file, 2);
	check("a timeout", guard, -ETIME);
	for (int i = 1; i <= 5; i++)
		if (i != 2)
			check("a cancelled write", result(&r, i), -ECANCELED);
	check("what is linked to one", result(&r, 47), -ECANCELED);
	check("another is not done", came[2].times, 0);
	check("nothing else came", waiting(&r) > 0 && !is_past(due), 0);
	long now = counter("throttled_now");
	if (!is_past(due))
		check("one is left", now, 1);
	end_ring(&r);
	return 0;
}

/* The cost of a cancelled write delays no other. */
static int refunded(void)
{
	section = "refunded";
	machine_is(true);
	struct ring r = new_ring(16);
	uint64_t due = owe(&r, 2 * MIB);

	push(&r, SQE(.opcode = WRITE, .fd = fresh("large"), .addr = ADDR(large), .len = sizeof(large), .user_data = 1));
	push(&r, a_write(fresh("behind it"), 0, 2));
	submit_all(&r, 2);
	submit(&r, SQE(.opcode = ASYNC_CANCEL, .addr = 1, .user_data = 3));
	int cancel = result(&r, 3);
	if (cancel != 0 && is_past(due))
		return 0;
	check("a large one is cancelled", cancel, 0);
	submit(&r, a_write(fresh("a later one"), 0, 4));
	check("a later one is done", result(&r, 4), BLOCK);
	check("first", came[2].times, 0);
	end_ring(&r);
	return 0;
}

static int ring_goes(void)
{
	section = "the ring goes";
	machine_is(true);
	struct ring r = new_ring(8), another = new_ring(8);
	int fd = fresh("goes");
	uint64_t due = owe(&r, 16 * MIB);

	for (int i = 1; i <= 4; i++)
		push(&r, a_write(fd, i, i));
	submit_all(&r, 4);
	sleep_ms(10);
	end_ring(&r);
	works(&another);
	for (int i = 0; i < 6000 && counter("throttled_now") != 0; i++)
		sleep_ms(10);
	check("none is put off", counter("throttled_now"), 0);
	if (!is_past(due)) {
		check("four were", counter("throttled"), 4);
		is_true("for so long", counter("throttled_ns") >= 40000000);
		check("none was done", has(fd, 1, 1) + has(fd, 4, 4), 0);
	}
	/* And with the process. */
	submit(&another, a_write(fd, 5, 5));
	return 0;
}

static int forks_child(struct ring *r)
{
	int fd = fresh("child's");
	struct ring mine = new_ring(8);

	memset(came, 0, sizeof(came));
	check("the child has none put off", counter("throttled_now"), 0);
	close(r->fd);
	submit(&mine, a_write(fd, 0, 9));
	check("its own write", result(&mine, 9), BLOCK);
	check("and no more", waiting(&mine), 0);
	end_ring(&mine);
	check("none is put off", counter("throttled_now"), 0);
	return failures > 0;
}

static int forks(void)
{
	section = "fork";
	machine_is(true);
	struct ring r = new_ring(8);
	int fd = fresh("fork"), status = -1;

	owe(&r, 2 * MIB);
	for (int i = 1; i <= 4; i++)
		push(&r, a_write(fd, i, i));
	submit_all(&r, 4);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		status = forks_child(&r);
		fflush(stdout);
		_exit(status);
	}
	for (int i = 1; i <= 4; i++) {
		check("the parent's write", result(&r, i), BLOCK);
		is_true("in its place", has(fd, i, i));
	}
	waitpid(pid, &status, 0);
	check("the child", status, 0);
	check("and no more", comes(&r, 20), 0);
	check("none is put off", counter("throttled_now"), 0);
	end_ring(&r);
	return 0;
}

/* The pressure ends and returns. Writes throttled earlier are done earlier. */
static int relents(void)
{
	section = "it relents";
	machine_is(true);
	struct ring r = new_ring(8);
	int fd = fresh("relents");
	uint64_t due = owe(&r, 2 * MIB);

	submit(&r, a_write(fd, 0, 1));
	machine_is(false);
	/* A reading of vmstat is used for 50 ms. */
	sleep_ms(100);
	submit(&r, a_write(fd, 0, 2));
	check("behind one that was put off", result(&r, 2), BLOCK);
	check("which is done", result(&r, 1), BLOCK);
	/*
	 * In uringlet mode both are on the run queue now: another worker issues the second while
	 * the first is preempted.
	 */
	if (!strcmp(mode, "adaptive"))
		is_true("before", has(fd, 0, 2));
	long throttled = counter("throttled"), inlined = counter("writes_inline");
	for (int i = 0; i < 40; i++)
		check("a write", run(&r, a_write(fd, i, 3)), BLOCK);
	check("none is put off", counter("throttled"), throttled);
	if (!strcmp(mode, "adaptive"))
		is_true("the caller writes", counter("writes_inline") > inlined);
	machine_is(true);
	/* A granted budget is valid for a second. */
	sleep_ms(1100);
	due = owe(&r, 2 * MIB);
	submit(&r, a_write(fd, 0, 4));
	check("a write", result(&r, 4), BLOCK);
	is_true("in its time", came[4].at >= due);
	check("is put off", counter("throttled"), throttled + 1);
	end_ring(&r);
	return 0;
}

/* Vectored writes cost as much as their bytes. */
static int vectors(void)
{
	section = "vectors";
	struct iovec iov = { large, 2 * MIB };
	machine_is(true);
	struct ring r = new_ring(8);
	uint64_t due = now_us() + iov.iov_len * 1000000ull / RATE;

	check("the first goes at once", run(&r, SQE(.opcode = WRITEV, .fd = fresh("vector"), .addr = ADDR(&iov), .len = 1)), iov.iov_len);
	submit(&r, a_write(fresh("behind it"), 0, 1));
	check("the next", result(&r, 1), BLOCK);
	is_true("in its time", came[1].at >= due);
	end_ring(&r);
	return 0;
}

/* In workers mode the kernel throttles its workers. */
static int workers(void)
{
	section = "workers";
	machine_is(true);
	struct ring r = new_ring(8);
	int fd = fresh("workers");

	owe(&r, 16 * MIB);
	for (int i = 0; i < 20; i++)
		check("a write", run(&r, a_write(fd, i, 1)), BLOCK);
	check("none is put off", counter("throttled"), 0);
	return 0;
}

int main(void)
{
	static int (*const sections[])(void) = { far_away, put_off, cancelled, refunded, ring_goes, forks, relents, vectors };

	mode = getenv("URINGLET_MODE");
	if (!mode)
		mode = "adaptive";
	vmstat = open(getenv("VMSTAT"), O_RDWR);
	is_true("vmstat", vmstat >= 0);
	block_if_asked();
	if (!strcmp(mode, "workers"))
		check("a section's end", in_child(workers, 30), 0);
	else
		for (unsigned i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
			check("a section's end", in_child(sections[i], 30), 0);
	return finish();
}
