/*
 * Every operation on files, names and descriptors through a ring, by system calls alone. Each step
 * states the answer of Linux 6.18: on the kernel's ring the program checks its expectations, on the
 * engine's it checks the engine. Each step is done in four ways: alone, alone with IOSQE_ASYNC,
 * behind a linked NOP, and in a deep batch. The memory that a request points to is overwritten as
 * soon as it has been submitted. With BLOCK_IO_URING in the environment a real io_uring call kills
 * the program. Exit status: 0 all as expected, 1 not, 77 no ring.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "epoll_wait.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "sqe.h"
#include "uring_filter.h"

enum {
	NOP = 0, FSYNC = 3, SYNC_FILE_RANGE = 8, ASYNC_CANCEL = 14, FALLOCATE = 17, OPENAT = 18, CLOSE = 19, STATX = 21, FADVISE = 24,
	MADVISE = 25, OPENAT2 = 28, EPOLL_CTL = 29, SPLICE = 30, TEE = 33, RENAMEAT = 35, UNLINKAT = 36, MKDIRAT = 37, SYMLINKAT = 38,
	LINKAT = 39, FTRUNCATE = 55,
};
enum { FIXED_FILE = 1, IO_LINK = 4, FORCE_ASYNC = 16 };
enum mode { PLAIN, ASYNC, LINKED, DEEP, MODES };
#define FD_IN_FIXED (1u << 31)
#define CACHED 0x20
#define BENEATH 8
#define ANY_SLOT -1
/* A descriptor that is closed again. */
#define A_FD 1000000
#define CWD AT_FDCWD
#define BAD_ADDRESS 0xffff800000000000ull

static int ring_fd;
static struct sqe *sqes;
static struct cqe *cqes;
static uint32_t *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
static enum mode mode;
static int failures;
/* Memory that requests point to. */
static char names[2][5000];
static uint64_t hows[1024];
static struct epoll_event event;

static void fail(const char *what, int got, int want)
{
	static const char *const ways[] = { "plain", "async", "linked", "deep" };

	printf("%s (%s): %d, expected %d\n", what, ways[mode], got, want);
	failures++;
}

static void check(const char *what, int got, int want)
{
	if (got != want)
		fail(what, got, want);
}

static void block_io_uring(void)
{
	filter_io_uring(SECCOMP_RET_KILL_PROCESS, 1);
}

static void make_ring(void)
{
	uint32_t params[30] = { 0 };
	char *rings;

	ring_fd = syscall(425, 64, params);
	if (ring_fd < 0) {
		fprintf(stderr, "no ring: %s\n", strerror(errno));
		exit(77);
	}
	rings = mmap(0, params[16] + 64 * 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_fd, 0);
	sqes = mmap(0, 64 * 64, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_fd, 0x10000000);
	if (rings == MAP_FAILED || sqes == MAP_FAILED) {
		perror("mmap of the ring");
		exit(1);
	}
	sq_tail = (void *)(rings + params[11]);
	sq_mask = (void *)(rings + params[12]);
	sq_array = (void *)(rings + params[16]);
	cq_head = (void *)(rings + params[20]);
	cq_tail = (void *)(rings + params[21]);
	cq_mask = (void *)(rings + params[22]);
	cqes = (void *)(rings + params[25]);
}

static void push(struct sqe sqe)
{
	uint32_t tail = *sq_tail, slot = tail & *sq_mask;

	sqes[slot] = sqe;
	sq_array[slot] = slot;
	__atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
}

static void submit(unsigned n)
{
	int got = syscall(426, ring_fd, n, 0, 0, 0, 0);

	if (got != (int)n)
		fail("submitted", got, n);
}

/* Waits for one CQE. */
static struct cqe reap(void)
{
	uint32_t head = *cq_head;
	struct cqe cqe;

	while (head == __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE))
		syscall(426, ring_fd, 0, 1, 1, 0, 0);
	cqe = cqes[head & *cq_mask];
	__atomic_store_n(cq_head, head + 1, __ATOMIC_RELEASE);
	return cqe;
}

static void scribble(void)
{
	memset(names, 'x', sizeof(names));
	memset(hows, 0xff, sizeof(hows));
	memset(&event, 0xff, sizeof(event));
}

/* One step. `is_refused`: prep refuses it, so its whole chain fails. */
static int step(const char *what, int want, int is_refused, struct sqe sqe)
{
	unsigned i, n = 0;
	int res = 0, nop = 0;

	sqe.user_data = 1;
	if (mode == ASYNC)
		sqe.flags |= FORCE_ASYNC;
	if (mode == LINKED)
		push((struct sqe){ .opcode = NOP, .flags = IO_LINK, .user_data = 2 }), n++;
	for (i = 0; mode == DEEP && i < 20; i++)
		push((struct sqe){ .opcode = NOP, .user_data = 3 }), n++;
	push(sqe), n++;
	submit(n);
	scribble();
	while (n--) {
		struct cqe cqe = reap();

		if (cqe.user_data == 1)
			res = cqe.res;
		if (cqe.user_data == 2)
			nop = cqe.res;
	}
	if (mode == LINKED && nop != (is_refused ? -ECANCELED : 0))
		fail(what, nop, is_refused ? -ECANCELED : 0);
	if (want == A_FD ? res < 0 : res != want)
		fail(what, res, want);
	if (want == A_FD && res >= 0)
		close(res);
	return res;
}

