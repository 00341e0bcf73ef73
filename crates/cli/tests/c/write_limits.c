/*
 * Limits of a write: RLIMIT_FSIZE, a full filesystem, the largest offset, a pipe without a reader,
 * half a buffer. Checked are the count, the error, the signal (io_uring(7) has none for writes by
 * workers), and the request linked behind.
 */
#include "write_file.h"
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sched.h>

enum { WRITEV = 2, WRITE_FIXED = 5, FALLOCATE = 17, FTRUNCATE = 55 };
enum { HARDLINK = 8, SKIP_SUCCESS = 64 };
#define RWF_APPEND_FLAG 0x10
#define HERE (~0ull)

static char data[1 << 20];
static volatile int signals;

static void count_signal(int number)
{
	signals++;
}

static void limit_to(unsigned long bytes)
{
	struct rlimit limit = { bytes, RLIM_INFINITY };

	check("setrlimit", setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static int async_flag, lowers_late;

/* A write that crosses the limit is short, the next one fails; no SIGXFSZ is raised. */
static int meets_the_limit(void)
{
	struct iovec iov = { data, 3000 }, registered = { data, sizeof(data) };
	int fd = fresh("limited", 0), res[3];

	signal(SIGXFSZ, count_signal);
	if (!lowers_late)
		limit_to(10000);
	struct ring r = new_ring(8);
	check("buffers", register_call(r.fd, 0, &registered, 1), 0);
	/* By now the file's writes are known as fast. */
	for (int i = 0; i < 4; i++)
		check("below the limit", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 4096, .flags = async_flag)), 4096);
	limit_to(10000);
	check("up to the limit", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 4096, .off = 8192, .flags = async_flag)), 1808);
	check("size", size_of(fd), 10000);
	check("at the limit", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 1, .off = 10000, .flags = async_flag)), -EFBIG);
	check("nothing at the limit", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .off = 10000, .flags = async_flag)), 0);
	check("iovecs across", run(&r, SQE(.opcode = WRITEV, .fd = fd, .addr = ADDR(&iov), .len = 1, .off = 9000, .flags = async_flag)), 1000);
	check("iovecs beyond", run(&r, SQE(.opcode = WRITEV, .fd = fd, .addr = ADDR(&iov), .len = 1, .off = 20000, .flags = async_flag)), -EFBIG);
	check("fixed across", run(&r, SQE(.opcode = WRITE_FIXED, .fd = fd, .addr = ADDR(data), .len = 4096, .off = 8192, .flags = async_flag)), 1808);
	check("fixed beyond", run(&r, SQE(.opcode = WRITE_FIXED, .fd = fd, .addr = ADDR(data), .len = 4096, .off = 12288, .flags = async_flag)), -EFBIG);
	check("below it still", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 4096, .flags = async_flag)), 4096);
	lseek(fd, 9990, SEEK_SET);
	check("here, across", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 100, .off = HERE, .flags = async_flag)), 10);
	/*
	 * The kernel leaves the position unchanged if the rest of a write fails; we leave it behind
	 * the written bytes, as write(2) does.
	 */
	lseek(fd, 10000, SEEK_SET);
	check("here, beyond", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 100, .off = HERE, .flags = async_flag)), -EFBIG);
	check("position", lseek(fd, 0, SEEK_CUR), 10000);
	check("truncate", ftruncate(fd, 9000), 0);
	check("append across", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 2000, .op_flags = RWF_APPEND_FLAG, .flags = async_flag)), 1000);
	check("append beyond", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 1, .op_flags = RWF_APPEND_FLAG, .flags = async_flag)), -EFBIG);
	check("ftruncate", run(&r, SQE(.opcode = FTRUNCATE, .fd = fd, .off = 10001, .flags = async_flag)), -EFBIG);
	check("fallocate", run(&r, SQE(.opcode = FALLOCATE, .fd = fd, .off = 9000, .addr = 2000, .flags = async_flag)), -EFBIG);
	/* CQE_SKIP_SUCCESS: only a complete write posts no CQE. */
	push(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 10, .user_data = 1, .flags = SKIP_SUCCESS | async_flag));
	check("quietly", enter_call(r.fd, 1, 0, 0, 0, 0), 1);
	check("a short one", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 5000, .off = 8000, .flags = SKIP_SUCCESS | async_flag)), 2000);
	check("an error", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 10, .off = 10000, .flags = SKIP_SUCCESS | async_flag)), -EFBIG);
	check("nothing else", waiting(&r), 0);
	/* A short write breaks its chain. */
	push(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 5000, .off = 8000, .flags = LINK | async_flag));
	push(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 10, .user_data = 1, .flags = LINK));
	push(&r, SQE(.opcode = NOP, .user_data = 2));
	check("a chain", enter_call(r.fd, 3, 3, GETEVENTS, 0, 0), 3);
	results(&r, 3, res);
	check("short", res[0], 2000);
	check("behind a short one", res[1], -ECANCELED);
	check("and the last", res[2], -ECANCELED);
	push(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 5000, .off = 8000, .flags = HARDLINK | async_flag));
	push(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 10, .user_data = 1, .flags = HARDLINK));
	push(&r, SQE(.opcode = NOP, .user_data = 2));
	check("a hard chain", enter_call(r.fd, 3, 3, GETEVENTS, 0, 0), 3);
	results(&r, 3, res);
	check("short in it", res[0], 2000);
	check("behind it", res[1], 10);
	check("and its last", res[2], 0);
	check("no SIGXFSZ", signals, 0);
	/* And back. */
	limit_to(RLIM_INFINITY);
	check("no limit", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 5000, .off = 8000, .flags = async_flag)), 5000);
	end_ring(&r);
	return 0;
}

