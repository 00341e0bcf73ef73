/*
 * Rings whose shared memory the program overwrites: no crash, no hang, and with sane values
 * restored the ring works. robust_scribble SEED does only what is random, with other numbers.
 */
#include "robust_ring.h"

static uint64_t seed = 1;

static uint32_t any32(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	switch (seed >> 60) {
	case 0: return 0;
	case 1: return ~0u;
	case 2: return seed >> 32 & 0xff;
	default: return seed >> 16;
	}
}

/* Words that the program may overwrite: all words below the CQEs, and the SQ array. */
static void scribble(struct ring *r, int with_tail)
{
	uint32_t tail = *r->sq_tail;

	for (unsigned at = 0; at < r->p.cq.cqes; at += 4)
		if (any32() & 1)
			__atomic_store_n((uint32_t *)(r->rings + at), any32(), __ATOMIC_RELAXED);
	for (unsigned i = 0; i < r->p.sq_entries; i++)
		if (any32() & 1)
			__atomic_store_n(&r->sq_array[i], any32(), __ATOMIC_RELAXED);
	if (!with_tail)
		__atomic_store_n(r->sq_tail, tail, __ATOMIC_RELAXED);
}

/*
 * Sane values again: the ring is empty on both sides. The kernel publishes its own side with the
 * next request.
 */
static void restore(struct ring *r, uint32_t head)
{
	for (unsigned i = 0; i < r->p.sq_entries; i++)
		r->sq_array[i] = i;
	__atomic_store_n((uint32_t *)(r->rings + r->p.sq.mask), r->p.sq_entries - 1, __ATOMIC_RELAXED);
	__atomic_store_n((uint32_t *)(r->rings + r->p.cq.mask), r->p.cq_entries - 1, __ATOMIC_RELAXED);
	__atomic_store_n((uint32_t *)(r->rings + r->p.sq.entries), r->p.sq_entries, __ATOMIC_RELAXED);
	__atomic_store_n((uint32_t *)(r->rings + r->p.cq.entries), r->p.cq_entries, __ATOMIC_RELAXED);
	__atomic_store_n(r->sq_flags, 0, __ATOMIC_RELAXED);
	__atomic_store_n(r->sq_tail, head, __ATOMIC_RELEASE);
}

/* Submits what is left and takes CQEs until none arrives. */
static void empty(struct ring *r)
{
	for (int i = 0; i < 200; i++) {
		enter_call(r->fd, 8, 0, 0, 0, 0);
		enter_call(r->fd, 0, 0, GETEVENTS, 0, 0);
		*r->cq_head = __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE);
	}
}

/* One word after the other; a second ring works all the time. */
static void each_word(void)
{
	static const uint32_t garbage[] = { 0, 1, 7, 8, 0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff };

	section = "each word";
	struct ring r = new_ring(8), other = new_ring(8);

	for (unsigned at = 0; at < 64; at += 4) {
		uint32_t *word = (uint32_t *)(r.rings + at), before = *word;

		for (int i = 0; at != r.p.sq.tail && i < 8; i++) {
			*word = garbage[i];
			push(&r, SQE(.opcode = NOP, .user_data = 77));
			check("submitted", enter_call(r.fd, 1, 0, 0, 0, 0), 1);
			*word = before;
			/* Heads and tails are published again with the next request. */
			submit(&r, SQE(.opcode = NOP, .user_data = 78));
			empty(&r);
			before = *word;
			works(&other);
		}
	}
	works(&r);
	end_ring(&r);
	end_ring(&other);
}

static void garbage_while_submitting(void)
{
	section = "garbage";
	struct ring other = new_ring(8);

	for (int round = 0; round < 300; round++) {
		struct ring r = new_ring_with(8, round % 3 == 0 ? SETUP_CQSIZE : 0, 16);
		int with_tail = round & 1;

		for (int i = 0; i < 8; i++)
			r.sqes[i] = SQE(.opcode = NOP, .user_data = i);
		for (int i = 0; i < 20; i++) {
			scribble(&r, with_tail);
			int n = enter_call(r.fd, any32() % 10, any32() % 3, 0, 0, 0);
			is_true("enter answers", n >= -4095 && n <= 8);
			wait_ms(&r, any32() % 20, 0);
		}
		/*
		 * Heads are published by calls that consume an SQE: a tail far ahead makes sure of
		 * that.
		 */
		restore(&r, *r.sq_head);
		for (int i = 0; i < 3; i++) {
			__atomic_store_n(r.sq_tail, *r.sq_head + 8, __ATOMIC_RELEASE);
			enter_call(r.fd, 8, 0, 0, 0, 0);
		}
		__atomic_store_n(r.sq_tail, *r.sq_head, __ATOMIC_RELEASE);
		empty(&r);
		works(&r);
		end_ring(&r);
		works(&other);
	}
	end_ring(&other);
}

