/*
 * What polls tell of a readiness that comes while the program is elsewhere, on each kind of ring,
 * of files and of other rings. One thread does everything, but in the last cases. Not here: a
 * readiness that has gone when the program enters a DEFER_TASKRUN ring, where the engine does not
 * look before.
 */
#include "order_ring.h"
#include <pthread.h>
#include <sys/epoll.h>

enum { REMOVE = 7 };
#define EDGE (1u << 31)

static char bytes[4096];

static void run_nop(struct ring *r, char data)
{
	push(r, SQE(.opcode = NOP, .user_data = data));
	enter_call(r->fd, 1, 0, 0, 0, 0);
}

struct file {
	const char *name;
	int in, out;
};

static struct file open_file(char kind)
{
	struct file f = { "?" };
	int fds[2];

	switch (kind) {
	case 'e':
		f.name = "eventfd";
		f.in = f.out = eventfd(0, EFD_NONBLOCK);
		break;
	case 's':
		f.name = "semaphore";
		f.in = f.out = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
		break;
	case 'p':
		f.name = "pipe";
		pipe2(fds, O_NONBLOCK);
		f.in = fds[0], f.out = fds[1];
		break;
	case 'u':
		f.name = "socket";
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds);
		f.in = fds[0], f.out = fds[1];
		break;
	}
	return f;
}

static void put(void *polled)
{
	const struct file *f = polled;
	uint64_t one = 1;

	write(f->out, &one, 8);
}

static void get(void *polled)
{
	const struct file *f = polled;

	read(f->in, bytes, sizeof(bytes));
}

static void post(void *polled)
{
	run_nop(polled, 'n');
}

static void reap(void *polled)
{
	while (waiting(polled))
		take(polled);
}

/* What is done after arming: w writes, r reads back, E enters for events, N submits a NOP. */
static const char *const programs[] = { "", "w", "ww", "wE", "wEr", "wErwE", "wEwE", "wErwErwE", "Nw", "NwE", "NwEr", "wEN" };

/* The same with a readiness that has gone when the program enters. */
static const char *const taken_back[] = { "wr", "wrE", "rwr", "wrwr", "wrwrw", "wrwErwr", "wErwr", "wErwErwr", "wrwrwrwrwrwrwrwrwrwrwr", "wrN" };


static const struct { const char *name; unsigned len, events; } modes[] = {
	{ "once", 0, POLLIN }, { "edge", 0, POLLIN | EDGE }, { "multishot", POLL_MULTISHOT, POLLIN }, { "multishot edge", POLL_MULTISHOT, POLLIN | EDGE },
};

/* Arms a poll of `fd`, runs the program on what is polled, and prints the CQEs. */
static void play(struct ring *r, int fd, int mode, const char *program, void *polled, void make_ready(void *), void make_empty(void *))
{
	push(r, SQE(.opcode = POLL_ADD, .fd = fd, .op_flags = modes[mode].events, .len = modes[mode].len, .user_data = 'P'));
	enter_call(r->fd, 1, 0, 0, 0, 0);
	for (const char *c = program; *c; c++)
		switch (*c) {
		case 'w':
			make_ready(polled);
			break;
		case 'r':
			make_empty(polled);
			break;
		case 'E':
			enter_call(r->fd, 0, 0, GETEVENTS, 0, 0);
			break;
		case 'N':
			run_nop(r, 'N');
			break;
		}
	print_cqes(r);
}

static void does(int which, char kind, int mode, const char *program)
{
	struct ring r;
	struct file f;

	/* The kernel's ring has two events, unless they come before its task work runs. */
	if (modes[mode].len && !strcmp(program, "ww"))
		return;
	r = new_ring_with(8, ring_kinds[which].setup, 0);
	f = open_file(kind);
	printf("%s, %s, %s, %s:", ring_kinds[which].name, f.name, modes[mode].name, program);
	play(&r, f.in, mode, program, &f, put, get);
	end_ring(&r);
	close(f.in);
	if (f.out != f.in)
		close(f.out);
}

/* A ring that polls another one. */
static void polls_ring(int a, int b, int mode, const char *program)
{
	struct ring polled, r;

	/* Of these the kernel goes on after an event. */
	if (ring_kinds[a].setup == DEFER && ring_kinds[b].setup == DEFER && modes[mode].len)
		return;
	printf("%s polls %s, %s, %s:", ring_kinds[b].name, ring_kinds[a].name, modes[mode].name, program);
	polled = new_ring_with(8, ring_kinds[a].setup, 0);
	r = new_ring_with(8, ring_kinds[b].setup, 0);
	play(&r, polled.fd, mode, program, &polled, post, reap);
	end_ring(&r);
	end_ring(&polled);
}

static void *waits_for_one(void *ring)
{
	struct ring *r = ring;

	enter_call(r->fd, 0, 1, GETEVENTS, 0, 0);
	return NULL;
}

/* A thread waits in the ring while this one makes a file ready and takes that back. */
static void beside_a_waiter(char kind)
{
	int waits = 0;

	for (int i = 0; i < 50; i++) {
		struct ring r = new_ring_with(8, 0, 0);
		struct file f = open_file(kind);
		pthread_t waiter;

		push(&r, SQE(.opcode = POLL_ADD, .fd = f.in, .op_flags = POLLIN, .len = POLL_MULTISHOT, .user_data = 'P'));
		enter_call(r.fd, 1, 0, 0, 0, 0);
		pthread_create(&waiter, NULL, waits_for_one, &r);
		usleep(i * 10);
		put(&f);
		get(&f);
		/* Does not return if the readiness was not told. */
		pthread_join(waiter, NULL);
		waits += waiting(&r) > 0;
		end_ring(&r);
		close(f.in);
		if (f.out != f.in)
			close(f.out);
	}
	printf("%c: %d waits of 50 ended\n", kind, waits);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	block_if_asked();
	for (int which = 0; which < RING_KINDS; which++)
		for (const char *kind = "espu"; *kind; kind++)
			for (int mode = 0; mode < sizeof(modes) / sizeof(modes[0]); mode++)
				for (int i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
					does(which, *kind, mode, programs[i]);
	for (int which = 0; which < RING_KINDS; which++)
		for (const char *kind = "espu"; *kind && ring_kinds[which].setup != DEFER; kind++)
			for (int mode = 0; mode < sizeof(modes) / sizeof(modes[0]); mode++)
				for (int i = 0; i < sizeof(taken_back) / sizeof(taken_back[0]); i++)
					does(which, *kind, mode, taken_back[i]);
	for (int a = 0; a < RING_KINDS; a++)
		for (int b = 0; b < RING_KINDS; b++)
			for (int mode = 0; mode < sizeof(modes) / sizeof(modes[0]); mode++)
				for (int i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
					polls_ring(a, b, mode, programs[i]);
	for (const char *kind = "espu"; *kind; kind++)
		beside_a_waiter(*kind);
	return failures > 0;
}
