/* Buffers provided by a buffer ring. */
#include "check.h"

#include <sys/mman.h>

#define BUFFERS 4
#define GROUP 7

static void read_selected(struct io_uring *ring, int fd)
{
	struct io_uring_sqe *sqe = next_sqe(ring, 0);

	io_uring_prep_read(sqe, fd, NULL, 3, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = GROUP;
	EXPECT(io_uring_submit(ring), 1);
}

/* The id of the buffer that the next CQE used, -1 if none. */
static int used_buffer(struct io_uring *ring, int res)
{
	struct io_uring_cqe *cqe;
	int id;

	CHECK(io_uring_wait_cqe(ring, &cqe) == 0);
	EXPECT(cqe->res, res);
	id = cqe->flags & IORING_CQE_F_BUFFER ? (int)(cqe->flags >> IORING_CQE_BUFFER_SHIFT) : -1;
	io_uring_cqe_seen(ring, cqe);
	return id;
}

int main(void)
{
	static char bytes[BUFFERS][16];
	struct io_uring ring;
	struct io_uring_buf_ring *br;
	struct io_uring_buf_reg reg = { .ring_entries = BUFFERS, .bgid = GROUP };
	int fds[2];

	block_io_uring();
	make_ring(&ring, 8, 0);
	CHECK(pipe(fds) == 0);
	br = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(br != MAP_FAILED);
	reg.ring_addr = (unsigned long)br;
	EXPECT(io_uring_unregister_buf_ring(&ring, GROUP), -ENOENT);
	EXPECT(io_uring_register_buf_ring(&ring, &reg, 0), 0);
	EXPECT(io_uring_register_buf_ring(&ring, &reg, 0), -EEXIST);

	CHECK(write(fds[1], "abcdef", 6) == 6);
	read_selected(&ring, fds[0]);
	EXPECT(used_buffer(&ring, -ENOBUFS), -1);
	io_uring_buf_ring_init(br);
	for (int i = 0; i < 2; i++)
		io_uring_buf_ring_add(br, bytes[i], sizeof(bytes[i]), 10 + i, io_uring_buf_ring_mask(BUFFERS), i);
	io_uring_buf_ring_advance(br, 2);
	read_selected(&ring, fds[0]);
	EXPECT(used_buffer(&ring, 3), 10);
	read_selected(&ring, fds[0]);
	EXPECT(used_buffer(&ring, 3), 11);
	CHECK(!memcmp(bytes[0], "abc", 3) && !memcmp(bytes[1], "def", 3));
	read_selected(&ring, fds[0]);
	SHOW(used_buffer(&ring, -ENOBUFS));
	EXPECT(io_uring_unregister_buf_ring(&ring, GROUP), 0);
	io_uring_queue_exit(&ring);
	return 0;
}
