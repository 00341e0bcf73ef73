/*
 * What each feature bit promises. A test of its own stands elsewhere for SINGLE_MMAP, NODROP,
 * EXT_ARG, CQE_SKIP, RECVSEND_BUNDLE, MIN_TIMEOUT and NO_IOWAIT. RW_ATTR promises nothing for files
 * without integrity data.
 */
#define _GNU_SOURCE
#include "robust_ring.h"
#include <sys/epoll.h>
#include <sys/socket.h>

enum { OPENAT = 18, REGISTER_FILES2 = 13, UNREGISTER_FILES = 3, REGISTER_RING_FDS = 20, UNREGISTER_EVENTFD = 5 };
enum { RSRC_SPARSE = 1, NOBODY = 65534 };
#define USE_REGISTERED_RING (1u << 31)

static const struct { const char *name; unsigned bit; } features[] = {
	{ "SINGLE_MMAP", 1 << 0 }, { "NODROP", 1 << 1 }, { "SUBMIT_STABLE", 1 << 2 }, { "RW_CUR_POS", 1 << 3 },
	{ "CUR_PERSONALITY", 1 << 4 }, { "FAST_POLL", 1 << 5 }, { "POLL_32BITS", 1 << 6 },
	{ "SQPOLL_NONFIXED", 1 << 7 }, { "EXT_ARG", 1 << 8 }, { "NATIVE_WORKERS", 1 << 9 }, { "RSRC_TAGS", 1 << 10 },
	{ "CQE_SKIP", 1 << 11 }, { "LINKED_FILE", 1 << 12 }, { "REG_REG_RING", 1 << 13 },
	{ "RECVSEND_BUNDLE", 1 << 14 }, { "MIN_TIMEOUT", 1 << 15 }, { "NO_IOWAIT", 1 << 17 },
};

static void all_are_told(struct ring *r)
{
	section = "bits";
	for (unsigned i = 0; i < sizeof(features) / sizeof(*features); i++)
		is_true(features[i].name, r->p.features & features[i].bit);
}

/* What a request points to may be used again once it is submitted. */
static void submit_stable(struct ring *r)
{
	char first[8] = "", second[8] = "";
	struct iovec iov = { first, 5 };
	int pipe_fds[2];

	section = "SUBMIT_STABLE";
	check("pipe", pipe(pipe_fds), 0);
	submit(r, SQE(.opcode = READV, .fd = pipe_fds[0], .addr = ADDR(&iov), .len = 1));
	iov = (struct iovec){ second, 1 };
	check("written", write(pipe_fds[1], "hello", 5), 5);
	check("read", next(r), 5);
	is_true("into the first buffer", !strcmp(first, "hello") && !*second);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

static void rw_cur_pos(struct ring *r)
{
	char bytes[8] = "";
	int fd = open(".", O_TMPFILE | O_RDWR, 0600);

	section = "RW_CUR_POS";
	is_true("a file", fd >= 0);
	check("written", run(r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR("abc"), .len = 3, .off = -1)), 3);
	check("written behind it", run(r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR("def"), .len = 3, .off = -1)), 3);
	check("the position", lseek(fd, 0, SEEK_CUR), 6);
	check("read", pread(fd, bytes, 8, 0), 6);
	is_true("in order", !strcmp(bytes, "abcdef"));
	close(fd);
}

/* A request acts with the rights of its submission, not with those of the ring's making. */
static int cur_personality(void)
{
	struct ring r = new_ring(4);
	struct sqe sqe = SQE(.opcode = OPENAT, .fd = AT_FDCWD, .addr = ADDR("features-secret"), .op_flags = O_RDONLY);
	int fd = run(&r, sqe);

	section = "CUR_PERSONALITY";
	is_true("opened by root", fd >= 0);
	check("becomes another user", syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY), 0);
	check("refused then", run(&r, sqe), -EACCES);
	return 0;
}

