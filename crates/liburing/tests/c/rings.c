/* Every way to make a ring, and what is registered with a ring as a whole. */
#include "check.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>

static int init(unsigned entries, unsigned flags)
{
	struct io_uring ring;
	int ret = io_uring_queue_init(entries, &ring, flags);

	if (ret == 0)
		io_uring_queue_exit(&ring);
	return ret;
}

static void one_nop(struct io_uring *ring)
{
	queue_nop(ring, 9);
	EXPECT(io_uring_submit_and_wait(ring, 1), 1);
	EXPECT(reap(ring, 9), 0);
}

static void sizes(void)
{
	struct io_uring ring;
	struct io_uring_params p = { .flags = IORING_SETUP_CQSIZE, .cq_entries = 100 };

	EXPECT(init(0, 0), -EINVAL);
	EXPECT(init(1, 0), 0);
	EXPECT(init(32768, 0), 0);
	EXPECT(init(32769, 0), -EINVAL);
	EXPECT(init(32769, IORING_SETUP_CLAMP), 0);
	EXPECT(init(4, 1u << 30), -EINVAL);
	EXPECT(init(4, IORING_SETUP_SQ_AFF), -EINVAL);
	EXPECT(io_uring_queue_init_params(5, &ring, &p), 0);
	EXPECT(p.sq_entries, 8);
	EXPECT(p.cq_entries, 128);
	EXPECT(ring.sq.ring_entries, 8);
	EXPECT(ring.sq.ring_mask, 7);
	EXPECT(*ring.sq.kring_entries, 8);
	EXPECT(ring.cq.ring_entries, 128);
	EXPECT(*ring.cq.kring_mask, 127);
	EXPECT(ring.features == p.features, 1);
	EXPECT(!!(ring.features & IORING_FEAT_SINGLE_MMAP), 1);
	EXPECT(!!(ring.features & IORING_FEAT_EXT_ARG), 1);
	EXPECT(*ring.cq.koverflow, 0);
	EXPECT(*ring.sq.kdropped, 0);
	one_nop(&ring);
	io_uring_queue_exit(&ring);
	EXPECT(io_uring_mlock_size(8, 0), 0);
	EXPECT(io_uring_mlock_size(0, 0), -EINVAL);
	EXPECT(io_uring_mlock_size(40000, 0), -EINVAL);
}

/* A ring of io_uring_setup, mapped by io_uring_queue_mmap. */
static void raw_setup(void)
{
	struct io_uring ring;
	struct io_uring_params p = { 0 };
	int fd = io_uring_setup(4, &p);

	CHECK(fd >= 0);
	EXPECT(io_uring_queue_mmap(fd, &p, &ring), 0);
	EXPECT(ring.ring_fd == fd, 1);
	queue_nop(&ring, 5);
	*ring.sq.array = 0;
	*ring.sq.ktail = 1;
	EXPECT(io_uring_enter(fd, 1, 1, IORING_ENTER_GETEVENTS, NULL), 1);
	EXPECT(reap(&ring, 5), 0);
	EXPECT(io_uring_enter(fd, 0, 0, 1u << 31, NULL), -EINVAL);
	EXPECT(io_uring_enter2(fd, 0, 0, 0, NULL, 8), 0);
	EXPECT(io_uring_register(fd, 9999, NULL, 0), -EINVAL);
	EXPECT(io_uring_enter(0, 0, 0, 0, NULL), -EOPNOTSUPP);
	EXPECT(io_uring_enter(9999, 0, 0, 0, NULL), -EBADF);
	EXPECT(io_uring_register(9999, 0, NULL, 0), -EBADF);
	EXPECT(io_uring_setup(4, NULL), -EFAULT);
	io_uring_queue_exit(&ring);
}

static void registered_ring_fd(struct io_uring *ring)
{
	EXPECT(io_uring_register_ring_fd(ring), 1);
	EXPECT(ring->enter_ring_fd != ring->ring_fd, 1);
	one_nop(ring);
	EXPECT(io_uring_unregister_ring_fd(ring), 1);
	EXPECT(ring->enter_ring_fd == ring->ring_fd, 1);
	one_nop(ring);
	EXPECT(io_uring_register_ring_fd(ring), 1);
}

