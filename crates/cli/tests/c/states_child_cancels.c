/*
 * A forked child cancels what its parent has in flight on their ring: by user_data, by file, all of
 * it, by a synchronous cancel. The parent sees the CQEs, asleep in enter() or later.
 */
#define _GNU_SOURCE
#include "robust_ring.h"

enum { CANCEL_ALL = 1, CANCEL_FD = 2, CANCEL_OP = 32, SYNC_CANCEL = 24, ANSWER = 1000 };

struct sync_cancel {
	uint64_t addr;
	int32_t fd;
	uint32_t flags;
	int64_t timeout[2];
	uint8_t opcode, pad[7];
	uint64_t pad2[3];
};

static int pipes[2];

/* A poll, a read, a second read and a timer, as 1 to 4. */
static void arm(struct ring *r)
{
	static uint64_t hour[2] = { 3600, 0 };
	static char byte;

	submit(r, SQE(.opcode = POLL_ADD, .fd = pipes[0], .op_flags = POLLIN, .user_data = 1));
	submit(r, SQE(.opcode = READ, .fd = pipes[0], .addr = ADDR(&byte), .len = 1, .user_data = 2));
	submit(r, SQE(.opcode = READ, .fd = pipes[0], .addr = ADDR(&byte), .len = 1, .user_data = 3));
	submit(r, SQE(.opcode = TIMEOUT, .addr = ADDR(hour), .len = 1, .user_data = 4));
}

static void ask(struct ring *r, struct sqe sqe)
{
	sqe.opcode = ASYNC_CANCEL;
	sqe.user_data = ANSWER;
	submit(r, sqe);
}

static void one_poll(struct ring *r) { ask(r, SQE(.addr = 1)); }
static void one_read(struct ring *r) { ask(r, SQE(.addr = 3)); }
static void one_timer(struct ring *r) { ask(r, SQE(.addr = 4)); }
static void nobody(struct ring *r) { ask(r, SQE(.addr = 99)); }
static void by_file(struct ring *r) { ask(r, SQE(.fd = pipes[0], .op_flags = CANCEL_FD | CANCEL_ALL)); }
static void by_opcode(struct ring *r) { ask(r, SQE(.len = READ, .op_flags = CANCEL_OP | CANCEL_ALL)); }
static void all(struct ring *r) { ask(r, SQE(.op_flags = CANCEL_ANY)); }

static void one_of_each(struct ring *r)
{
	submit(r, SQE(.opcode = POLL_ADD, .fd = pipes[0], .op_flags = POLLIN, .user_data = 5));
	ask(r, SQE(.op_flags = CANCEL_ANY));
}

static void synchronous(struct ring *r)
{
	struct sync_cancel one = { .addr = 2, .timeout = { -1, -1 } }, none = { .addr = 98, .timeout = { -1, -1 } };

	check("cancelled", register_call(r->fd, SYNC_CANCEL, &one, 1), 0);
	check("not found", register_call(r->fd, SYNC_CANCEL, &none, 1), -ENOENT);
}

struct way {
	const char *name;
	void (*cancel)(struct ring *);
	/* The cancel's result, NO_CQE if it has no CQE; which requests end. */
	int answer;
	unsigned ended;
};

static const struct way ways[] = {
	{ "a poll", one_poll, 0, 1 << 1 },
	{ "a read", one_read, 0, 1 << 3 },
	{ "a timer", one_timer, 0, 1 << 4 },
	{ "nothing", nobody, -ENOENT, 0 },
	{ "by file", by_file, 3, 1 << 1 | 1 << 2 | 1 << 3 },
	{ "by opcode", by_opcode, 2, 1 << 2 | 1 << 3 },
	{ "all", all, 4, 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 },
	{ "the child's as well", one_of_each, 5, 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 },
	{ "a synchronous cancel", synchronous, NO_CQE, 1 << 2 },
};

static void sees(struct ring *r, const struct way *way)
{
	int want = __builtin_popcount(way->ended) + (way->answer != NO_CQE), answer = NO_CQE;
	unsigned ended = 0;

	for (int i = 0; i < want; i++) {
		struct cqe cqe = next_cqe(r);

		if (cqe.user_data == ANSWER) {
			answer = cqe.res;
			continue;
		}
		check("a cancelled one", cqe.res, -ECANCELED);
		ended |= 1u << (cqe.user_data & 31);
	}
	check("the cancel's result", answer, way->answer);
	check("which requests ended", ended, way->ended);
	check("no more", waiting(r), 0);
}

static void tried(const struct way *way, int asleep)
{
	struct ring r = new_ring(16);
	int status = -1;

	section = way->name;
	check("a pipe", pipe(pipes), 0);
	arm(&r);
	pid_t child = fork();
	if (!child) {
		failures = 0;
		if (asleep)
			sleep_ms(20);
		way->cancel(&r);
		_exit(failures != 0);
	}
	if (!asleep)
		waitpid(child, &status, 0);
	sees(&r, way);
	if (asleep)
		waitpid(child, &status, 0);
	check("the child", status, 0);
	/* What is left still works. */
	if (!(way->ended & 1 << 1)) {
		check("a byte", write(pipes[1], "x", 1), 1);
		check("one that is left", next(&r), 1);
	}
	end_ring(&r);
	close(pipes[0]);
	close(pipes[1]);
}

/* A child ends by exit(3) with a poll of the ring in flight: nobody else would end that. */
static void exits(void)
{
	struct ring r = new_ring(8);
	int status = -1;

	section = "exit";
	pid_t child = fork();
	if (!child) {
		failures = 0;
		submit(&r, SQE(.opcode = POLL_ADD, .fd = r.fd, .op_flags = POLLIN, .user_data = 1));
		exit(failures != 0);
	}
	waitpid(child, &status, 0);
	check("the child", status, 0);
	check("its poll", next(&r), -ECANCELED);
	end_ring(&r);
}

int main(void)
{
	block_if_asked();
	exits();
	for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		for (int asleep = 0; asleep < 2; asleep++)
			tried(&ways[i], asleep);
	return finish();
}
