/* Functions that were added after liburing 2.3. */
#include "check.h"

#include "newer_functions.h"

#include <sys/mman.h>

/* The kernel's structures under names of our own: newer headers define them, too. */
struct clock_register {
	__u32 clockid;
	__u32 resv[3];
};

struct region_desc {
	__u64 user_addr, size;
	__u32 flags, id;
	__u64 mmap_offset, resv[4];
};

struct mem_region_reg {
	__u64 region_uptr, flags, resv[2];
};

struct reg_wait {
	struct __kernel_timespec ts;
	__u32 min_wait_usec, flags;
	__u64 sigmask;
	__u32 sigmask_sz, pad[3];
	__u64 pad2[2];
};

/* Whether an optional feature is supported: the result must be `wanted`, or EINVAL if it is not. */
static int is_supported(int got, int wanted)
{
	if (got == wanted)
		return 1;
	if (got == -EINVAL)
		return 0;
	fprintf(stderr, "result is %d, neither %d nor EINVAL\n", got, wanted);
	exit(1);
}

static void one_nop(struct io_uring *ring)
{
	queue_nop(ring, 9);
	CHECK(io_uring_submit_and_wait(ring, 1) == 1);
	CHECK(reap(ring, 9) == 0);
}

static void versions(void)
{
	EXPECT(io_uring_major_version(), 2);
	EXPECT(io_uring_minor_version(), 15);
	EXPECT(io_uring_check_version(2, 15), 1);
	EXPECT(io_uring_check_version(2, 3), 1);
	EXPECT(io_uring_check_version(2, 16), 0);
	EXPECT(io_uring_check_version(3, 0), 0);
	EXPECT(io_uring_memory_size(8, 0), 8192);
	EXPECT(io_uring_memory_size(256, 0), 16384 + 12288);
	EXPECT(io_uring_memory_size(0, 0), -EINVAL);
	EXPECT(io_uring_mlock_size(40000, IORING_SETUP_CLAMP) > 0, 1);
}