/* What is not ready waits without holding up the submission, and without IOSQE_ASYNC. */
static void fast_poll(struct ring *r)
{
	char byte = 0;
	int pair[2];

	section = "FAST_POLL";
	check("sockets", socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	submit(r, SQE(.opcode = RECV, .fd = pair[0], .addr = ADDR(&byte), .len = 1));
	works(r);
	check("sent", send(pair[1], "x", 1, 0), 1);
	check("received", next(r), 1);
	close(pair[0]);
	close(pair[1]);
}

/* The mask has 32 bits: EPOLLET is the last one. */
static void poll_32bits(struct ring *r)
{
	int pipe_fds[2];

	section = "POLL_32BITS";
	check("pipe", pipe(pipe_fds), 0);
	submit(r, SQE(.opcode = POLL_ADD, .fd = pipe_fds[0], .len = POLL_MULTISHOT, .op_flags = EPOLLIN | EPOLLET, .user_data = 7));
	for (int i = 0; i < 2; i++) {
		check("written", write(pipe_fds[1], "x", 1), 1);
		struct cqe cqe = next_cqe(r);
		check("readable", cqe.res, POLLIN);
		is_true("more to come", cqe.flags & F_MORE);
	}
	submit(r, SQE(.opcode = ASYNC_CANCEL, .addr = 7, .user_data = 8));
	int sum = 0;
	for (int i = 0; i < 2; i++)
		sum += next(r);
	check("cancelled", sum, -ECANCELED);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

static void sqpoll_nonfixed(void)
{
	struct ring r = new_ring_with(4, SETUP_SQPOLL, 0);
	char bytes[4] = "";
	int pipe_fds[2];

	section = "SQPOLL_NONFIXED";
	check("pipe", pipe(pipe_fds), 0);
	check("written", write(pipe_fds[1], "abc", 3), 3);
	push(&r, SQE(.opcode = READ, .fd = pipe_fds[0], .addr = ADDR(bytes), .len = 3));
	enter_call(r.fd, 1, 0, 2 /* SQ_WAKEUP */, 0, 0);
	check("read by its number", next(&r), 3);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	end_ring(&r);
}

/* A worker is a thread of the process: /proc/self is the process. */
static void native_workers(struct ring *r)
{
	char bytes[64] = "";
	int fd = run(r, SQE(.opcode = OPENAT, .fd = AT_FDCWD, .addr = ADDR("/proc/self/stat"), .op_flags = O_RDONLY, .flags = FORCE_ASYNC));

	section = "NATIVE_WORKERS";
	is_true("opened", fd >= 0);
	is_true("read", read(fd, bytes, 63) > 0);
	check("the process", atoi(bytes), getpid());
	check("closed", close(fd), 0);
}

static void rsrc_tags(struct ring *r)
{
	int fd = open("/dev/null", O_RDWR);
	int32_t files[1] = { fd };
	uint64_t tags[1] = { 77 };
	struct { uint32_t nr, flags; uint64_t resv2, data, tags; } arg = { 1, 0, 0, ADDR(files), ADDR(tags) };

	section = "RSRC_TAGS";
	check("registered", register_call(r->fd, REGISTER_FILES2, &arg, sizeof(arg)), 0);
	check("unregistered", register_call(r->fd, UNREGISTER_FILES, 0, 0), 0);
	check("the tag", next_cqe(r).user_data, 77);
	close(fd);
}

/* A request's file is looked up when its turn comes: the one before it may open it. */
static void linked_file(struct ring *r)
{
	struct { uint32_t nr, flags; uint64_t resv2, data, tags; } arg = { 4, RSRC_SPARSE, 0, 0, 0 };
	char byte = 1;

	section = "LINKED_FILE";
	check("registered", register_call(r->fd, REGISTER_FILES2, &arg, sizeof(arg)), 0);
	push(r, SQE(.opcode = OPENAT, .fd = AT_FDCWD, .addr = ADDR("/dev/zero"), .op_flags = O_RDONLY, .file_index = 3, .flags = LINK));
	push(r, SQE(.opcode = READ, .fd = 2, .addr = ADDR(&byte), .len = 1, .flags = FIXED_FILE));
	check("submitted", enter_call(r->fd, 2, 2, GETEVENTS, 0, 0), 2);
	check("opened", next(r), 0);
	check("read", next(r), 1);
	check("a zero", byte, 0);
	check("unregistered", register_call(r->fd, UNREGISTER_FILES, 0, 0), 0);
}

static void reg_reg_ring(struct ring *r)
{
	struct { uint32_t offset, resv; uint64_t data; } update = { -1u, 0, r->fd };
	int fd = 0;

	section = "REG_REG_RING";
	check("registered", register_call(r->fd, REGISTER_RING_FDS, &update, 1), 1);
	fd = update.offset;
	check("by its index", register_call(fd, UNREGISTER_EVENTFD | USE_REGISTERED_RING, 0, 0), -ENXIO);
}

int main(void)
{
	block_if_asked();
	struct ring r = new_ring(8);

	all_are_told(&r);
	submit_stable(&r);
	rw_cur_pos(&r);
	fast_poll(&r);
	poll_32bits(&r);
	sqpoll_nonfixed();
	native_workers(&r);
	rsrc_tags(&r);
	linked_file(&r);
	reg_reg_ring(&r);
	end_ring(&r);
	if (geteuid() == 0) {
		int fd = open("features-secret", O_CREAT | O_WRONLY, 0600);

		close(fd);
		check("child", in_child(cur_personality, 20), 0);
		unlink("features-secret");
	}
	return finish();
}
