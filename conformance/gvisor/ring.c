/* A program with liburing: threads with rings of their own write files and read them back; a socket
 * that becomes readable later, a timer that fires, a poll of the ring itself, and a child. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 256, DEPTH = 16 };

#define CHECK(what) do { if (!(what)) { printf("line %d: %s (errno %d)\n", __LINE__, #what, errno); exit(1); } } while (0)

static int one(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	CHECK(io_uring_submit_and_wait(ring, 1) >= 0);
	CHECK(io_uring_wait_cqe(ring, &cqe) == 0);
	int res = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return res;
}

static void *file(void *path)
{
	struct io_uring ring;
	static __thread char blocks[DEPTH][BLOCK];
	CHECK(io_uring_queue_init(DEPTH, &ring, 0) == 0);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0);
	for (int writing = 1; writing >= 0; writing--) {
		for (int first = 0; first < BLOCKS; first += DEPTH) {
			for (int i = 0; i < DEPTH; i++) {
				struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
				unsigned long at = (unsigned long)(first + i) * BLOCK;
				memset(blocks[i], writing ? (first + i) * 7 % 251 : 0, BLOCK);
				if (writing)
					io_uring_prep_write(sqe, fd, blocks[i], BLOCK, at);
				else
					io_uring_prep_read(sqe, fd, blocks[i], BLOCK, at);
			}
			CHECK(io_uring_submit_and_wait(&ring, DEPTH) == DEPTH);
			for (int i = 0; i < DEPTH; i++) {
				struct io_uring_cqe *cqe;
				CHECK(io_uring_wait_cqe(&ring, &cqe) == 0);
				CHECK(cqe->res == BLOCK);
				io_uring_cqe_seen(&ring, cqe);
			}
			for (int i = 0; i < DEPTH * BLOCK; i++)
				CHECK((unsigned char)blocks[i / BLOCK][i % BLOCK] == (first + i / BLOCK) * 7 % 251);
		}
	}
	close(fd);
	CHECK(unlink(path) == 0);
	io_uring_queue_exit(&ring);
	return NULL;
}

static void *later(void *fd)
{
	usleep(20000);
	CHECK(write(*(int *)fd, "later", 5) == 5);
	return NULL;
}

static void waits(void)
{
	struct io_uring ring;
	int fds[2];
	char in[8] = "";
	pthread_t writer;
	struct __kernel_timespec after = { .tv_nsec = 10000000 };
	struct epoll_event event = { .events = EPOLLIN };
	CHECK(io_uring_queue_init(8, &ring, 0) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	CHECK(pthread_create(&writer, NULL, later, &fds[1]) == 0);
	io_uring_prep_recv(io_uring_get_sqe(&ring), fds[0], in, sizeof in, 0);
	CHECK(one(&ring) == 5 && !strcmp(in, "later"));
	CHECK(pthread_join(writer, NULL) == 0);
	io_uring_prep_timeout(io_uring_get_sqe(&ring), &after, 0, 0);
	CHECK(one(&ring) == -ETIME);
	/* A ring is readable while it has a CQE. */
	int set = epoll_create1(0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ring.ring_fd, &event) == 0);
	CHECK(epoll_wait(set, &event, 1, 0) == 0);
	io_uring_prep_nop(io_uring_get_sqe(&ring));
	CHECK(io_uring_submit(&ring) == 1);
	CHECK(epoll_wait(set, &event, 1, 10000) == 1 && event.events == EPOLLIN);
	CHECK(one(&ring) == 0);
	CHECK(epoll_wait(set, &event, 1, 0) == 0);
	io_uring_queue_exit(&ring);
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	pthread_t threads[4];
	char paths[4][4096];
	for (int i = 0; i < 4; i++) {
		snprintf(paths[i], sizeof paths[i], "%s/ring-%d-%d", argv[1], getpid(), i);
		CHECK(pthread_create(&threads[i], NULL, file, paths[i]) == 0);
	}
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	waits();
	if (argc == 2) {
		int status;
		pid_t child = fork();
		if (child == 0) {
			execl("/proc/self/exe", argv[0], argv[1], "child", (char *)NULL);
			_exit(127);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	puts("all well");
	return 0;
}
