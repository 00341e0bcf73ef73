/* Numbers that are closed and used again, by calls of libc and inside libc, with and without an
 * armed request: the old request goes on with its file, and the next one is served at once. */
#include "check.h"

#include <fcntl.h>
#include <time.h>

static FILE *stream;

static void by_close(void)
{
	close(fileno(stream));
}

static void by_fclose(void)
{
	fclose(stream);
}

static void by_freopen(void)
{
	CHECK(freopen("/dev/null", "r", stream) == stream);
	fclose(stream);
}

static void by_dup2(void)
{
	int null = open("/dev/null", O_RDONLY), number = fileno(stream);

	CHECK(dup2(null, number) == number);
	close(null);
	close(number);
}

static void by_close_range(void)
{
	close_range(fileno(stream), fileno(stream), 0);
}

static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e3 + ts.tv_nsec / 1e6;
}

static void read_into(struct io_uring *ring, int fd, char *byte, unsigned long long data)
{
	io_uring_prep_read(next_sqe(ring, data), fd, byte, 1, 0);
	CHECK(io_uring_submit(ring) == 1);
}

static void expect(struct io_uring *ring, unsigned long long data)
{
	struct io_uring_cqe *cqe;

	CHECK(io_uring_wait_cqe(ring, &cqe) == 0);
	CHECK(cqe->user_data == data);
	CHECK(cqe->res == 1);
	io_uring_cqe_seen(ring, cqe);
}

static void closed(struct io_uring *ring, const char *how, void (*close_it)(void), int is_armed)
{
	double soonest = 1e9;

	for (int round = 0; round < 8; round++) {
		int p[2], q[2];
		char old = 0, new = 0;

		CHECK(pipe(p) == 0);
		int number = p[0], ahead = dup(p[1]);
		CHECK(stream = fdopen(number, "r"));
		/* The number is known to the ring. */
		read_into(ring, number, &old, 1);
		if (!is_armed) {
			CHECK(write(p[1], "o", 1) == 1);
			expect(ring, 1);
		}
		close_it();
		CHECK(pipe(q) == 0);
		CHECK(q[0] == number);
		read_into(ring, number, &new, 2);
		double start = now_ms();
		CHECK(write(q[1], "n", 1) == 1);
		expect(ring, 2);
		double took = now_ms() - start;
		soonest = took < soonest ? took : soonest;
		CHECK(new == 'n');
		if (is_armed) {
			CHECK(write(ahead, "o", 1) == 1);
			expect(ring, 1);
		}
		CHECK(old == 'o');
		close(ahead);
		close(p[1]);
		close(q[0]);
		close(q[1]);
	}
	printf("%s, %s: %s\n", how, is_armed ? "armed" : "idle", soonest < 40 ? "at once" : "late");
	CHECK(soonest < 40);
}

int main(void)
{
	struct io_uring ring;

	block_io_uring();
	make_ring(&ring, 8, 0);
	for (int is_armed = 0; is_armed < 2; is_armed++) {
		closed(&ring, "close", by_close, is_armed);
		closed(&ring, "fclose", by_fclose, is_armed);
		closed(&ring, "freopen", by_freopen, is_armed);
		closed(&ring, "dup2", by_dup2, is_armed);
		closed(&ring, "close_range", by_close_range, is_armed);
	}
	/* Numbers of the engine are not the program's to close, and may be taken all the same. */
	for (int fd = 64; fd < 1100; fd++) {
		int is_taken = dup2(0, fd) == fd;

		CHECK(is_taken);
		close(fd);
	}
	close_range(64, ~0u, 0);
	closed(&ring, "after all are taken", by_close, 1);
	io_uring_queue_exit(&ring);
	return 0;
}