/* The same with many at once, each with its own position. */
static int meets_it_in_a_batch(void)
{
	struct ring r = new_ring(32);
	int fd = fresh("batch", 0), res[32];

	signal(SIGXFSZ, count_signal);
	check("warm", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 1000)), 1000);
	limit_to(16500);
	for (int i = 0; i < 32; i++)
		push(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 1000, .off = i * 1000, .user_data = i, .flags = async_flag));
	check("a batch", enter_call(r.fd, 32, 32, GETEVENTS, 0, 0), 32);
	results(&r, 32, res);
	for (int i = 0; i < 32; i++)
		check("one of it", res[i], i < 16 ? 1000 : i == 16 ? 500 : -EFBIG);
	check("size", size_of(fd), 16500);
	check("no SIGXFSZ", signals, 0);
	end_ring(&r);
	return 0;
}

static void warm_up(struct ring *r, int fd)
{
	for (int i = 0; i < 5; i++)
		check("below the limit", run(r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 4096, .off = i * 4096)), 4096);
}

/* Lowers this process' limit from outside. */
static void others_limit_us(unsigned long bytes)
{
	pid_t us = getpid(), child = fork();
	struct rlimit limit = { bytes, RLIM_INFINITY };
	int status = -1;

	if (child == 0)
		_exit(prlimit(us, RLIMIT_FSIZE, &limit, 0) != 0);
	waitpid(child, &status, 0);
	check("prlimit of another process", status, 0);
}

enum { DEFAULT, IGNORES, HANDLES };
static int disposition;

/*
 * Another process lowers the limit: the write reports it, and no signal kills. The program's own
 * disposition of the signal is unchanged.
 */
static int is_limited_by_others(void)
{
	void (*const handlers[])(int) = { SIG_DFL, SIG_IGN, count_signal };
	struct sigaction seen;
	struct iovec iov = { data, 3000 };
	int fd = fresh("limited", 0);

	signal(SIGXFSZ, handlers[disposition]);
	struct ring r = new_ring(8);
	warm_up(&r, fd);
	others_limit_us(24000);
	check("up to the limit", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 4096, .off = 20480)), 3520);
	check("at the limit", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 4096, .off = 24000)), -EFBIG);
	check("beyond it", run(&r, SQE(.opcode = WRITEV, .fd = fd, .addr = ADDR(&iov), .len = 1, .off = 30000)), -EFBIG);
	check("below it", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 4096)), 4096);
	check("no SIGXFSZ", signals, 0);
	check("what is asked", sigaction(SIGXFSZ, 0, &seen), 0);
	is_true("is what was said", seen.sa_handler == handlers[disposition]);
	is_true("so says signal", signal(SIGXFSZ, SIG_IGN) == handlers[disposition]);
	is_true("and it was heard", signal(SIGXFSZ, handlers[disposition]) == SIG_IGN);
	end_ring(&r);
	return 0;
}

