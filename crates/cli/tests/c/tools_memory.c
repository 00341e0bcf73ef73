/*
 * Memory that a ring writes, for tools that watch memory: every byte decides a branch. With "fill"
 * the buffers are initialised first, for a tool that does not see what is written. Any other
 * argument names an error of the program's own, made after the ring's work, that a tool has to
 * find.
 */
#include "robust_ring.h"
#include <linux/stat.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { STATX_OP = 21, PROVIDE_BUFFERS = 31, RECVMSG = 10, REGISTER_BUFFERS = 0, BYTES = 4096, BLOCK = 512 };

static int is_filled;
static struct ring ring;
static volatile long counter;
static volatile int largest = __INT_MAX__;

static char *buffer(size_t len)
{
	char *p;

	is_true("memory", !posix_memalign((void **)&p, BLOCK, len));
	if (is_filled)
		memset(p, '?', len);
	return p;
}

static void holds(const char *what, const char *p, size_t len, char byte)
{
	size_t wrong = 0;

	for (size_t i = 0; i < len; i++)
		if (p[i] != byte)
			wrong++;
	check(what, wrong, 0);
}

static void reads(const char *what, struct sqe sqe, size_t len, const char *into, char byte)
{
	struct cqe cqe;

	sqe.user_data = 5;
	submit(&ring, sqe);
	cqe = next_cqe(&ring);
	check(what, cqe.res, len);
	is_true("its user_data", cqe.user_data == 5);
	is_true("its flags", cqe.flags == 0 || cqe.flags & 1);
	holds(what, into, len, byte);
}

static int file_of(char byte)
{
	char *bytes = malloc(BYTES);
	int fd = open(".", O_TMPFILE | O_RDWR, 0600);

	memset(bytes, byte, BYTES);
	is_true("a file", write(fd, bytes, BYTES) == BYTES && !fsync(fd));
	free(bytes);
	return fd;
}

static void read_file(int flags)
{
	char *p = buffer(BYTES), *q = buffer(BYTES);
	struct iovec parts[] = { { p, 100 }, { q, BYTES - 100 } }, whole = { q, BYTES };
	struct statx *stat = (void *)buffer(sizeof(*stat));
	int fd = file_of('f');

	section = "a file";
	reads("read", SQE(.opcode = READ, .flags = flags, .fd = fd, .addr = ADDR(p), .len = BYTES), BYTES, p, 'f');
	reads("readv", SQE(.opcode = READV, .flags = flags, .fd = fd, .addr = ADDR(parts), .len = 2), BYTES, p, 'f');
	holds("its second part", q, BYTES - 100, 'f');
	check("buffers are registered", register_call(ring.fd, REGISTER_BUFFERS, &whole, 1), 0);
	reads("read_fixed", SQE(.opcode = READ_FIXED, .flags = flags, .fd = fd, .addr = ADDR(q), .len = BYTES), BYTES, q, 'f');
	check("and given back", register_call(ring.fd, 1, 0, 0), 0);
	submit(&ring, SQE(.opcode = STATX_OP, .flags = flags, .fd = fd, .addr = ADDR(""), .len = STATX_BASIC_STATS, .off = ADDR(stat), .op_flags = AT_EMPTY_PATH));
	check("statx", next(&ring), 0);
	is_true("the size", stat->stx_size == BYTES);
	close(fd);
	free(p);
	free(q);
	free(stat);
}

/* Where the filesystem has it: completed by the kernel's asynchronous I/O. */
static void read_direct(void)
{
	char path[64], *p = buffer(BYTES);
	int fd = file_of('d'), direct;

	section = "O_DIRECT";
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	direct = open(path, O_RDONLY | O_DIRECT);
	if (direct >= 0)
		reads("read", SQE(.opcode = READ, .fd = direct, .addr = ADDR(p), .len = BYTES), BYTES, p, 'd');
	close(direct);
	close(fd);
	free(p);
}

struct late {
	int fd;
	char byte;
};