#define GIVES(want, what, ...) step(what, want, 0, (struct sqe){ __VA_ARGS__ })
/* Refused by prep. */
#define REFUSES(want, what, ...) step(what, want, 1, (struct sqe){ __VA_ARGS__ })

static uint64_t name_in(int i, const char *name)
{
	return (uintptr_t)strcpy(names[i], name);
}

static uint64_t name(const char *name)
{
	return name_in(0, name);
}

static uint64_t name2(const char *name)
{
	return name_in(1, name);
}

static uint64_t how(uint64_t flags, uint64_t permissions, uint64_t resolve)
{
	memset(hows, 0, sizeof(hows));
	hows[0] = flags;
	hows[1] = permissions;
	hows[2] = resolve;
	return (uintptr_t)hows;
}

static uint64_t how_and_more(unsigned at, uint64_t value)
{
	how(O_RDONLY, 0, 0);
	hows[at] = value;
	return (uintptr_t)hows;
}

static uint64_t event_for(int events)
{
	event.events = events;
	event.data.u64 = 77;
	return (uintptr_t)&event;
}

static void test_sync(int fd, int dir, int pipe_in)
{
	GIVES(0, "fsync", .opcode = FSYNC, .fd = fd);
	GIVES(0, "fdatasync", .opcode = FSYNC, .fd = fd, .op_flags = 1);
	GIVES(0, "fsync of a range", .opcode = FSYNC, .fd = fd, .off = 1, .len = 5);
	GIVES(0, "fsync with addr3", .opcode = FSYNC, .fd = fd, .addr3 = 1);
	REFUSES(-EINVAL, "fsync off", .opcode = FSYNC, .fd = fd, .off = -5, .len = 1);
	REFUSES(-EINVAL, "fsync flags", .opcode = FSYNC, .fd = fd, .op_flags = 2);
	REFUSES(-EINVAL, "fsync addr", .opcode = FSYNC, .fd = fd, .addr = 1);
	REFUSES(-EINVAL, "fsync buf_index", .opcode = FSYNC, .fd = fd, .buf_index = 1);
	REFUSES(-EINVAL, "fsync ioprio", .opcode = FSYNC, .fd = fd, .ioprio = 1);
	GIVES(-EINVAL, "fsync of a pipe", .opcode = FSYNC, .fd = pipe_in);
	GIVES(-EBADF, "fsync of nothing", .opcode = FSYNC, .fd = 777);
	GIVES(-EBADF, "fsync of no registered file", .opcode = FSYNC, .flags = FIXED_FILE, .fd = 777);

	GIVES(0, "sync_file_range", .opcode = SYNC_FILE_RANGE, .fd = fd, .len = 4096, .op_flags = 7);
	GIVES(-EINVAL, "sync_file_range flags", .opcode = SYNC_FILE_RANGE, .fd = fd, .op_flags = 8);
	GIVES(-EINVAL, "sync_file_range off", .opcode = SYNC_FILE_RANGE, .fd = fd, .off = -1, .op_flags = 2);
	GIVES(-ESPIPE, "sync_file_range of a pipe", .opcode = SYNC_FILE_RANGE, .fd = pipe_in, .op_flags = 2);
	REFUSES(-EINVAL, "sync_file_range addr", .opcode = SYNC_FILE_RANGE, .fd = fd, .addr = 1);

	GIVES(0, "fallocate", .opcode = FALLOCATE, .fd = fd, .addr = 10000);
	check("size", lseek(fd, 0, SEEK_END), 10000);
	GIVES(0, "fallocate keep size", .opcode = FALLOCATE, .fd = fd, .off = 10000, .addr = 10000, .len = 1);
	check("size kept", lseek(fd, 0, SEEK_END), 10000);
	GIVES(-EINVAL, "fallocate off", .opcode = FALLOCATE, .fd = fd, .off = -1, .addr = 1);
	GIVES(-EINVAL, "fallocate nothing", .opcode = FALLOCATE, .fd = fd);
	GIVES(-EOPNOTSUPP, "fallocate mode", .opcode = FALLOCATE, .fd = fd, .addr = 1, .len = 0x8000);
	GIVES(-EBADF, "fallocate of what is read only", .opcode = FALLOCATE, .fd = dir, .addr = 1);
	REFUSES(-EINVAL, "fallocate flags", .opcode = FALLOCATE, .fd = fd, .addr = 1, .op_flags = 1);

	GIVES(0, "ftruncate", .opcode = FTRUNCATE, .fd = fd, .off = 100);
	check("truncated size", lseek(fd, 0, SEEK_END), 100);
	GIVES(-EINVAL, "ftruncate negative", .opcode = FTRUNCATE, .fd = fd, .off = -1);
	GIVES(-EINVAL, "ftruncate of a directory", .opcode = FTRUNCATE, .fd = dir, .off = 1);
	REFUSES(-EINVAL, "ftruncate len", .opcode = FTRUNCATE, .fd = fd, .len = 1);
	REFUSES(-EINVAL, "ftruncate addr3", .opcode = FTRUNCATE, .fd = fd, .addr3 = 1);
}

