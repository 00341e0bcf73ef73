/* Reading and writing files: plain, vectored, linked, with registered files and buffers. */
#include "check.h"

static void plain(struct io_uring *ring)
{
	int fd = file_of("");
	char buf[16] = "";
	struct iovec parts[2] = { { .iov_base = "hel", .iov_len = 3 }, { .iov_base = "lo!", .iov_len = 3 } };

	io_uring_prep_writev(next_sqe(ring, 0), fd, parts, 2, 0);
	EXPECT(io_uring_submit(ring), 1);
	EXPECT(reap(ring, 0), 6);
	io_uring_prep_read(next_sqe(ring, 0), fd, buf, sizeof(buf), 1);
	EXPECT(io_uring_submit(ring), 1);
	EXPECT(reap(ring, 0), 5);
	CHECK(!memcmp(buf, "ello!", 6));
	io_uring_prep_fsync(next_sqe(ring, 0), fd, 0);
	EXPECT(io_uring_submit_and_wait(ring, 1), 1);
	EXPECT(reap(ring, 0), 0);
	io_uring_prep_read(next_sqe(ring, 0), -1, buf, sizeof(buf), 0);
	EXPECT(io_uring_submit_and_wait(ring, 1), 1);
	EXPECT(reap(ring, 0), -EBADF);
	io_uring_prep_read(next_sqe(ring, 0), fd, NULL, 1, 0);
	EXPECT(io_uring_submit_and_wait(ring, 1), 1);
	EXPECT(reap(ring, 0), -EFAULT);
	CHECK(close(fd) == 0);
}

static void prep_data(struct io_uring_sqe *sqe, unsigned long data, unsigned flags)
{
	sqe->user_data = data;
	sqe->flags |= flags;
}

/* A short read ends its chain; with a hard link it does not. */
static void links(struct io_uring *ring, unsigned link, int after)
{
	int fd = file_of("abc");
	char buf[8];
	struct io_uring_sqe *sqe;

	printf("link flag %u\n", link);
	sqe = next_sqe(ring, 0);
	io_uring_prep_read(sqe, fd, buf, 3, 0);
	prep_data(sqe, 1, link);
	sqe = next_sqe(ring, 0);
	io_uring_prep_read(sqe, fd, buf, 8, 0);
	prep_data(sqe, 2, link);
	sqe = next_sqe(ring, 0);
	io_uring_prep_nop(sqe);
	prep_data(sqe, 3, 0);
	EXPECT(io_uring_submit_and_wait(ring, 3), 3);
	EXPECT(reap(ring, 1), 3);
	EXPECT(reap(ring, 2), 3);
	EXPECT(reap(ring, 3), after);
	CHECK(close(fd) == 0);
}

static void fixed_files(struct io_uring *ring)
{
	int fds[2] = { file_of("zero"), file_of("one") }, gone = -1;
	char buf[8] = "";
	struct io_uring_sqe *sqe;

	EXPECT(io_uring_unregister_files(ring), -ENXIO);
	EXPECT(io_uring_register_files(ring, fds, 2), 0);
	EXPECT(io_uring_register_files(ring, fds, 2), -EBUSY);
	CHECK(close(fds[1]) == 0);
	sqe = next_sqe(ring, 0);
	io_uring_prep_read(sqe, 1, buf, sizeof(buf), 0);
	prep_data(sqe, 0, IOSQE_FIXED_FILE);
	EXPECT(io_uring_submit_and_wait(ring, 1), 1);
	EXPECT(reap(ring, 0), 3);
	CHECK(!memcmp(buf, "one", 3));
	EXPECT(io_uring_register_files_update(ring, 1, &gone, 1), 1);
	EXPECT(io_uring_register_files_update(ring, 2, &gone, 1), -EINVAL);
	sqe = next_sqe(ring, 0);
	io_uring_prep_read(sqe, 1, buf, sizeof(buf), 0);
	prep_data(sqe, 0, IOSQE_FIXED_FILE);
	EXPECT(io_uring_submit_and_wait(ring, 1), 1);
	EXPECT(reap(ring, 0), -EBADF);
	EXPECT(io_uring_unregister_files(ring), 0);
	EXPECT(io_uring_register_files_sparse(ring, 4), 0);
	EXPECT(io_uring_register_file_alloc_range(ring, 1, 2), 0);
	EXPECT(io_uring_register_file_alloc_range(ring, 3, 2), -EINVAL);
	EXPECT(io_uring_register_files_update_tag(ring, 0, &fds[0], NULL, 1), 1);
	EXPECT(io_uring_unregister_files(ring), 0);
	EXPECT(io_uring_register_files_tags(ring, fds, NULL, 1), 0);
	EXPECT(io_uring_unregister_files(ring), 0);
	CHECK(close(fds[0]) == 0);
}

static void fixed_buffers(struct io_uring *ring)
{
	static char bytes[8192];
	struct iovec whole = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	int fd = file_of("");

	EXPECT(io_uring_unregister_buffers(ring), -ENXIO);
	EXPECT(io_uring_register_buffers(ring, &whole, 1), 0);
	EXPECT(io_uring_register_buffers(ring, &whole, 1), -EBUSY);
	strcpy(bytes, "registered");
	io_uring_prep_write_fixed(next_sqe(ring, 0), fd, bytes, 10, 0, 0);
	EXPECT(io_uring_submit_and_wait(ring, 1), 1);
	EXPECT(reap(ring, 0), 10);
	io_uring_prep_read_fixed(next_sqe(ring, 0), fd, bytes + 4096, 4096, 0, 0);
	EXPECT(io_uring_submit_and_wait(ring, 1), 1);
	EXPECT(reap(ring, 0), 10);
	CHECK(!strcmp(bytes + 4096, "registered"));
	io_uring_prep_read_fixed(next_sqe(ring, 0), fd, bytes + 8000, 4096, 0, 0);
	EXPECT(io_uring_submit_and_wait(ring, 1), 1);
	EXPECT(reap(ring, 0), -EFAULT);
	EXPECT(io_uring_unregister_buffers(ring), 0);
	EXPECT(io_uring_register_buffers_sparse(ring, 2), 0);
	EXPECT(io_uring_register_buffers_update_tag(ring, 1, &whole, NULL, 1), 1);
	EXPECT(io_uring_register_buffers_update_tag(ring, 2, &whole, NULL, 1), -EINVAL);
	EXPECT(io_uring_unregister_buffers(ring), 0);
	EXPECT(io_uring_register_buffers_tags(ring, &whole, NULL, 1), 0);
	EXPECT(io_uring_unregister_buffers(ring), 0);
	CHECK(close(fd) == 0);
}

int main(void)
{
	struct io_uring ring;

	block_io_uring();
	make_ring(&ring, 8, 0);
	plain(&ring);
	links(&ring, IOSQE_IO_LINK, -ECANCELED);
	links(&ring, IOSQE_IO_HARDLINK, 0);
	fixed_files(&ring);
	fixed_buffers(&ring);
	io_uring_queue_exit(&ring);
	return 0;
}