/* Beyond the limit by a call of the program's own: it gets its signal, as ever. */
static int is_limited_itself(void)
{
	int fd = fresh("limited", 0);

	signal(SIGXFSZ, disposition == HANDLES ? count_signal : SIG_DFL);
	struct ring r = new_ring(8);
	warm_up(&r, fd);
	others_limit_us(24000);
	check("the ring's write", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 4096, .off = 24000)), -EFBIG);
	check("its own", pwrite(fd, data, 10, 24000), -1);
	check("its error", errno, EFBIG);
	check("its signal", signals, 1);
	return 0;
}

/*
 * A program that this one executes has the default disposition, or ignores what this one ignores.
 */
static int is_executed(void)
{
	signal(SIGXFSZ, disposition == IGNORES ? SIG_IGN : SIG_DFL);
	struct ring r = new_ring(8);
	warm_up(&r, fresh("limited", 0));
	execl("/bin/sh", "sh", "-c", "mask=$(sed -n 's/^SigIgn:[^0-9a-f]*//p' /proc/self/status); exit $((0x$mask >> 24 & 1))", (char *)0);
	return 1;
}

/*
 * Another process sends the signal to a waiting thread: it belongs to no write, and kills as ever.
 */
static int is_sent_it(void)
{
	struct ring r = new_ring(8);
	pid_t us = getpid();

	if (fork() == 0)
		_exit(kill(us, SIGXFSZ) != 0);
	for (int i = 0; i < 60; i++)
		wait_ms(&r, 1, 1000);
	return 0;
}

static void limited_by_others(void)
{
	section = "RLIMIT_FSIZE, lowered by another process";
	for (disposition = DEFAULT; disposition <= HANDLES; disposition++)
		check("a limit", in_child(is_limited_by_others, 20), 0);
	disposition = HANDLES;
	check("a handler", in_child(is_limited_itself, 20), 0);
	disposition = DEFAULT;
	int status = in_child(is_limited_itself, 20);
	is_true("the default kills", WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
	status = in_child(is_sent_it, 90);
	is_true("so does one that is sent", WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
	check("the default is executed", in_child(is_executed, 20), 0);
	disposition = IGNORES;
	check("an ignored one is", in_child(is_executed, 20), 1 << 8);
}

static void file_size_limit(void)
{
	for (async_flag = 0; async_flag <= FORCE_ASYNC; async_flag += FORCE_ASYNC) {
		section = async_flag ? "RLIMIT_FSIZE, by workers" : "RLIMIT_FSIZE";
		for (lowers_late = 0; lowers_late < 2; lowers_late++)
			check("a limit", in_child(meets_the_limit, 20), 0);
		check("a limit and a batch", in_child(meets_it_in_a_batch, 20), 0);
	}
}

/* No reader: the submitter gets the signal if it wrote itself; a worker swallows it. */
static void nobody_reads(void)
{
	struct ring r = new_ring(8);
	int p[2], s[2];
	struct iovec iov = { data, 10 };

	section = "nobody reads";
	signal(SIGPIPE, count_signal);
	pipe(p);
	close(p[0]);
	socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	close(s[0]);
	check("pipe", run(&r, SQE(.opcode = WRITE, .fd = p[1], .addr = ADDR(data), .len = 10, .off = HERE)), -EPIPE);
	check("its signal", signals, 1);
	check("pipe, iovec", run(&r, SQE(.opcode = WRITEV, .fd = p[1], .addr = ADDR(&iov), .len = 1, .off = HERE)), -EPIPE);
	check("its signal", signals, 2);
	check("pipe, worker", run(&r, SQE(.opcode = WRITE, .fd = p[1], .addr = ADDR(data), .len = 10, .off = HERE, .flags = FORCE_ASYNC)), -EPIPE);
	check("no signal", signals, 2);
	check("socket, worker", run(&r, SQE(.opcode = WRITE, .fd = s[1], .addr = ADDR(data), .len = 10, .flags = FORCE_ASYNC)), -EPIPE);
	check("no signal", signals, 2);
	check("socket", run(&r, SQE(.opcode = WRITE, .fd = s[1], .addr = ADDR(data), .len = 10)), -EPIPE);
	check("its signal", signals, 3);
	check("socket, iovec", run(&r, SQE(.opcode = WRITEV, .fd = s[1], .addr = ADDR(&iov), .len = 1)), -EPIPE);
	check("its signal", signals, 4);
	end_ring(&r);
	close(p[1]);
	close(s[1]);
	signals = 0;
}

/* What fits is counted; then there is no space. */
static int fills_a_filesystem(void)
{
	struct ring r = new_ring(8);
	int fd = fresh("full/file", 0), res[2];
	struct iovec iov[2] = { { data, 4096 }, { data, 200000 } };

	check("what fits", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 100000)), 65536);
	check("no space", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 4096, .off = 65536)), -ENOSPC);
	check("by a worker", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 4096, .off = 65536, .flags = FORCE_ASYNC)), -ENOSPC);
	check("in place", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 65536)), 65536);
	check("half in place", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 8192, .off = 61440)), 4096);
	ftruncate(fd, 0);
	check("iovecs", run(&r, SQE(.opcode = WRITEV, .fd = fd, .addr = ADDR(iov), .len = 2)), 65536);
	ftruncate(fd, 0);
	push(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 100000, .flags = LINK));
	push(&r, SQE(.opcode = NOP, .user_data = 1));
	enter_call(r.fd, 2, 2, GETEVENTS, 0, 0);
	results(&r, 2, res);
	check("short in a chain", res[0], 65536);
	check("behind it", res[1], -ECANCELED);
	ftruncate(fd, 0);
	for (int i = 0; i < 4; i++)
		push(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 20000, .op_flags = RWF_APPEND_FLAG, .user_data = i, .flags = LINK));
	enter_call(r.fd, 4, 4, GETEVENTS, 0, 0);
	for (int i = 0; i < 4; i++)
		check("appended", next(&r), i < 3 ? 20000 : 5536);
	check("size", size_of(fd), 65536);
	end_ring(&r);
	return 0;
}