static void test_file_size_limit(int fd)
{
	struct rlimit old, small;

	/* The limit's signal would end the program; a ring's request must only fail. */
	getrlimit(RLIMIT_FSIZE, &old);
	small = old;
	small.rlim_cur = 4096;
	setrlimit(RLIMIT_FSIZE, &small);
	GIVES(-EFBIG, "ftruncate beyond the limit", .opcode = FTRUNCATE, .fd = fd, .off = 8192);
	GIVES(-EFBIG, "fallocate beyond the limit", .opcode = FALLOCATE, .fd = fd, .addr = 8192);
	setrlimit(RLIMIT_FSIZE, &old);
}

static void test_advice(int fd, int pipe_in)
{
	char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t at = (uintptr_t)page;

	for (unsigned advice = 0; advice < 6; advice++)
		GIVES(0, "fadvise", .opcode = FADVISE, .fd = fd, .op_flags = advice);
	GIVES(0, "fadvise long", .opcode = FADVISE, .fd = fd, .addr = 1ull << 40, .op_flags = 4);
	GIVES(-EINVAL, "fadvise advice", .opcode = FADVISE, .fd = fd, .op_flags = 99);
	GIVES(-EINVAL, "fadvise negative", .opcode = FADVISE, .fd = fd, .addr = -1);
	GIVES(-ESPIPE, "fadvise of a pipe", .opcode = FADVISE, .fd = pipe_in);
	GIVES(-ESPIPE, "fadvise of a pipe by a worker", .opcode = FADVISE, .fd = pipe_in, .op_flags = 4);
	REFUSES(-EINVAL, "fadvise buf_index", .opcode = FADVISE, .fd = fd, .buf_index = 1);

	page[0] = page[4096] = 1;
	GIVES(0, "madvise", .opcode = MADVISE, .addr = at, .len = 4096, .op_flags = MADV_DONTNEED);
	check("first page is gone", page[0], 0);
	GIVES(0, "madvise with the long length", .opcode = MADVISE, .flags = FIXED_FILE, .fd = -1, .addr = at, .off = 8192, .len = 1,
	      .op_flags = MADV_DONTNEED);
	check("second page is gone", page[4096], 0);
	GIVES(-EINVAL, "madvise advice", .opcode = MADVISE, .addr = at, .len = 8192, .op_flags = 999);
	GIVES(-EINVAL, "madvise unaligned", .opcode = MADVISE, .addr = at + 1, .len = 8192, .op_flags = 4);
	GIVES(-ENOMEM, "madvise of nothing", .opcode = MADVISE, .addr = 4096, .len = 4096, .op_flags = 4);
	munmap(page, 8192);
}