static void buf_ring(struct io_uring *ring)
{
	int err = 1, id;
	uint16_t head = 99;
	char byte;
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
	struct io_uring_buf_ring *br = io_uring_setup_buf_ring(ring, 4, 3, 0, &err);
	int fd = file_of("q");

	CHECK(br);
	EXPECT(err, 0);
	EXPECT(br->tail, 0);
	io_uring_buf_ring_add(br, &byte, 1, 21, 3, 0);
	io_uring_buf_ring_advance(br, 1);
	sqe = next_sqe(ring, 0);
	io_uring_prep_read(sqe, fd, NULL, 1, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = 3;
	EXPECT(io_uring_submit_and_wait(ring, 1), 1);
	CHECK(io_uring_wait_cqe(ring, &cqe) == 0);
	EXPECT(cqe->res, 1);
	id = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
	EXPECT(id, 21);
	EXPECT(byte, 'q');
	io_uring_cqe_seen(ring, cqe);
	EXPECT(io_uring_buf_ring_head(ring, 3, &head), 0);
	EXPECT(head, 1);
	EXPECT(io_uring_free_buf_ring(ring, br, 4, 3), 0);
	CHECK(io_uring_setup_buf_ring(ring, 3, 3, 0, &err) == NULL);
	EXPECT(err, -EINVAL);
	CHECK(close(fd) == 0);
}

static void min_timeout(struct io_uring *ring)
{
	struct __kernel_timespec ts = { .tv_nsec = 50000000 };
	struct io_uring_cqe *cqe;

	if (!(ring->features & (1u << 15)))
		return;
	EXPECT(io_uring_wait_cqes_min_timeout(ring, &cqe, 1, &ts, 1000, NULL), -ETIME);
	queue_nop(ring, 1);
	EXPECT(io_uring_submit_and_wait_min_timeout(ring, &cqe, 2, &ts, 1000, NULL), 1);
	EXPECT(reap(ring, 1), 0);
}

static void own_memory(void)
{
	struct io_uring_params p = { 0 };
	struct io_uring ring, second;
	size_t size = 1 << 16;
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ret = io_uring_queue_init_mem(4, &ring, &p, memory, size);

	if (!is_supported(ret < 0 ? ret : 1, 1))
		return;
	CHECK(ret == 8192);
	one_nop(&ring);
	memset(&p, 0, sizeof(p));
	CHECK(io_uring_queue_init_mem(4, &second, &p, (char *)memory + ret, size - ret) == ret);
	one_nop(&second);
	one_nop(&ring);
	io_uring_queue_exit(&second);
	io_uring_queue_exit(&ring);
	/* The memory is still the program's. */
	memset(memory, 1, size);
	memset(&p, 0, sizeof(p));
	CHECK(io_uring_queue_init_mem(4, &ring, &p, memory, 4096) == -ENOMEM);
	CHECK(io_uring_queue_init(4, &ring, 1u << 14) == 0);
	one_nop(&ring);
	io_uring_queue_exit(&ring);
}

static void clones(struct io_uring *src)
{
	static char bytes[4096];
	struct iovec iov = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	struct io_uring dst;
	int fd = file_of("cloned"), ret;

	make_ring(&dst, 4, 0);
	CHECK(io_uring_register_buffers(src, &iov, 1) == 0);
	ret = io_uring_clone_buffers(&dst, src);
	if (is_supported(ret, 0)) {
		io_uring_prep_read_fixed(next_sqe(&dst, 0), fd, bytes, 6, 0, 0);
		CHECK(io_uring_submit_and_wait(&dst, 1) == 1);
		CHECK(reap(&dst, 0) == 6);
		CHECK(io_uring_clone_buffers(&dst, src) == -EBUSY);
		CHECK(io_uring_clone_buffers_offset(&dst, src, 0, 1, 1, 0) < 0);
		CHECK(io_uring_unregister_buffers(&dst) == 0);
	}
	CHECK(io_uring_unregister_buffers(src) == 0);
	io_uring_queue_exit(&dst);
	CHECK(close(fd) == 0);
}

static void resizes(void)
{
	struct io_uring_params p = { .sq_entries = 16, .flags = 0 };
	struct io_uring ring;

	make_ring(&ring, 4, IORING_SETUP_SINGLE_ISSUER | (1u << 13));
	queue_nop(&ring, 1);
	CHECK(io_uring_submit_and_wait(&ring, 1) == 1);
	if (is_supported(io_uring_resize_rings(&ring, &p), 0)) {
		CHECK(ring.sq.ring_entries == 16);
		CHECK(reap(&ring, 1) == 0);
		for (unsigned long i = 0; i < 16; i++)
			queue_nop(&ring, i);
		CHECK(io_uring_submit_and_wait(&ring, 16) == 16);
		for (unsigned long i = 0; i < 16; i++)
			CHECK(reap(&ring, i) == 0);
	}
	io_uring_queue_exit(&ring);
}

static void registered_waits(void)
{
	struct reg_wait *waits = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct region_desc desc = { .user_addr = (unsigned long)waits, .size = 4096, .flags = 1 };
	struct mem_region_reg reg = { .region_uptr = (unsigned long)&desc, .flags = 1 };
	struct io_uring_cqe *cqe;
	struct io_uring ring;

	make_ring(&ring, 4, IORING_SETUP_R_DISABLED);
	CHECK(io_uring_register_wait_reg(&ring, (void *)waits, 1) == -EINVAL);
	if (is_supported(io_uring_register_region(&ring, (void *)&reg), 0)) {
		CHECK(io_uring_register(ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) == 0);
		waits[1].ts.tv_nsec = 20000000;
		waits[1].flags = 1;
		CHECK(io_uring_submit_and_wait_reg(&ring, &cqe, 1, 1) == -ETIME);
		queue_nop(&ring, 1);
		CHECK(io_uring_submit_and_wait_reg(&ring, &cqe, 1, 1) == 1);
		CHECK(cqe && cqe->user_data == 1);
	}
	io_uring_queue_exit(&ring);
}

static void misc(struct io_uring *ring)
{
	struct clock_register clock = { .clockid = 1 };
	struct io_uring_sqe msg = { .opcode = 255 };

	is_supported(io_uring_register_clock(ring, (void *)&clock), 0);
	CHECK(io_uring_register_sync_msg(&msg) < 0);
	CHECK(io_uring_register_query((void *)8) < 0);
	if (ring->features & (1u << 17)) {
		CHECK(io_uring_set_iowait(ring, false) == 0);
		one_nop(ring);
		CHECK(io_uring_set_iowait(ring, true) == 0);
	} else {
		CHECK(io_uring_set_iowait(ring, false) == -EOPNOTSUPP);
	}
	one_nop(ring);
}

int main(void)
{
	struct io_uring ring;

	block_io_uring();
	versions();
	make_ring(&ring, 4, 0);
	buf_ring(&ring);
	min_timeout(&ring);
	own_memory();
	clones(&ring);
	resizes();
	registered_waits();
	misc(&ring);
	io_uring_queue_exit(&ring);
	return 0;
}