static void probe(struct io_uring *ring)
{
	struct io_uring_probe *ops = io_uring_get_probe(), *same = io_uring_get_probe_ring(ring);

	CHECK(ops && same);
	CHECK(ops->last_op == same->last_op);
	EXPECT(io_uring_opcode_supported(ops, IORING_OP_NOP), 1);
	EXPECT(io_uring_opcode_supported(ops, IORING_OP_READ), 1);
	EXPECT(io_uring_opcode_supported(ops, 254), 0);
	io_uring_free_probe(ops);
	/* Some programs do this instead. */
	free(same);
}

static void eventfds(struct io_uring *ring)
{
	int fd = eventfd(0, EFD_NONBLOCK);
	eventfd_t count;

	EXPECT(io_uring_unregister_eventfd(ring), -ENXIO);
	EXPECT(io_uring_register_eventfd(ring, fd), 0);
	EXPECT(io_uring_register_eventfd(ring, fd), -EBUSY);
	one_nop(ring);
	EXPECT(eventfd_read(fd, &count), 0);
	EXPECT(count, 1);
	EXPECT(io_uring_unregister_eventfd(ring), 0);
	one_nop(ring);
	EXPECT(eventfd_read(fd, &count), -1);
	EXPECT(io_uring_register_eventfd_async(ring, fd), 0);
	one_nop(ring);
	EXPECT(eventfd_read(fd, &count), -1);
	EXPECT(io_uring_unregister_eventfd(ring), 0);
	CHECK(close(fd) == 0);
}

static void workers(struct io_uring *ring)
{
	unsigned limits[2] = { 2, 3 };
	cpu_set_t cpus;

	EXPECT(io_uring_register_iowq_max_workers(ring, limits), 0);
	limits[0] = limits[1] = 0;
	EXPECT(io_uring_register_iowq_max_workers(ring, limits), 0);
	EXPECT(limits[0], 2);
	EXPECT(limits[1], 3);
	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	EXPECT(io_uring_register_iowq_aff(ring, sizeof(cpus), &cpus), 0);
	EXPECT(io_uring_register_iowq_aff(ring, 1ul << 31, &cpus), -EINVAL);
	EXPECT(io_uring_unregister_iowq_aff(ring), 0);
}

/* A kernel or engine may lack them. */
static void personality(struct io_uring *ring)
{
	int id = io_uring_register_personality(ring);

	if (id == -EINVAL)
		return;
	CHECK(id > 0);
	CHECK(io_uring_unregister_personality(ring, id) == 0);
	CHECK(io_uring_unregister_personality(ring, id) == -EINVAL);
}

static void disabled_ring(void)
{
	struct io_uring ring;

	make_ring(&ring, 4, IORING_SETUP_R_DISABLED);
	queue_nop(&ring, 1);
	EXPECT(io_uring_submit(&ring), -EBADFD);
	EXPECT(io_uring_register(ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0), 0);
	EXPECT(io_uring_submit(&ring), 1);
	EXPECT(reap(&ring, 1), 0);
	io_uring_queue_exit(&ring);
}

static void sync_cancel(struct io_uring *ring)
{
	struct io_uring_sync_cancel_reg reg = { .addr = 42, .fd = -1, .timeout = { -1, -1 } };
	int fds[2];
	char byte;

	CHECK(pipe(fds) == 0);
	EXPECT(io_uring_register_sync_cancel(ring, &reg), -ENOENT);
	io_uring_prep_read(next_sqe(ring, 0), fds[0], &byte, 1, 0);
	ring->sq.sqes[(ring->sq.sqe_tail - 1) & ring->sq.ring_mask].user_data = 42;
	EXPECT(io_uring_submit(ring), 1);
	EXPECT(io_uring_register_sync_cancel(ring, &reg), 0);
	EXPECT(reap(ring, 42), -ECANCELED);
	CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
}

int main(void)
{
	struct io_uring ring;

	block_io_uring();
	sizes();
	raw_setup();
	make_ring(&ring, 4, 0);
	EXPECT(io_uring_ring_dontfork(&ring), 0);
	one_nop(&ring);
	probe(&ring);
	eventfds(&ring);
	workers(&ring);
	personality(&ring);
	disabled_ring();
	sync_cancel(&ring);
	registered_ring_fd(&ring);
	io_uring_queue_exit(&ring);
	return 0;
}
