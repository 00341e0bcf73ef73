/* Every function that waits, and its results. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

static struct __kernel_timespec ms(long n)
{
	return (struct __kernel_timespec){ .tv_sec = n / 1000, .tv_nsec = n % 1000 * 1000000 };
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void wait_without_completion(struct io_uring *ring)
{
	struct __kernel_timespec ts = ms(30);
	struct io_uring_cqe *cqe = (void *)1;
	long start = now_ms();

	EXPECT(io_uring_wait_cqe_timeout(ring, &cqe, &ts), -ETIME);
	CHECK(cqe == NULL);
	CHECK(now_ms() - start >= 29);
	EXPECT(io_uring_wait_cqes(ring, &cqe, 2, &ts, NULL), -ETIME);
	EXPECT(io_uring_submit_and_wait_timeout(ring, &cqe, 1, &ts, NULL), -ETIME);
	EXPECT(io_uring_wait_cqe_nr(ring, &cqe, 0), -EAGAIN);
	CHECK(now_ms() - start >= 89);
}

static void wait_with_completion(struct io_uring *ring)
{
	struct __kernel_timespec ts = ms(20);
	struct io_uring_cqe *cqe;

	queue_nop(ring, 1);
	queue_nop(ring, 2);
	EXPECT(io_uring_submit_and_wait_timeout(ring, &cqe, 2, &ts, NULL), 2);
	EXPECT(cqe->user_data, 1);
	EXPECT(io_uring_wait_cqes(ring, &cqe, 2, &ts, NULL), 0);
	EXPECT(io_uring_wait_cqes(ring, &cqe, 2, NULL, NULL), 0);
	EXPECT(io_uring_wait_cqe_timeout(ring, &cqe, &ts), 0);
	EXPECT(io_uring_wait_cqes(ring, &cqe, 3, &ts, NULL), 0);
	EXPECT(reap(ring, 1), 0);
	EXPECT(reap(ring, 2), 0);
	queue_nop(ring, 3);
	EXPECT(io_uring_submit_and_wait_timeout(ring, &cqe, 1, NULL, NULL), 1);
	EXPECT(cqe->user_data, 3);
	EXPECT(reap(ring, 3), 0);
	queue_nop(ring, 4);
	EXPECT(io_uring_submit_and_wait_timeout(ring, &cqe, 2, &ts, NULL), 1);
	EXPECT(reap(ring, 4), 0);
	queue_nop(ring, 5);
	EXPECT(io_uring_submit_and_get_events(ring), 1);
	EXPECT(reap(ring, 5), 0);
	EXPECT(io_uring_submit_and_get_events(ring), 0);
	EXPECT(io_uring_submit_and_wait(ring, 0), 0);
}

/* A CQE is ready while SQEs are pending: the SQEs must be submitted all the same. */
static void submit_with_ready_cqe(struct io_uring *ring)
{
	struct __kernel_timespec ts = ms(20);
	struct io_uring_cqe *cqe;

	queue_nop(ring, 1);
	EXPECT(io_uring_submit(ring), 1);
	queue_nop(ring, 2);
	SHOW(io_uring_submit_and_wait_timeout(ring, &cqe, 1, &ts, NULL));
	EXPECT(cqe->user_data, 1);
	EXPECT(io_uring_sq_ready(ring), 0);
	EXPECT(reap(ring, 1), 0);
	EXPECT(reap(ring, 2), 0);
	queue_nop(ring, 1);
	EXPECT(io_uring_submit(ring), 1);
	queue_nop(ring, 2);
	SHOW(io_uring_submit_and_wait_timeout(ring, &cqe, 2, &ts, NULL));
	EXPECT(reap(ring, 1), 0);
	EXPECT(reap(ring, 2), 0);
}

