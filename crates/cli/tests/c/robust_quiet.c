/*
 * A program that only reads the CQ's memory and never enters to wait: everything completes all the
 * same.
 */
#include "robust_ring.h"
#include <sys/socket.h>

static uint64_t worst;

/* Spins until a CQE is there, for at most 20 seconds. Returns the time since `since`. */
static struct cqe spin(struct ring *r, uint64_t since)
{
	uint64_t now, start = now_us();

	while (!waiting(r)) {
		now = now_us();
		if (now > start + 20000000)
			return (struct cqe){ .res = NO_CQE };
		usleep(20);
	}
	now = now_us() - since;
	if (now > worst)
		worst = now;
	return take(r);
}

static void report(const char *what)
{
	printf("%s: seen %lu us after the event at worst\n", what, (unsigned long)worst);
	worst = 0;
}

static void all_kinds(const char *name, unsigned flags)
{
	section = name;
	struct ring r = new_ring_with(16, flags, 0);
	static char buf[8192] __attribute__((aligned(4096)));
	int p[2], s[2], file, direct;
	uint64_t at;

	pipe(p);
	socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	file = open("quiet", O_RDWR | O_CREAT | O_TRUNC, 0600);
	check("a file", write(file, buf, sizeof(buf)), sizeof(buf));
	direct = open("quiet", O_RDONLY | O_DIRECT);
	for (int i = 0; i < 20; i++) {
		uint64_t ts[2] = { 0, (i * 3 + 1) * 1000000 };

		at = now_us() + (i * 3 + 1) * 1000;
		submit(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1));
		check("a timer", spin(&r, at).res, -ETIME);
	}
	report("timer");
	for (int i = 0; i < 20; i++) {
		submit(&r, SQE(.opcode = POLL_ADD, .fd = p[0], .op_flags = POLLIN));
		usleep(i * 1000);
		at = now_us();
		write(p[1], "x", 1);
		check("a poll", spin(&r, at).res, POLLIN);
		read(p[0], buf, 1);
	}
	report("poll");
	for (int i = 0; i < 20; i++) {
		submit(&r, SQE(.opcode = RECV, .fd = s[0], .addr = ADDR(buf), .len = 10));
		usleep(i * 1000);
		at = now_us();
		write(s[1], "hello", 5);
		check("a receive", spin(&r, at).res, 5);
	}
	report("receive");
	/* A pause longer than the watcher stays active. */
	submit(&r, SQE(.opcode = RECV, .fd = s[0], .addr = ADDR(buf), .len = 10));
	sleep_ms(300);
	at = now_us();
	write(s[1], "hello", 5);
	check("a receive after silence", spin(&r, at).res, 5);
	report("receive after silence");
	for (int i = 0; i < 20; i++) {
		at = now_us();
		submit(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(buf), .len = 10, .flags = FORCE_ASYNC));
		usleep(i * 200);
		at = now_us();
		write(p[1], "abc", 3);
		check("a worker", spin(&r, at).res, 3);
	}
	report("worker");
	for (int i = 0; direct >= 0 && i < 20; i++) {
		at = now_us();
		submit(&r, SQE(.opcode = READ, .fd = direct, .addr = ADDR(buf), .len = 4096));
		check("a direct read", spin(&r, at).res, 4096);
	}
	report("direct read, from its submission");
	for (int i = 0; i < 20; i++) {
		at = now_us();
		submit(&r, SQE(.opcode = WRITE, .fd = file, .addr = ADDR(buf), .len = 4096, .flags = i & 1 ? FORCE_ASYNC : 0));
		check("a write", spin(&r, at).res, 4096);
	}
	report("write, from its submission");
	/* A multishot poll and a multishot timer; only memory is read in between. */
	uint64_t ts[2] = { 0, 2000000 };
	submit(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1, .op_flags = 64, .off = 10));
	for (int i = 0; i < 10; i++)
		check("a multishot timer", spin(&r, now_us()).res, -ETIME);
	worst = 0;
	submit(&r, SQE(.opcode = POLL_ADD, .fd = p[0], .op_flags = POLLIN, .len = POLL_MULTISHOT));
	for (int i = 0; i < 20; i++) {
		at = now_us();
		write(p[1], "x", 1);
		check("a multishot poll", spin(&r, at).res, POLLIN);
		read(p[0], buf, 1);
	}
	report("multishot poll");
	end_ring(&r);
	close(p[0]);
	close(p[1]);
	close(s[0]);
	close(s[1]);
	close(file);
	close(direct);
}

int main(void)
{
	block_if_asked();
	all_kinds("plain", 0);
	all_kinds("for a single issuer", SETUP_SINGLE_ISSUER);
	return finish();
}
