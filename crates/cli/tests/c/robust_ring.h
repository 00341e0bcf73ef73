/*
 * Rings by system calls alone, several at a time, for programs that misbehave or are interrupted.
 * They state the answers of Linux 6.18: on the kernel's ring they check their expectations, on the
 * engine's they check the engine. With BLOCK_IO_URING in the environment a real io_uring call kills
 * the program. Exit status: 0 all as expected, 1 not, 77 no ring.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "sqe.h"
#include "uring_filter.h"

enum {
	NOP = 0, READV = 1, READ_FIXED = 4, POLL_ADD = 6, SENDMSG = 9, TIMEOUT = 11, ACCEPT = 13, ASYNC_CANCEL = 14, LINK_TIMEOUT = 15, READ = 22, WRITE = 23, SEND = 26, RECV = 27,
};
enum { FIXED_FILE = 1, DRAIN = 2, LINK = 4, FORCE_ASYNC = 16, BUFFER_SELECT = 32 };
enum { GETEVENTS = 1, EXT_ARG = 8 };
enum { SETUP_SQPOLL = 2, SETUP_CQSIZE = 8, SETUP_CLAMP = 16, SETUP_SQE128 = 1024, SETUP_CQE32 = 2048, SETUP_SINGLE_ISSUER = 4096, SETUP_DEFER_TASKRUN = 8192, SETUP_CQE_MIXED = 1 << 18 };
enum { F_MORE = 2 };
enum { SQ_CQ_OVERFLOW = 2 };
#define POLL_MULTISHOT 1
#define CANCEL_ANY 4
#define OFF_SQES 0x10000000ull
#define NO_CQE -9999
#define SQE(...) ((struct sqe){ __VA_ARGS__ })

struct params {
	uint32_t sq_entries, cq_entries, flags, sq_thread_cpu, sq_thread_idle, features, wq_fd, resv[3];
	struct { uint32_t head, tail, mask, entries, flags, dropped, array, resv1; uint64_t user_addr; } sq;
	struct { uint32_t head, tail, mask, entries, overflow, cqes, flags, resv1; uint64_t user_addr; } cq;
};

struct ring {
	int fd;
	struct params p;
	size_t len, sqes_len;
	char *rings;
	struct sqe *sqes;
	uint32_t *sq_head, *sq_tail, *sq_flags, *sq_array, *cq_head, *cq_tail;
	struct cqe *cqes;
};

static int failures;
static const char *section = "start";

#define check(what, got, want) check_at(__LINE__, what, got, want)
#define is_true(what, truth) check_at(__LINE__, what, !!(truth), 1)

static void check_at(int line, const char *what, long got, long want)
{
	if (got != want) {
		printf("%s: %s (line %d): %ld, expected %ld\n", section, what, line, got, want);
		fflush(stdout);
		__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
	}
}

static void block_if_asked(void)
{
	if (getenv("BLOCK_IO_URING"))
		filter_io_uring(SECCOMP_RET_KILL_PROCESS, 1);
}

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000ull + ts.tv_nsec / 1000;
}

static void sleep_ms(int ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

static int negative(long r)
{
	return r < 0 ? -errno : (int)r;
}

static int setup_call(unsigned entries, void *params)
{
	return negative(syscall(425, entries, params));
}

static int enter_call(int fd, unsigned submit, unsigned min, unsigned flags, void *arg, size_t size)
{
	return negative(syscall(426, fd, submit, min, flags, arg, size));
}

static int register_call(int fd, unsigned op, void *arg, unsigned n)
{
	return negative(syscall(427, fd, op, arg, n));
}

/* Maps the ring that fresh params describe. */
static int map_ring(struct ring *r)
{
	size_t array = r->p.sq.array + r->p.sq_entries * 4, cqes = r->p.cq.cqes + r->p.cq_entries * (r->p.flags & SETUP_CQE32 ? 32 : 16);

	r->len = array > cqes ? array : cqes;
	r->sqes_len = (size_t)r->p.sq_entries * (r->p.flags & SETUP_SQE128 ? 128 : 64);
	r->rings = mmap(0, r->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, 0);
	r->sqes = mmap(0, r->sqes_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, OFF_SQES);
	if (r->rings == MAP_FAILED || r->sqes == MAP_FAILED)
		return -errno;
	r->sq_head = (void *)(r->rings + r->p.sq.head);
	r->sq_tail = (void *)(r->rings + r->p.sq.tail);
	r->sq_flags = (void *)(r->rings + r->p.sq.flags);
	r->sq_array = (void *)(r->rings + r->p.sq.array);
	r->cq_head = (void *)(r->rings + r->p.cq.head);
	r->cq_tail = (void *)(r->rings + r->p.cq.tail);
	r->cqes = (void *)(r->rings + r->p.cq.cqes);
	for (unsigned i = 0; i < r->p.sq_entries; i++)
		r->sq_array[i] = i;
	return 0;
}