/* Reaps the CQEs of 1 and 2 with these results, in any order. */
static void reap_both(struct io_uring *ring, int res1, int res2)
{
	struct io_uring_cqe *cqes[2];

	EXPECT(io_uring_peek_batch_cqe(ring, cqes, 2), 2);
	CHECK(cqes[0]->user_data + cqes[1]->user_data == 3);
	for (int i = 0; i < 2; i++)
		CHECK(cqes[i]->res == (cqes[i]->user_data == 1 ? res1 : res2));
	io_uring_cq_advance(ring, 2);
}

static void timeouts(struct io_uring *ring)
{
	struct __kernel_timespec soon = ms(20), late = ms(60000);
	struct io_uring_sqe *sqe;
	long start = now_ms();

	io_uring_prep_timeout(next_sqe(ring, 0), &soon, 0, 0);
	EXPECT(io_uring_submit(ring), 1);
	EXPECT(reap(ring, 0), -ETIME);
	CHECK(now_ms() - start >= 19);
	sqe = next_sqe(ring, 0);
	io_uring_prep_timeout(sqe, &late, 1, 0);
	sqe->user_data = 1;
	queue_nop(ring, 2);
	EXPECT(io_uring_submit(ring), 2);
	EXPECT(reap(ring, 2), 0);
	EXPECT(reap(ring, 1), 0);
	sqe = next_sqe(ring, 0);
	io_uring_prep_timeout(sqe, &late, 0, 0);
	sqe->user_data = 1;
	EXPECT(io_uring_submit(ring), 1);
	sqe = next_sqe(ring, 0);
	io_uring_prep_timeout_remove(sqe, 1, 0);
	sqe->user_data = 2;
	EXPECT(io_uring_submit_and_wait(ring, 2), 1);
	reap_both(ring, -ECANCELED, 0);
	sqe = next_sqe(ring, 0);
	io_uring_prep_timeout_remove(sqe, 1, 0);
	EXPECT(io_uring_submit(ring), 1);
	EXPECT(reap(ring, 0), -ENOENT);
}

static void on_signal(int signal)
{
	(void)signal;
}

/* A signal ends a wait with EINTR; one that the wait's mask blocks does not. */
static void signals(struct io_uring *ring)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct __kernel_timespec ts = ms(100);
	struct io_uring_cqe *cqe;
	sigset_t mask;

	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	alarm(1);
	EXPECT(io_uring_wait_cqe(ring, &cqe), -EINTR);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(sigprocmask(SIG_BLOCK, &mask, NULL) == 0);
	CHECK(raise(SIGUSR1) == 0);
	EXPECT(io_uring_wait_cqes(ring, &cqe, 1, &ts, &mask), -ETIME);
	sigemptyset(&mask);
	EXPECT(io_uring_wait_cqes(ring, &cqe, 1, &ts, &mask), -EINTR);
}

static void *write_soon(void *fd)
{
	usleep(30000);
	CHECK(write(*(int *)fd, "x", 1) == 1);
	return NULL;
}

/* A read of an empty pipe completes while the program waits for it. */
static void read_of_empty_pipe(struct io_uring *ring)
{
	int fds[2];
	char byte = 0;
	pthread_t writer;

	CHECK(pipe(fds) == 0);
	io_uring_prep_read(next_sqe(ring, 0), fds[0], &byte, 1, 0);
	EXPECT(io_uring_submit(ring), 1);
	EXPECT(io_uring_cq_ready(ring), 0);
	CHECK(pthread_create(&writer, NULL, write_soon, &fds[1]) == 0);
	EXPECT(reap(ring, 0), 1);
	EXPECT(byte, 'x');
	CHECK(pthread_join(writer, NULL) == 0);
	CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
}

int main(void)
{
	struct io_uring ring;

	block_io_uring();
	make_ring(&ring, 8, 0);
	wait_without_completion(&ring);
	wait_with_completion(&ring);
	submit_with_ready_cqe(&ring);
	timeouts(&ring);
	signals(&ring);
	read_of_empty_pipe(&ring);
	io_uring_queue_exit(&ring);
	return 0;
}