static volatile int stop;

static void *scribbler(void *arg)
{
	struct ring *r = arg;

	while (!stop)
		scribble(r, 1);
	return 0;
}

static void garbage_from_another_thread(void)
{
	section = "garbage from another thread";
	struct ring r = new_ring(8), other = new_ring(8);
	pthread_t thread;
	uint64_t end = now_us() + 1000000;
	char buf[64];

	for (int i = 0; i < 8; i++)
		r.sqes[i] = SQE(.opcode = NOP, .user_data = i);
	stop = 0;
	pthread_create(&thread, 0, scribbler, &r);
	while (now_us() < end) {
		enter_call(r.fd, any32() % 9, 0, any32() & 1, 0, 0);
		wait_ms(&r, 1, 0);
		works(&other);
	}
	stop = 1;
	pthread_join(thread, 0);
	end_ring(&r);
	works(&other);
	end_ring(&other);
	(void)buf;
}

/* SQEs that change while they are consumed. */
static struct sqe *victim;

static void *changer(void *arg)
{
	uint32_t *word = (uint32_t *)victim;

	/* Everything but the opcode: a random opcode could do harm. */
	while (!stop) {
		word[1 + any32() % 15] = any32();
		word[0] = NOP | (any32() % 256) << 8;
	}
	return 0;
}

static void changing_sqes(void)
{
	section = "changing SQEs";
	struct ring r = new_ring(1), other = new_ring(1);
	pthread_t thread;
	uint64_t end = now_us() + 500000;

	victim = r.sqes;
	stop = 0;
	pthread_create(&thread, 0, changer, 0);
	while (now_us() < end) {
		__atomic_store_n(r.sq_tail, *r.sq_tail + 1, __ATOMIC_RELEASE);
		enter_call(r.fd, 1, 0, GETEVENTS, 0, 0);
		*r.cq_head = __atomic_load_n(r.cq_tail, __ATOMIC_ACQUIRE);
	}
	stop = 1;
	pthread_join(thread, 0);
	works(&other);
	end_ring(&r);
	end_ring(&other);
}

/*
 * Indices that name no SQE are dropped and counted; CQ heads ahead of the tail count as a full
 * ring.
 */
static void defined_answers(void)
{
	section = "defined answers";
	struct ring r = new_ring(4);
	uint32_t *dropped = (uint32_t *)(r.rings + r.p.sq.dropped);

	r.sq_array[0] = 4;
	r.sq_array[1] = 0x80000000;
	r.sq_array[2] = ~0u;
	__atomic_store_n(r.sq_tail, 3, __ATOMIC_RELEASE);
	for (int i = 0; i < 4 && *r.sq_head != 3; i++)
		enter_call(r.fd, 3, 0, 0, 0, 0);
	check("dropped", *dropped, 3);
	check("head", *r.sq_head, 3);
	check("CQEs", waiting(&r), 0);
	restore(&r, 3);
	works(&r);
	/* A tail behind the head counts as a full SQ. */
	for (int i = 0; i < 4; i++)
		r.sqes[i] = SQE(.opcode = NOP, .user_data = i);
	__atomic_store_n(r.sq_tail, *r.sq_head - 1, __ATOMIC_RELEASE);
	check("at most a ringful is submitted", enter_call(r.fd, 100, 0, 0, 0, 0), 4);
	check("CQEs", waiting(&r), 4);
	end_ring(&r);
}

int main(int argc, char **argv)
{
	block_if_asked();
	if (argc > 1)
		seed = strtoull(argv[1], 0, 0) * 0x9e3779b97f4a7c15ull | 1;
	else
		each_word();
	garbage_while_submitting();
	garbage_from_another_thread();
	changing_sqes();
	if (argc == 1)
		defined_answers();
	return finish();
}