/* In a mount namespace that ends with the process. */
static int mounts_and_fills(void)
{
	if (unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0) || (mkdir("full", 0700), mount("tmpfs", "full", "tmpfs", 0, "size=64k"))) {
		printf("no space: not asked: a small filesystem cannot be mounted here: %s\n", strerror(errno));
		return 0;
	}
	return fills_a_filesystem();
}

static void no_space(void)
{
	struct ring r = new_ring(8);
	int fd = open("/dev/full", O_RDWR);

	section = "no space";
	check("/dev/full", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 10)), -ENOSPC);
	check("here", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 10, .off = HERE)), -ENOSPC);
	end_ring(&r);
	close(fd);
	check("a full filesystem", in_child(mounts_and_fills, 20), 0);
}

/* The largest size that the filesystem allows for a file. */
static long largest(int fd)
{
	long low = 0, high = 0x7fffffffffffffff;

	while (low < high) {
		long middle = low + (high - low) / 2 + (high - low) % 2;

		if (ftruncate(fd, middle))
			high = middle - 1;
		else
			low = middle;
	}
	check("empty again", ftruncate(fd, 0), 0);
	return low;
}

static void largest_offset(void)
{
	struct ring r = new_ring(8);
	int fd = fresh("large", 0);
	long most = largest(fd);

	section = "the largest offset";
	if (most < 0x7fffffffffffffff) {
		check("across", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 1000, .off = most - 100)), 100);
		check("size", size_of(fd) == most, 1);
		check("beyond", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 1000, .off = most)), -EFBIG);
		check("far beyond", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 1000, .off = most + 5000)), -EFBIG);
		check("appended", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 1, .op_flags = RWF_APPEND_FLAG)), -EFBIG);
	}
	check("the end wraps", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 1000, .off = 0x7fffffffffffffff - 10)), -EINVAL);
	check("negative", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 1000, .off = -2)), -EINVAL);
	end_ring(&r);
	close(fd);
	unlink("large");
}

int main(void)
{
	block_if_asked();
	memset(data, 'w', sizeof(data));
	file_size_limit();
	limited_by_others();
	nobody_reads();
	no_space();
	largest_offset();
	return finish();
}
