/*
 * A chain of as many links as a ring has entries: completed, failed, cancelled, drained, and alive
 * when its ring is closed.
 */
#include "robust_ring.h"

enum { LEN = 32768 };

static int p[2];

static void push_nops(struct ring *r, unsigned n, int flags)
{
	for (unsigned i = 0; i < n; i++)
		push(r, SQE(.opcode = NOP, .user_data = i + 2, .flags = i + 1 < n ? LINK | flags : 0));
}

static void submit_all(struct ring *r)
{
	check("submitted", enter_call(r->fd, LEN, 0, 0, 0, 0), LEN);
}

/* A request that waits, and a chain behind it. */
static struct ring blocked(int flags)
{
	struct ring r = new_ring(LEN);

	push(&r, SQE(.opcode = POLL_ADD, .fd = p[0], .op_flags = POLLIN, .user_data = 1, .flags = LINK | flags));
	push_nops(&r, LEN - 1, 0);
	submit_all(&r);
	return r;
}

/* Every request has one CQE: `first`, then `n - 1` times `rest`. */
static void expect(struct ring *r, int n, int first, int rest)
{
	int wrong = 0, count = 0;

	while (count < n && comes(r, 60000)) {
		struct cqe cqe = take(r);

		wrong += cqe.res != (count ? rest : first) || cqe.user_data != count + 1;
		count++;
	}
	check("CQEs", count, n);
	check("other results than expected", wrong, 0);
	check("further CQEs", waiting(r), 0);
}

static void completed(void)
{
	section = "a chain that succeeds";
	struct ring r = blocked(0);

	write(p[1], "x", 1);
	expect(&r, LEN, POLLIN, 0);
	read(p[0], &(char){ 0 }, 1);
	end_ring(&r);
}

static void failed(void)
{
	section = "a chain with a bad request";
	struct ring r = new_ring(LEN);

	push(&r, SQE(.opcode = NOP, .user_data = 1, .flags = LINK));
	push_nops(&r, LEN - 1, 0);
	r.sqes[LEN - 1].ioprio = 1;
	r.sqes[LEN - 1].opcode = 200;
	submit_all(&r);
	int cancelled = 0;
	while (comes(&r, 0))
		cancelled += take(&r).res == -ECANCELED;
	check("cancelled", cancelled, LEN - 1);
	works(&r);
	end_ring(&r);
}

static void cancelled(void)
{
	section = "a chain whose head is cancelled";
	struct ring r = blocked(0), other = new_ring(8);
	struct { uint64_t addr; int32_t fd; uint32_t flags; uint64_t ts[2]; uint8_t opcode, pad[7]; uint64_t pad2[3]; } sync = { 1, -1, 0, { -1ull, -1ull } };

	check("cancel", register_call(r.fd, 24, &sync, 1), 0);
	expect(&r, LEN, -ECANCELED, -ECANCELED);
	works(&other);
	end_ring(&other);
	works(&r);
	end_ring(&r);
}

static void closed(int flags)
{
	struct ring r = blocked(flags), other = new_ring(8);

	end_ring(&r);
	/* The thread that ends a ring may be another. */
	for (int i = 0; i < 3; i++) {
		works(&other);
		sleep_ms(20);
	}
	end_ring(&other);
}

int main(void)
{
	block_if_asked();
	pipe(p);
	completed();
	failed();
	cancelled();
	section = "a ring that is closed with a chain";
	closed(0);
	section = "a ring that is closed with a drained chain";
	closed(DRAIN);
	return finish();
}