static int try_ring(struct ring *r, unsigned entries, unsigned flags, unsigned cq_entries)
{
	memset(r, 0, sizeof(*r));
	r->p.flags = flags;
	r->p.cq_entries = cq_entries;
	r->fd = setup_call(entries, &r->p);
	return r->fd < 0 ? r->fd : map_ring(r);
}

static struct ring new_ring_with(unsigned entries, unsigned flags, unsigned cq_entries)
{
	struct ring r;
	int err = try_ring(&r, entries, flags, cq_entries);

	if (err) {
		printf("%s: no ring: %s\n", section, strerror(-err));
		exit(err == -ENOSYS || err == -EPERM ? 77 : 1);
	}
	return r;
}

static struct ring new_ring(unsigned entries)
{
	return new_ring_with(entries, 0, 0);
}

static void unmap_ring(struct ring *r)
{
	munmap(r->rings, r->len);
	munmap(r->sqes, r->sqes_len);
}

static void end_ring(struct ring *r)
{
	unmap_ring(r);
	close(r->fd);
}

static void push(struct ring *r, struct sqe sqe)
{
	uint32_t tail = *r->sq_tail;

	r->sqes[tail & (r->p.sq_entries - 1)] = sqe;
	__atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
}

static void submit(struct ring *r, struct sqe sqe)
{
	push(r, sqe);
	check("submitted", enter_call(r->fd, 1, 0, 0, 0, 0), 1);
}

static int waiting(struct ring *r)
{
	return __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE) - *r->cq_head;
}

/* Waits for `n` CQEs for at most some time. Returns what enter() returns. */
static int wait_ms(struct ring *r, unsigned n, int ms)
{
	uint64_t ts[2] = { ms / 1000, ms % 1000 * 1000000ull }, arg[3] = { 0, 0, ADDR(ts) };

	return enter_call(r->fd, 0, n, GETEVENTS | EXT_ARG, arg, sizeof(arg));
}

static int comes(struct ring *r, int ms)
{
	uint64_t end = now_us() + ms * 1000ull;

	while (!waiting(r)) {
		uint64_t now = now_us();

		if (now >= end)
			break;
		wait_ms(r, 1, (end - now) / 1000 + 1);
	}
	return waiting(r) > 0;
}

static struct cqe take(struct ring *r)
{
	struct cqe cqe = r->cqes[*r->cq_head & (r->p.cq_entries - 1)];

	__atomic_store_n(r->cq_head, *r->cq_head + 1, __ATOMIC_RELEASE);
	return cqe;
}

static struct cqe next_cqe(struct ring *r)
{
	return comes(r, 60000) ? take(r) : (struct cqe){ .res = NO_CQE };
}

static int next(struct ring *r)
{
	return next_cqe(r).res;
}

static int run(struct ring *r, struct sqe sqe)
{
	submit(r, sqe);
	return next(r);
}

/* The ring takes a request and completes it. */
#define works(r) works_at(__LINE__, r)

static void works_at(int line, struct ring *r)
{
	static uint64_t count = 1000000;
	uint64_t mine = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
	struct cqe cqe;

	push(r, SQE(.opcode = NOP, .user_data = mine));
	check_at(line, "a NOP is submitted", enter_call(r->fd, 1, 1, GETEVENTS, 0, 0), 1);
	cqe = next_cqe(r);
	check_at(line, "its result", cqe.res, 0);
	check_at(line, "its user_data", cqe.user_data, mine);
}

/*
 * The wait status of a child that runs `f`. A child that hangs (ten times the seconds that it may
 * need) is killed by SIGALRM.
 */
static int in_child(int (*f)(void), int seconds)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		failures = 0;
		alarm(10 * seconds);
		f();
		fflush(stdout);
		_exit(failures > 0);
	}
	waitpid(pid, &status, 0);
	return status;
}

/* What a folder of /proc/self holds; for `fd`, the descriptor of this reading too. */
static int count_dir(const char *name)
{
	char path[64];
	DIR *dir;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/self/%s", name);
	dir = opendir(path);
	for (struct dirent *entry; dir && (entry = readdir(dir));)
		n += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

static int finish(void)
{
	printf("%s\n", failures ? "NOT as expected" : "as expected");
	return failures > 0;
}