static void *writes_late(void *argument)
{
	struct late *late = argument;
	char bytes[64];

	memset(bytes, late->byte, sizeof(bytes));
	sleep_ms(5);
	is_true("a late write", write(late->fd, bytes, sizeof(bytes)) == sizeof(bytes));
	return NULL;
}

/* The request waits in the ring, or in a worker, until the bytes come. */
static void read_late(const char *what, struct sqe sqe, int to, const char *into, char byte)
{
	struct late late = { to, byte };
	pthread_t writer;

	pthread_create(&writer, NULL, writes_late, &late);
	reads(what, sqe, 64, into, byte);
	pthread_join(writer, NULL);
}

static void read_streams(int flags)
{
	char *p = buffer(BYTES);
	struct iovec part = { p, BYTES };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	int pipes[2], sockets[2];

	section = "a pipe";
	is_true("made", !pipe(pipes) && !socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	read_late("read", SQE(.opcode = READ, .flags = flags, .fd = pipes[0], .addr = ADDR(p), .len = BYTES), pipes[1], p, 'p');
	section = "a socket";
	read_late("recv", SQE(.opcode = RECV, .flags = flags, .fd = sockets[0], .addr = ADDR(p), .len = BYTES), sockets[1], p, 'r');
	read_late("recvmsg", SQE(.opcode = RECVMSG, .flags = flags, .fd = sockets[0], .addr = ADDR(&message), .len = 1), sockets[1], p, 'm');
	is_true("its flags", message.msg_flags == 0 && message.msg_controllen == 0);
	check("a buffer is provided", run(&ring, SQE(.opcode = PROVIDE_BUFFERS, .fd = 1, .addr = ADDR(p), .len = BYTES, .buf_index = 3)), 0);
	read_late("into it", SQE(.opcode = RECV, .flags = flags | BUFFER_SELECT, .fd = sockets[0], .len = BYTES, .buf_index = 3), sockets[1], p, 'b');
	for (int i = 0; i < 2; i++) {
		close(pipes[i]);
		close(sockets[i]);
	}
	free(p);
}

static void *everything(void *unused)
{
	ring = new_ring(8);
	for (int flags = 0; flags <= FORCE_ASYNC; flags += FORCE_ASYNC) {
		read_file(flags);
		read_streams(flags);
	}
	read_direct();
	end_ring(&ring);
	return NULL;
}

static void *counts(void *unused)
{
	counter++;
	return NULL;
}

/* The error named by the argument. */
static void make(const char *error)
{
	char *volatile p = malloc(40);
	pthread_t threads[2];

	if (!strcmp(error, "overflow"))
		counter += ((volatile char *)p)[40];
	if (!strcmp(error, "undefined") && p[3] == 'x')
		counter++;
	if (!strcmp(error, "lost"))
		p = NULL;
	if (!strcmp(error, "signed"))
		counter = largest + !!p;
	for (int i = 0; i < 2 && !strcmp(error, "race"); i++)
		pthread_create(&threads[i], NULL, counts, NULL);
	for (int i = 0; i < 2 && !strcmp(error, "race"); i++)
		pthread_join(threads[i], NULL);
	/* A buffer that the program has given back: the ring's reads and writes of it are errors. */
	if (!strncmp(error, "freed", 5)) {
		int fd = file_of('f');

		free(p);
		ring = new_ring(8);
		run(&ring, SQE(.opcode = strcmp(error, "freed-read") ? WRITE : READ, .fd = fd, .addr = ADDR(p), .len = 40));
		end_ring(&ring);
		close(fd);
		return;
	}
	free(p);
}

int main(int number_of_arguments, char **arguments)
{
	pthread_t thread;

	is_filled = number_of_arguments > 1 && !strcmp(arguments[1], "fill");
	block_if_asked();
	everything(NULL);
	pthread_create(&thread, NULL, everything, NULL);
	pthread_join(thread, NULL);
	if (number_of_arguments > 1)
		make(arguments[number_of_arguments - 1]);
	return finish();
}
