/* Filling, submitting and reaping, with NOPs only. */
#include "check.h"

#define ENTRIES 8

static void queue_counts(struct io_uring *ring)
{
	struct io_uring_cqe *cqe, *batch[ENTRIES];
	unsigned head, n = 0;

	EXPECT(io_uring_submit(ring), 0);
	EXPECT(io_uring_peek_cqe(ring, &cqe), -EAGAIN);
	EXPECT(io_uring_peek_batch_cqe(ring, batch, ENTRIES), 0);
	for (unsigned long i = 0; i < ENTRIES; i++)
		queue_nop(ring, i);
	CHECK(io_uring_get_sqe(ring) == NULL);
	EXPECT(io_uring_sq_ready(ring), ENTRIES);
	EXPECT(io_uring_sq_space_left(ring), 0);
	EXPECT(io_uring_submit(ring), ENTRIES);
	EXPECT(io_uring_sq_ready(ring), 0);
	EXPECT(io_uring_cq_ready(ring), ENTRIES);
	EXPECT(io_uring_submit(ring), 0);
	EXPECT(io_uring_peek_batch_cqe(ring, batch, 3), 3);
	for (unsigned long i = 0; i < 3; i++)
		EXPECT(batch[i]->user_data, i);
	io_uring_cq_advance(ring, 3);
	io_uring_for_each_cqe(ring, head, cqe) {
		EXPECT(cqe->user_data, 3 + n);
		EXPECT(cqe->res, 0);
		EXPECT(cqe->flags, 0);
		n++;
	}
	EXPECT(n, ENTRIES - 3);
	io_uring_cq_advance(ring, n);
	EXPECT(io_uring_cq_ready(ring), 0);
}

/* Enough requests that every index wraps. */
static void index_wrap(struct io_uring *ring)
{
	for (unsigned long i = 0; i < 1000; i++) {
		queue_nop(ring, 2 * i);
		queue_nop(ring, 2 * i + 1);
		CHECK(io_uring_submit_and_wait(ring, 2) == 2);
		CHECK(reap(ring, 2 * i) == 0);
		CHECK(reap(ring, 2 * i + 1) == 0);
	}
}

/* More completions than the CQ holds: none is lost, and they stay in order. */
static void cq_overflow(struct io_uring *ring)
{
	for (unsigned long i = 0; i < 4 * ENTRIES; i++) {
		queue_nop(ring, i);
		CHECK(io_uring_submit(ring) == 1);
	}
	EXPECT(io_uring_cq_ready(ring), 2 * ENTRIES);
	EXPECT(io_uring_cq_has_overflow(ring), 1);
	for (unsigned long i = 0; i < 2 * ENTRIES; i++)
		CHECK(reap(ring, i) == 0);
	EXPECT(io_uring_get_events(ring), 0);
	EXPECT(io_uring_cq_has_overflow(ring), 0);
	EXPECT(io_uring_cq_ready(ring), 2 * ENTRIES);
	for (unsigned long i = 2 * ENTRIES; i < 4 * ENTRIES; i++)
		CHECK(reap(ring, i) == 0);
}

static void unknown_opcode(struct io_uring *ring)
{
	struct io_uring_sqe *sqe = next_sqe(ring, 77);

	sqe->opcode = 255;
	SHOW(io_uring_submit(ring));
	EXPECT(reap(ring, 77), -EINVAL);
}

/* Programs built before liburing 2.5 may fill the SQ array themselves. */
static void submit_by_array(struct io_uring *ring)
{
	unsigned tail = *ring->sq.ktail, mask = ring->sq.ring_mask;
	struct io_uring_sqe *sqe = &ring->sq.sqes[5];

	memset(sqe, 0, sizeof(*sqe));
	sqe->user_data = 55;
	ring->sq.array[tail & mask] = 5;
	*ring->sq.ktail = tail + 1;
	EXPECT(io_uring_enter(ring->ring_fd, 1, 1, IORING_ENTER_GETEVENTS, NULL), 1);
	EXPECT(reap(ring, 55), 0);
}

int main(void)
{
	static const unsigned flags[] = { 0, IORING_SETUP_SQE128, IORING_SETUP_CQE32, IORING_SETUP_SQE128 | IORING_SETUP_CQE32, IORING_SETUP_COOP_TASKRUN };
	struct io_uring ring;

	block_io_uring();
	for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		printf("flags %u\n", flags[i]);
		make_ring(&ring, ENTRIES, flags[i]);
		EXPECT(ring.flags & flags[i], flags[i]);
		EXPECT(ring.sq.ring_entries, ENTRIES);
		EXPECT(ring.cq.ring_entries, 2 * ENTRIES);
		queue_counts(&ring);
		index_wrap(&ring);
		cq_overflow(&ring);
		unknown_opcode(&ring);
		io_uring_queue_exit(&ring);
	}
	make_ring(&ring, ENTRIES, 0);
	submit_by_array(&ring);
	io_uring_queue_exit(&ring);
	return 0;
}
