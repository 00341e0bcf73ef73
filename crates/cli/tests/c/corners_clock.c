/* Absolute time-outs follow the wall clock. This program sets it, and back after each step. */
#define _GNU_SOURCE
#include "net_ring.h"
#include <pthread.h>
#include <time.h>

enum { TIMEOUT = 11, LINK_TIMEOUT = 15, ABS = 1, REALTIME = 8, READ_OP = 22 };
enum { STEP_S = 1000 };

struct timespec64 { int64_t sec, nsec; };

static void step(int seconds)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	now.tv_sec += seconds;
	check("the clock is set", clock_settime(CLOCK_REALTIME, &now) ? -errno : 0, 0);
}

/* This much later by the wall clock. */
static struct timespec64 later(int ms)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (struct timespec64){ now.tv_sec + (now.tv_nsec / 1000000 + ms) / 1000, (now.tv_nsec + ms % 1000 * 1000000L) % 1000000000 };
}

static struct sqe timeout(struct timespec64 *at, unsigned flags)
{
	return SQE(TIMEOUT, .addr = ADDR(at), .len = 1, .op_flags = flags | REALTIME);
}

static void appears(const char *what, int res)
{
	for (int i = 0; i < 60000 && __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) == *cq_head; i++)
		usleep(1000);
	check(what, next(), res);
}

static volatile pid_t waiter;

static void *step_while_it_waits(void *arg)
{
	char path[64], line[256], state = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", waiter);
	for (int i = 0; i < 20000 && state != 'S'; i++) {
		FILE *f = fopen(path, "r");

		usleep(3000);
		if (fgets(line, sizeof(line), f))
			sscanf(line, "%*d (%*[^)]) %c", &state);
		fclose(f);
	}
	step(STEP_S);
	return arg;
}

static void forward(void)
{
	struct timespec64 at = later(600000), period = { 600, 0 };
	pthread_t other;
	int p[2];
	char byte;

	new_ring("a step forward");
	submit(timeout(&at, ABS));
	step(STEP_S);
	check("a time-out", next(), -ETIME);
	step(-STEP_S);
	at = later(600000);
	submit(timeout(&at, ABS));
	step(STEP_S);
	appears("one that nobody waits for", -ETIME);
	step(-STEP_S);
	at = later(600000);
	waiter = syscall(186);
	submit(timeout(&at, ABS));
	pthread_create(&other, 0, step_while_it_waits, 0);
	check("one that is waited for", next(), -ETIME);
	pthread_join(other, 0);
	step(-STEP_S);
	check("pipe", pipe(p), 0);
	at = later(600000);
	submit_linked(SQE(READ_OP, LINK, .fd = p[0], .addr = ADDR(&byte), .len = 1),
		      SQE(LINK_TIMEOUT, .addr = ADDR(&at), .len = 1, .op_flags = ABS | REALTIME));
	step(STEP_S);
	int first = next(), second = next();

	check("a link timer", first == -ECANCELED ? second : first, -ETIME);
	check("its request", first == -ECANCELED ? first : second, -ECANCELED);
	step(-STEP_S);
	submit(timeout(&period, 0));
	step(STEP_S);
	nothing_comes("a relative one");
	step(-STEP_S);
	close(p[0]);
	close(p[1]);
}

static void back(void)
{
	struct timespec64 at = later(300);

	new_ring("a step back");
	submit(timeout(&at, ABS));
	step(-STEP_S);
	check("is not due yet", comes(700), 0);
	step(STEP_S);
	check("is due", next(), -ETIME);
}

int main(void)
{
	struct timespec now;

	setvbuf(stdout, 0, _IOLBF, 0);
	clock_gettime(CLOCK_REALTIME, &now);
	if (clock_settime(CLOCK_REALTIME, &now)) {
		printf("skipped: the clock may not be set: %s\n", strerror(errno));
		return 0;
	}
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	forward();
	back();
	return failures != 0;
}
