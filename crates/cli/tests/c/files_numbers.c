/*
 * A program may take any number with dup2(), close_range() or a lower limit: its files get what it
 * writes itself, and its rings go on.
 */
#define _GNU_SOURCE
#include "robust_ring.h"
#include "epoll_wait.h"
#include <sys/eventfd.h>
#include <sys/resource.h>

enum { FILES = 2, EVENTFD = 4, LOWEST = 64, END = 1100 };

struct load {
	struct ring r;
	int epoll, event, pipe[2], registered[2];
};

/* Uses the ring in each way that takes descriptors: timers, polls, workers, its own readiness. */
static void uses(struct load *l, int round)
{
	static char byte[4];
	struct ring *r = &l->r;
	uint64_t ts[2] = { 0, 1000000 }, count = 0;
	struct epoll_event event;

	memset(byte, 0, sizeof(byte));
	submit(r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1));
	check("timer", next(r), -ETIME);
	submit(r, SQE(.opcode = READ, .fd = l->pipe[0], .addr = ADDR(byte), .len = 1));
	write(l->pipe[1], "a", 1);
	check("armed", next(r), 1);
	submit(r, SQE(.opcode = READ, .flags = FIXED_FILE, .fd = 0, .addr = ADDR(byte + 1), .len = 1));
	check("nothing", comes(r, 1), 0);
	write(l->registered[1], "b", 1);
	check("registered file", next(r), 1);
	submit(r, SQE(.opcode = READ, .flags = FORCE_ASYNC, .fd = l->pipe[0], .addr = ADDR(byte + 2), .len = 1));
	write(l->pipe[1], "c", 1);
	check("ready", wait_on_epoll(l->epoll, &event, 1, 10000), 1);
	check("on a worker", next(r), 1);
	read(l->event, &count, 8);
	is_true("signalled", count > 0);
	check("all bytes", strcmp(byte, "abc"), 0);
	check("still armed", comes(r, 0), 0);
}

static struct load new_load(void)
{
	struct load l = { .r = new_ring(8), .epoll = epoll_create1(0), .event = eventfd(0, EFD_NONBLOCK) };
	struct epoll_event event = { EPOLLIN | EPOLLET };

	pipe(l.pipe);
	pipe(l.registered);
	check("registered", register_call(l.r.fd, FILES, l.registered, 1), 0);
	check("eventfd", register_call(l.r.fd, EVENTFD, &l.event, 1), 0);
	check("polled", epoll_ctl(l.epoll, EPOLL_CTL_ADD, l.r.fd, &event), 0);
	uses(&l, 0);
	return l;
}

static void end_load(struct load *l)
{
	end_ring(&l->r);
	close(l->epoll);
	close(l->event);
	for (int i = 0; i < 2; i++) {
		close(l->pipe[i]);
		close(l->registered[i]);
	}
}

static void taken(const char *how, int (*take)(int, int))
{
	static char all[4096];

	section = how;
	struct load l = new_load();
	int file = open("taken", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
	/* A request that is armed on a registered file while all numbers change. */
	char late = 0;
	submit(&l.r, SQE(.opcode = READ, .flags = FIXED_FILE, .fd = 0, .addr = ADDR(&late), .len = 1, .user_data = 7));
	for (int fd = LOWEST; fd < END; fd++)
		if (take(file, fd) != fd)
			check("taken", fd, -errno);
	write(l.registered[1], "z", 1);
	check("armed before", next(&l.r), 1);
	check("its byte", late, 'z');
	for (int round = 0; round < 3; round++)
		uses(&l, round);
	for (int fd = LOWEST; fd < END; fd += 100)
		check("writes", write(fd, "own", 3), 3);
	check("nothing but our own", pread(file, all, sizeof(all), 0), (END - LOWEST + 99) / 100 * 3);
	for (int fd = LOWEST; fd < END; fd++)
		close(fd);
	uses(&l, 3);
	check("nothing later", pread(file, all, sizeof(all), 0), (END - LOWEST + 99) / 100 * 3);
	end_load(&l);
	close(file);
	unlink("taken");
}

static int by_dup3(int old, int new)
{
	return dup3(old, new, 0);
}

static int by_instruction(int old, int new)
{
	long ret;

	asm volatile("syscall" : "=a"(ret) : "0"(33l), "D"((long)old), "S"((long)new) : "rcx", "r11", "memory");
	return ret;
}

static int by_number(int old, int new)
{
	return syscall(SYS_dup2, old, new);
}

static void closed(void)
{
	section = "close_range";
	struct load l = new_load();

	close_range(LOWEST, ~0u, 0);
	uses(&l, 0);
	close_range(LOWEST, END, CLOSE_RANGE_CLOEXEC);
	for (int fd = LOWEST; fd < END; fd++)
		close(fd);
	uses(&l, 1);
	end_load(&l);
}

/* All but a few numbers are beyond the limit. */
static int limited(void)
{
	section = "a lower limit";
	struct load before = new_load();
	struct rlimit limit = { 40, 40 };

	check("setrlimit", setrlimit(RLIMIT_NOFILE, &limit), 0);
	uses(&before, 0);
	struct load after = new_load();
	for (int round = 0; round < 3; round++) {
		uses(&before, round);
		uses(&after, round);
	}
	/* Each number that is left, and some more than once. */
	int file = open("limited", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
	int own[] = { before.r.fd, before.epoll, before.event, before.pipe[0], before.pipe[1], before.registered[0], before.registered[1],
		      after.r.fd, after.epoll, after.event, after.pipe[0], after.pipe[1], after.registered[0], after.registered[1], file };
	for (int fd = 3; fd < 33; fd++) {
		int is_own = 0;

		for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++)
			is_own |= own[i] == fd;
		if (!is_own)
			check("taken", dup2(file, fd), fd);
		if (!is_own && fd % 2)
			close(fd);
	}
	for (int round = 0; round < 3; round++) {
		uses(&before, round);
		uses(&after, round);
	}
	char byte;
	check("nothing in the file", pread(file, &byte, 1, 0), 0);
	end_load(&before);
	end_load(&after);
	unlink("limited");
	return 0;
}

int main(void)
{
	block_if_asked();
	taken("dup2", dup2);
	taken("dup3", by_dup3);
	taken("dup2 by instruction", by_instruction);
	taken("dup2 by number", by_number);
	closed();
	check("a lower limit", in_child(limited, 5), 0);
	return finish();
}