static void test_open(void)
{
	struct stat st;
	int fd;

	GIVES(A_FD, "open", .opcode = OPENAT, .fd = CWD, .addr = name("f"));
	fd = open("f", O_RDONLY);
	GIVES(fd + 1, "open takes the lowest number", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .op_flags = O_RDWR | O_APPEND);
	check("blocking", fcntl(fd + 1, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK), O_RDWR | O_APPEND);
	check("survives exec", fcntl(fd + 1, F_GETFD), 0);
	close(fd + 1);
	GIVES(fd + 1, "open non-blocking", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .op_flags = O_NONBLOCK | O_CLOEXEC);
	check("non-blocking", fcntl(fd + 1, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	check("ends at exec", fcntl(fd + 1, F_GETFD), FD_CLOEXEC);
	close(fd + 1);
	close(fd);

	umask(027);
	GIVES(A_FD, "create", .opcode = OPENAT, .fd = CWD, .addr = name("new"), .op_flags = O_CREAT | O_EXCL | O_RDWR, .len = 0666);
	check("exists", stat("new", &st), 0);
	check("umask", st.st_mode & 07777, 0640);
	umask(022);
	GIVES(-EEXIST, "create again", .opcode = OPENAT, .fd = CWD, .addr = name("new"), .op_flags = O_CREAT | O_EXCL, .len = 0666);
	GIVES(A_FD, "truncate", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .op_flags = O_TRUNC | O_RDWR);
	check("stat", stat("f", &st), 0);
	check("truncated", st.st_size, 0);
	GIVES(A_FD, "unnamed file", .opcode = OPENAT, .fd = CWD, .addr = name("."), .op_flags = O_TMPFILE | O_RDWR, .len = 0600);
	GIVES(A_FD, "a path and nothing else", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .op_flags = O_PATH | O_NONBLOCK | O_RDWR);
	GIVES(A_FD, "unknown flag", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .op_flags = 0x40000000);
	GIVES(A_FD, "device", .opcode = OPENAT, .fd = CWD, .addr = name("/dev/null"), .op_flags = O_RDWR);
	unlink("new");

	GIVES(-ENOENT, "open nothing", .opcode = OPENAT, .fd = CWD, .addr = name("nothing"));
	GIVES(-ENOTDIR, "open below a file", .opcode = OPENAT, .fd = CWD, .addr = name("f/g"));
	GIVES(-EISDIR, "open a directory to write", .opcode = OPENAT, .fd = CWD, .addr = name("."), .op_flags = O_RDWR);
	GIVES(-EBADF, "open in no directory", .opcode = OPENAT, .fd = 777, .addr = name("f"));
	REFUSES(-ENOENT, "open an empty name", .opcode = OPENAT, .fd = CWD, .addr = name(""));
	REFUSES(-EFAULT, "open null", .opcode = OPENAT, .fd = CWD);
	REFUSES(-EFAULT, "open at a bad address", .opcode = OPENAT, .fd = CWD, .addr = BAD_ADDRESS);
	REFUSES(-EBADF, "open with a registered directory", .opcode = OPENAT, .flags = FIXED_FILE, .addr = name("f"));
	REFUSES(-EINVAL, "open buf_index", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .buf_index = 1);
	REFUSES(-EINVAL, "close-on-exec registered file", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .op_flags = O_CLOEXEC, .fd_in = 1);
}

static void test_openat2(void)
{
	GIVES(A_FD, "openat2", .opcode = OPENAT2, .fd = CWD, .addr = name("f"), .off = how(O_RDWR, 0, 0), .len = 24);
	GIVES(A_FD, "openat2 newer", .opcode = OPENAT2, .fd = CWD, .addr = name("f"), .off = how(O_RDWR, 0, 0), .len = 5000);
	REFUSES(-E2BIG, "openat2 newer and used", .opcode = OPENAT2, .fd = CWD, .addr = name("f"), .off = how_and_more(9, 1), .len = 80);
	GIVES(A_FD, "openat2 beyond its end", .opcode = OPENAT2, .fd = CWD, .addr = name("f"), .off = how_and_more(9, 1), .len = 72);
	REFUSES(-EINVAL, "openat2 shorter", .opcode = OPENAT2, .fd = CWD, .addr = name("f"), .off = how(0, 0, 0), .len = 23);
	REFUSES(-EFAULT, "openat2 of nowhere", .opcode = OPENAT2, .fd = CWD, .addr = name("f"), .len = 24);
	GIVES(-EINVAL, "openat2 mode", .opcode = OPENAT2, .fd = CWD, .addr = name("f"), .off = how(0, 0644, 0), .len = 24);
	GIVES(-EINVAL, "openat2 flag", .opcode = OPENAT2, .fd = CWD, .addr = name("f"), .off = how(1ull << 40, 0, 0), .len = 24);
	GIVES(-EINVAL, "openat2 resolve", .opcode = OPENAT2, .fd = CWD, .addr = name("f"), .off = how(0, 0, 1ull << 40), .len = 24);
	GIVES(-EXDEV, "openat2 beneath", .opcode = OPENAT2, .fd = CWD, .addr = name("/etc/passwd"), .off = how(0, 0, BENEATH), .len = 24);
	GIVES(A_FD, "openat2 cached", .opcode = OPENAT2, .fd = CWD, .addr = name("f"), .off = how(0, 0, CACHED), .len = 24);
	GIVES(-EAGAIN, "openat2 cached create", .opcode = OPENAT2, .fd = CWD, .addr = name("f"), .off = how(O_CREAT, 0600, CACHED), .len = 24);
}

static void test_fifo(void)
{
	int writer;

	mkfifo("fifo", 0600);
	if (mode == ASYNC) {
		/* It sleeps until there is a writer. No other request is delayed. */
		push((struct sqe){ .opcode = OPENAT, .flags = FORCE_ASYNC, .fd = CWD, .addr = name("fifo"), .user_data = 1 });
		submit(1);
		scribble();
		writer = open("fifo", O_WRONLY);
		struct cqe cqe = reap();
		check("a FIFO is opened", cqe.res >= 0 && (fcntl(cqe.res, F_GETFL) & O_NONBLOCK) == 0, 1);
		close(cqe.res);
		close(writer);
		/* It can be interrupted. */
		push((struct sqe){ .opcode = OPENAT, .flags = FORCE_ASYNC, .fd = CWD, .addr = name("fifo"), .user_data = 1 });
		submit(1);
		usleep(50000);
		push((struct sqe){ .opcode = ASYNC_CANCEL, .addr = 1, .user_data = 2 });
		submit(1);
		for (int i = 0; i < 2; i++) {
			cqe = reap();
			/* The kernel's cancel may miss it while its worker is starting. */
			if (cqe.user_data == 2 && cqe.res == -ENOENT && !getenv("BLOCK_IO_URING"))
				continue;
			/* The kernel returns an internal number here that means EINTR. */
			check("cancel of an open", cqe.res == -512 ? -EINTR : cqe.res, cqe.user_data == 1 ? -EINTR : -EALREADY);
		}
	} else {
		GIVES(A_FD, "open a FIFO to read", .opcode = OPENAT, .fd = CWD, .addr = name("fifo"));
		GIVES(-ENXIO, "open a FIFO to write", .opcode = OPENAT, .fd = CWD, .addr = name("fifo"), .op_flags = O_WRONLY);
	}
	unlink("fifo");
}

static void test_registered(int fd)
{
	int none[4] = { -1, -1, -1, -1 };
	struct { uint32_t offset, resv; uint64_t fds; } update = { 0, 0, (uintptr_t)&fd };

	GIVES(-ENXIO, "open into no table", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .fd_in = 1);
	GIVES(-ENFILE, "open into any slot of no table", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .fd_in = ANY_SLOT);
	GIVES(-ENXIO, "close a slot of no table", .opcode = CLOSE, .fd_in = 1);
	check("register", syscall(427, ring_fd, 2, none, 4), 0);
	GIVES(0, "open into a slot", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .fd_in = 1, .op_flags = O_RDWR);
	GIVES(0, "open into it again", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .fd_in = 1, .op_flags = O_RDWR | O_CREAT);
	GIVES(0, "fsync of a registered file", .opcode = FSYNC, .flags = FIXED_FILE, .fd = 0);
	GIVES(-EINVAL, "open into a slot too far", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .fd_in = 5);
	GIVES(1, "open into any slot", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .fd_in = ANY_SLOT);
	GIVES(2, "openat2 into any slot", .opcode = OPENAT2, .fd = CWD, .addr = name("f"), .off = how(O_RDWR, 0, 0), .len = 24, .fd_in = ANY_SLOT);
	GIVES(3, "create into any slot", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .fd_in = ANY_SLOT, .op_flags = O_CREAT);
	GIVES(-ENFILE, "open into a full table", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .fd_in = ANY_SLOT);
	GIVES(-ENOENT, "open nothing into a slot", .opcode = OPENAT, .fd = CWD, .addr = name("nothing"), .fd_in = 2);
	GIVES(0, "close a slot", .opcode = CLOSE, .fd_in = 2);
	GIVES(-EBADF, "close it again", .opcode = CLOSE, .fd_in = 2);
	GIVES(-EBADF, "fsync of it", .opcode = FSYNC, .flags = FIXED_FILE, .fd = 1);
	GIVES(1, "open into the free slot", .opcode = OPENAT, .fd = CWD, .addr = name("f"), .fd_in = ANY_SLOT);
	GIVES(-EINVAL, "close a slot too far", .opcode = CLOSE, .fd_in = 5);
	GIVES(-EINVAL, "close any slot", .opcode = CLOSE, .fd_in = ANY_SLOT);
	REFUSES(-EINVAL, "close a slot and a number", .opcode = CLOSE, .fd = 3, .fd_in = 2);

	check("update", syscall(427, ring_fd, 6, &update, 1), 1);
	check("unregister", syscall(427, ring_fd, 3, 0, 0), 0);
}

static void test_close(void)
{
	int fd = open("f", O_RDONLY);

	GIVES(0, "close", .opcode = CLOSE, .fd = fd);
	check("closed", fcntl(fd, F_GETFD), -1);
	GIVES(-EBADF, "close again", .opcode = CLOSE, .fd = fd);
	GIVES(-EBADF, "close nothing", .opcode = CLOSE, .fd = -1);
	GIVES(-EBADF, "close the ring", .opcode = CLOSE, .fd = ring_fd);
	REFUSES(-EINVAL, "close off", .opcode = CLOSE, .fd = 500, .off = 1);
	REFUSES(-EINVAL, "close len", .opcode = CLOSE, .fd = 500, .len = 1);
	REFUSES(-EBADF, "close by flag", .opcode = CLOSE, .flags = FIXED_FILE, .fd = 500);
}

static void test_statx(int fd)
{
	struct statx st = { 0 };
	uint64_t at = (uintptr_t)&st;

	ftruncate(fd, 321);
	GIVES(0, "statx", .opcode = STATX, .fd = CWD, .addr = name("f"), .off = at, .len = STATX_ALL);
	check("statx size", st.stx_size, 321);
	st.stx_size = 0;
	GIVES(0, "statx of a descriptor", .opcode = STATX, .fd = fd, .addr = name(""), .off = at, .len = STATX_ALL, .op_flags = AT_EMPTY_PATH);
	check("statx size of a descriptor", st.stx_size, 321);
	REFUSES(-EFAULT, "statx of null", .opcode = STATX, .fd = fd, .off = at, .len = STATX_ALL, .op_flags = AT_EMPTY_PATH);
	REFUSES(-ENOENT, "statx of an empty name", .opcode = STATX, .fd = fd, .addr = name(""), .off = at);
	GIVES(-ENOENT, "statx of nothing", .opcode = STATX, .fd = CWD, .addr = name("nothing"), .off = at);
	GIVES(-EFAULT, "statx to a bad address", .opcode = STATX, .fd = CWD, .addr = name("f"), .off = 8);
	GIVES(-EINVAL, "statx flags", .opcode = STATX, .fd = CWD, .addr = name("f"), .off = at, .op_flags = 1);
	GIVES(-EINVAL, "statx mask", .opcode = STATX, .fd = CWD, .addr = name("f"), .off = at, .len = 1u << 31);
	REFUSES(-EINVAL, "statx buf_index", .opcode = STATX, .fd = CWD, .addr = name("f"), .off = at, .buf_index = 1);
	REFUSES(-EBADF, "statx of a registered file", .opcode = STATX, .flags = FIXED_FILE, .addr = name("f"), .off = at);
}

static void test_names(int dir)
{
	struct stat st;
	char text[8] = "";

	GIVES(0, "mkdir", .opcode = MKDIRAT, .fd = CWD, .addr = name("d"), .len = 0750);
	check("mkdir mode", stat("d", &st) == 0 ? st.st_mode & 07777 : -1, 0750);
	GIVES(-EEXIST, "mkdir again", .opcode = MKDIRAT, .fd = dir, .addr = name("d"), .len = 0755);
	REFUSES(-EINVAL, "mkdir off", .opcode = MKDIRAT, .fd = CWD, .addr = name("d2"), .off = 1);
	REFUSES(-EINVAL, "mkdir flags", .opcode = MKDIRAT, .fd = CWD, .addr = name("d2"), .op_flags = 1);

	GIVES(0, "rename", .opcode = RENAMEAT, .fd = CWD, .addr = name("d"), .off = name2("e"), .len = dir);
	check("renamed", access("e", F_OK), 0);
	GIVES(-EEXIST, "rename to what is there", .opcode = RENAMEAT, .fd = CWD, .addr = name("e"), .off = name2("f"), .len = CWD, .op_flags = 1);
	GIVES(-EINVAL, "rename flags", .opcode = RENAMEAT, .fd = CWD, .addr = name("e"), .off = name2("g"), .len = CWD, .op_flags = 64);
	GIVES(-EBADF, "rename into no directory", .opcode = RENAMEAT, .fd = CWD, .addr = name("e"), .off = name2("g"), .len = 777);
	REFUSES(-EFAULT, "rename to null", .opcode = RENAMEAT, .fd = CWD, .addr = name("e"), .len = CWD);
	REFUSES(-EBADF, "rename by a registered directory", .opcode = RENAMEAT, .flags = FIXED_FILE, .addr = name("e"), .off = name2("g"));

	GIVES(-EISDIR, "unlink a directory", .opcode = UNLINKAT, .fd = CWD, .addr = name("e"));
	GIVES(0, "rmdir", .opcode = UNLINKAT, .fd = CWD, .addr = name("e"), .op_flags = AT_REMOVEDIR);
	check("removed", access("e", F_OK), -1);
	GIVES(-ENOENT, "rmdir again", .opcode = UNLINKAT, .fd = CWD, .addr = name("e"), .op_flags = AT_REMOVEDIR);
	REFUSES(-EINVAL, "unlink flags", .opcode = UNLINKAT, .fd = CWD, .addr = name("e"), .op_flags = 0x100);
	REFUSES(-EINVAL, "unlink len", .opcode = UNLINKAT, .fd = CWD, .addr = name("e"), .len = 1);
	REFUSES(-EINVAL, "unlink off", .opcode = UNLINKAT, .fd = CWD, .addr = name("e"), .off = 1);
	REFUSES(-EBADF, "unlink by a registered directory", .opcode = UNLINKAT, .flags = FIXED_FILE, .addr = name("e"));

	GIVES(0, "symlink", .opcode = SYMLINKAT, .fd = dir, .addr = name("f"), .off = name2("s"));
	check("symlink text", readlink("s", text, 8) == 1 && text[0] == 'f', 1);
	REFUSES(-EINVAL, "symlink len", .opcode = SYMLINKAT, .fd = CWD, .addr = name("f"), .off = name2("s2"), .len = 1);
	REFUSES(-ENOENT, "symlink to an empty name", .opcode = SYMLINKAT, .fd = CWD, .addr = name(""), .off = name2("s2"));

	GIVES(0, "link", .opcode = LINKAT, .fd = CWD, .addr = name("f"), .off = name2("l"), .len = CWD);
	check("links", stat("f", &st) == 0 ? (int)st.st_nlink : -1, 2);
	GIVES(0, "link of what a symlink names", .opcode = LINKAT, .fd = CWD, .addr = name("s"), .off = name2("l2"), .len = CWD,
	      .op_flags = AT_SYMLINK_FOLLOW);
	check("more links", stat("f", &st) == 0 ? (int)st.st_nlink : -1, 3);
	GIVES(-EINVAL, "link flags", .opcode = LINKAT, .fd = CWD, .addr = name("f"), .off = name2("l3"), .len = CWD, .op_flags = 0x100);
	GIVES(0, "unlink", .opcode = UNLINKAT, .fd = CWD, .addr = name("l"));
	GIVES(0, "unlink from a directory", .opcode = UNLINKAT, .fd = dir, .addr = name("l2"));
	unlink("s");
}

static void test_long_names(void)
{
	char text[5000];

	memset(text, 'a', sizeof(text));
	text[4096] = 0;
	REFUSES(-ENAMETOOLONG, "path too long", .opcode = UNLINKAT, .fd = CWD, .addr = name(text));
	memset(text, '/', 4095);
	text[4095] = 0;
	text[4094] = 'f';
	memcpy(text, ".", 1);
	GIVES(A_FD, "longest path", .opcode = OPENAT, .fd = CWD, .addr = name(text));
	memset(text, 'a', 256);
	text[256] = 0;
	GIVES(-ENAMETOOLONG, "name too long", .opcode = UNLINKAT, .fd = CWD, .addr = name(text));
}

static void test_epoll(int fd, int pipe_in, int pipe_out)
{
	int ep = epoll_create1(0);
	struct epoll_event seen;

	GIVES(0, "epoll add", .opcode = EPOLL_CTL, .fd = ep, .off = pipe_in, .addr = event_for(EPOLLIN), .len = EPOLL_CTL_ADD);
	check("write", write(pipe_out, "x", 1), 1);
	check("an event", wait_on_epoll(ep, &seen, 1, 0) == 1 ? (int)seen.data.u64 : -1, 77);
	check("read", read(pipe_in, &seen, 1), 1);
	GIVES(-EEXIST, "epoll add again", .opcode = EPOLL_CTL, .fd = ep, .off = pipe_in, .addr = event_for(1), .len = EPOLL_CTL_ADD);
	GIVES(0, "epoll change", .opcode = EPOLL_CTL, .fd = ep, .off = pipe_in, .addr = event_for(0), .len = EPOLL_CTL_MOD);
	REFUSES(-EFAULT, "epoll change to nothing", .opcode = EPOLL_CTL, .fd = ep, .off = pipe_in, .len = EPOLL_CTL_MOD);
	GIVES(0, "epoll delete", .opcode = EPOLL_CTL, .flags = FIXED_FILE, .fd = ep, .off = pipe_in, .len = EPOLL_CTL_DEL);
	GIVES(-ENOENT, "epoll delete again", .opcode = EPOLL_CTL, .fd = ep, .off = pipe_in, .len = EPOLL_CTL_DEL);
	GIVES(-EINVAL, "epoll what", .opcode = EPOLL_CTL, .fd = ep, .off = pipe_in, .addr = event_for(1), .len = 9);
	GIVES(-EPERM, "epoll add of a file", .opcode = EPOLL_CTL, .fd = ep, .off = fd, .addr = event_for(1), .len = EPOLL_CTL_ADD);
	GIVES(-EINVAL, "epoll of no epoll", .opcode = EPOLL_CTL, .fd = fd, .off = pipe_in, .addr = event_for(1), .len = EPOLL_CTL_ADD);
	GIVES(-EBADF, "epoll of nothing", .opcode = EPOLL_CTL, .fd = ep, .off = 777, .addr = event_for(1), .len = EPOLL_CTL_ADD);
	REFUSES(-EINVAL, "epoll buf_index", .opcode = EPOLL_CTL, .fd = ep, .off = pipe_in, .len = EPOLL_CTL_DEL, .buf_index = 1);
	/* A ring in an epoll set reports CQEs. */
	GIVES(0, "epoll add of the ring", .opcode = EPOLL_CTL, .fd = ep, .off = ring_fd, .addr = event_for(EPOLLIN), .len = EPOLL_CTL_ADD);
	check("the ring is empty", wait_on_epoll(ep, &seen, 1, 0), 0);
	push((struct sqe){ .opcode = NOP });
	submit(1);
	check("the ring is readable", wait_on_epoll(ep, &seen, 1, 1000), 1);
	reap();
	check("the ring is empty again", wait_on_epoll(ep, &seen, 1, 0), 0);
	close(ep);
}

static void test_splice(int fd, int pipe_in, int pipe_out)
{
	int other[2], fds[1] = { fd };
	char text[8] = "";

	check("pipe", pipe(other), 0);
	ftruncate(fd, 0);
	lseek(fd, 0, SEEK_SET);
	check("write", write(pipe_out, "hello", 5), 5);
	GIVES(5, "tee", .opcode = TEE, .fd = other[1], .fd_in = pipe_in, .len = 5);
	check("read", read(other[0], text, 8), 5);
	REFUSES(-EINVAL, "tee off", .opcode = TEE, .fd = other[1], .fd_in = pipe_in, .len = 5, .off = -1);
	GIVES(0, "tee of no bytes", .opcode = TEE, .fd = other[1], .fd_in = fd);
	GIVES(-EINVAL, "tee of a file", .opcode = TEE, .fd = other[1], .fd_in = fd, .len = 5);
	GIVES(-EBADF, "tee of no file", .opcode = TEE, .fd = other[1], .fd_in = 700);

	GIVES(5, "splice into a file", .opcode = SPLICE, .fd = fd, .off = 3, .fd_in = pipe_in, .addr = -1, .len = 5);
	check("position", lseek(fd, 0, SEEK_CUR), 0);
	GIVES(5, "splice out of a file", .opcode = SPLICE, .fd = other[1], .off = -1, .fd_in = fd, .addr = 3, .len = 5);
	check("read", read(other[0], text, 8) == 5 && memcmp(text, "hello", 5) == 0, 1);
	GIVES(8, "splice at the position", .opcode = SPLICE, .fd = other[1], .off = -1, .fd_in = fd, .addr = -1, .len = 20);
	check("position", lseek(fd, 0, SEEK_SET), 0);
	check("read", read(other[0], text, 8), 8);
	GIVES(-ESPIPE, "splice with a pipe's offset", .opcode = SPLICE, .fd = other[1], .fd_in = fd, .addr = 3, .len = 5);
	GIVES(-EINVAL, "splice off", .opcode = SPLICE, .fd = other[1], .off = -1, .fd_in = fd, .addr = -2, .len = 5);
	GIVES(-EINVAL, "splice without a pipe", .opcode = SPLICE, .fd = fd, .off = -1, .fd_in = fd, .addr = -1, .len = 3);
	GIVES(0, "splice of no bytes", .opcode = SPLICE, .fd = fd, .off = -1, .fd_in = fd);
	GIVES(-EBADF, "splice of no file", .opcode = SPLICE, .fd = other[1], .off = -1, .fd_in = 700);
	GIVES(-EAGAIN, "splice of nothing", .opcode = SPLICE, .fd = other[1], .off = -1, .fd_in = pipe_in, .addr = -1, .len = 3, .op_flags = 2);
	REFUSES(-EINVAL, "splice flags", .opcode = SPLICE, .fd = other[1], .off = -1, .fd_in = fd, .addr = 3, .len = 5, .op_flags = 16);

	GIVES(-EBADF, "splice of no registered file", .opcode = SPLICE, .fd = other[1], .off = -1, .len = 5, .op_flags = FD_IN_FIXED);
	check("register", syscall(427, ring_fd, 2, fds, 1), 0);
	GIVES(5, "splice of a registered file", .opcode = SPLICE, .fd = other[1], .off = -1, .addr = 3, .len = 5, .op_flags = FD_IN_FIXED);
	GIVES(-EBADF, "splice beyond the table", .opcode = SPLICE, .fd = other[1], .off = -1, .fd_in = 1, .len = 5, .op_flags = FD_IN_FIXED);
	check("read", read(other[0], text, 8), 5);
	check("write", write(pipe_out, "again", 5), 5);
	GIVES(5, "splice into a registered file", .opcode = SPLICE, .flags = FIXED_FILE, .fd = 0, .off = 0, .fd_in = pipe_in, .addr = -1, .len = 5);
	check("unregister", syscall(427, ring_fd, 3, 0, 0), 0);

	/* It waits for bytes without delaying the ring. */
	push((struct sqe){ .opcode = SPLICE, .fd = other[1], .off = -1, .fd_in = pipe_in, .addr = -1, .len = 3, .user_data = 1 });
	push((struct sqe){ .opcode = NOP, .user_data = 2 });
	submit(2);
	check("the NOP is first", reap().user_data, 2);
	check("write", write(pipe_out, "abc", 3), 3);
	check("splice in the end", reap().res, 3);
	close(other[0]);
	close(other[1]);
}

int main(void)
{
	char dir_name[] = "fs-ops-XXXXXX";
	int pipes[2], fd, dir;

	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	make_ring();
	if (!mkdtemp(dir_name) || chdir(dir_name) || pipe(pipes)) {
		perror("scratch directory");
		return 1;
	}
	umask(022);
	dir = open(".", O_DIRECTORY);
	fd = open("f", O_RDWR | O_CREAT, 0644);
	for (mode = PLAIN; mode < MODES; mode++) {
		test_sync(fd, dir, pipes[0]);
		test_file_size_limit(fd);
		test_advice(fd, pipes[0]);
		test_open();
		test_openat2();
		test_fifo();
		test_registered(fd);
		test_close();
		test_statx(fd);
		test_names(dir);
		test_long_names();
		test_epoll(fd, pipes[0], pipes[1]);
		test_splice(fd, pipes[0], pipes[1]);
	}
	if (unlink("f") || chdir("..") || rmdir(dir_name))
		perror("scratch directory");
	return failures != 0;
}
