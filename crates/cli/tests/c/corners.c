/* Corners of what exists: what is told of buffers, polls, masks and memory in rare cases. */
#define _GNU_SOURCE
#include "net_ring.h"
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { POLL_ADD = 6, POLL_MULTI = 1, READ_MULTISHOT = 49, REGISTER_BUFFERS = 0, UNREGISTER_BUFFERS = 1 };
enum { GETEVENTS = 1, EXT_ARG = 8, READV = 1, WRITEV = 2, SPLICE = 30, FSETXATTR = 41, CQE_SKIP = 64, LINK_TIMEOUT = 15, WRITE = 23, NOP_FILE = 2 };
enum { SETUP_SQPOLL = 2, SETUP_SQ_AFF = 4, SETUP_NO_MMAP = 1 << 14, SETUP_REGISTERED_FD_ONLY = 1 << 15 };
enum { ENTER_REGISTERED_RING = 16, ABS_TIMER = 32 };
enum { SETUP_R_DISABLED = 64, SETUP_DEFER = 3 << 12, REGISTER_ENABLE_RINGS = 12 };

static char memory[16][256];

/* Provided buffers of these sizes in group 0. */
static void provide(unsigned count, const uint32_t *sizes)
{
	struct buf *bufs = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct buf_reg group = { .addr = ADDR(bufs), .entries = 16 };

	check("buffer ring", reg(REGISTER_PBUF_RING, &group, 1), 0);
	for (unsigned i = 0; i < count; i++)
		bufs[i] = (struct buf){ .addr = ADDR(memory[i]), .len = sizes[i], .bid = i };
	__atomic_store_n(&bufs[0].tail, count, __ATOMIC_RELEASE);
}

/* The next CQE, which must come without a call. */
static void appears(const char *what, int res, uint32_t flags)
{
	for (int i = 0; i < 60000 && __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) == *cq_head; i++)
		usleep(1000);
	check(what, *cq_tail != *cq_head, 1);
	if (*cq_tail != *cq_head)
		expect(what, res, flags);
}

/* A multishot read that a worker arms finds what is there, with nobody in the ring. */
static void multishot_read(const char *name, int flags)
{
	int p[2];

	new_ring(name);
	provide(4, (uint32_t[]){ 4, 16, 16, 16 });
	check("pipe", pipe(p), 0);
	check("data", write(p[1], "data", 4), 4);
	submit(SQE(READ_MULTISHOT, flags | BUFFER_SELECT, .fd = p[0]));
	appears("what was there", 4, F_BUFFER | F_MORE);
	for (int i = 1; i < 4; i++) {
		check("more", write(p[1], "later", 5), 5);
		appears("what came", 5, F_BUFFER | F_MORE | i << 16);
	}
	close(p[0]);
	close(p[1]);
}

/* A datagram socket that receives no more. */
static void shut_down(void)
{
	static const struct { const char *name; int type; } kinds[] = {
		{ "stream", SOCK_STREAM }, { "datagrams", SOCK_DGRAM }, { "packets", SOCK_SEQPACKET },
	};
	char byte;

	for (int i = 0; i < 3; i++) {
		for (int async = 0; async <= FORCE_ASYNC; async += FORCE_ASYNC) {
			int s[2];

			new_ring(kinds[i].name);
			check("pair", socketpair(AF_UNIX, kinds[i].type, 0, s), 0);
			check("shut down", shutdown(s[0], SHUT_RDWR), 0);
			does("nothing", SQE(RECV, async, .fd = s[0], .addr = ADDR(&byte), .len = 0), 0, 0);
			does("a byte", SQE(RECV, async, .fd = s[0], .addr = ADDR(&byte), .len = 1), 0, 0);
			does("a byte, not waiting", SQE(RECV, async, .fd = s[0], .addr = ADDR(&byte), .len = 1, .op_flags = MSG_DONTWAIT),
			     kinds[i].type == SOCK_DGRAM ? -EAGAIN : 0, 0);
			close(s[0]);
			close(s[1]);
		}
	}
}

static void registered_memory(void)
{
	static const struct { const char *name; int flags, prot, want; } maps[] = {
		{ "shared", MAP_SHARED, PROT_READ | PROT_WRITE, -EFAULT },
		{ "shared, read-only", MAP_SHARED, PROT_READ, -EFAULT },
		{ "private", MAP_PRIVATE, PROT_READ | PROT_WRITE, 0 },
		{ "private, read-only", MAP_PRIVATE, PROT_READ, -EFAULT },
	};
	int file = open("corners.file", O_RDWR | O_CREAT | O_TRUNC, 0600), memfd = syscall(319, "corners", 0);
	struct iovec iov;

	new_ring("registered memory");
	check("file", ftruncate(file, 65536), 0);
	check("memfd", ftruncate(memfd, 65536), 0);
	for (int i = 0; i < 4; i++) {
		iov = (struct iovec){ mmap(0, 65536, maps[i].prot, maps[i].flags, file, 0), 65536 };
		check(maps[i].name, reg(REGISTER_BUFFERS, &iov, 1), maps[i].want);
		reg(UNREGISTER_BUFFERS, 0, 0);
		/* A part of it, behind memory of another kind. */
		if (i == 0) {
			mmap(iov.iov_base, 32768, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			iov.iov_len = 32768;
			check("before it", reg(REGISTER_BUFFERS, &iov, 1), 0);
			reg(UNREGISTER_BUFFERS, 0, 0);
			iov.iov_len = 32769;
			check("one byte of it", reg(REGISTER_BUFFERS, &iov, 1), -EFAULT);
		}
		munmap(iov.iov_base, 65536);
	}
	iov = (struct iovec){ mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0), 65536 };
	check("a memfd", reg(REGISTER_BUFFERS, &iov, 1), 0);
	check("unregistered", reg(UNREGISTER_BUFFERS, 0, 0), 0);
	iov = (struct iovec){ mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), 65536 };
	check("shared memory", reg(REGISTER_BUFFERS, &iov, 1), 0);
	check("unregistered", reg(UNREGISTER_BUFFERS, 0, 0), 0);
	close(file);
	close(memfd);
}

/* A multishot poll has told what holds: another request on the file does not repeat that. */
static void polls(const char *name, int flags)
{
	int event = eventfd(1, EFD_NONBLOCK), s[2];

	new_ring(name);
	check("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
	check("files", reg(REGISTER_FILES, (int[]){ event, s[0] }, 2), 0);
	int fd = flags & FIXED_FILE ? 0 : event, sock = flags & FIXED_FILE ? 1 : s[0];
	does("a multishot poll", SQE(POLL_ADD, flags, .fd = fd, .len = POLL_MULTI, .op_flags = POLLIN), POLLIN, F_MORE);
	submit(SQE(POLL_ADD, flags, .fd = fd, .op_flags = POLLPRI));
	nothing_comes("a poll of another event");
	does("a second multishot poll", SQE(POLL_ADD, flags, .fd = fd, .len = POLL_MULTI, .op_flags = POLLIN), POLLIN, F_MORE);
	nothing_comes("the first one");
	does("a single poll", SQE(POLL_ADD, flags, .fd = fd, .op_flags = POLLIN), POLLIN, 0);
	nothing_comes("the others");
	does("room in a socket", SQE(POLL_ADD, flags, .fd = sock, .len = POLL_MULTI, .op_flags = POLLOUT), POLLOUT, F_MORE);
	submit(SQE(RECV, flags, .fd = sock, .addr = ADDR(memory[0]), .len = 1));
	nothing_comes("a receive");
	check("a byte", write(s[1], "b", 1), 1);
	expect("is received", 1, 0);
	close(event);
	close(s[0]);
	close(s[1]);
}

/* A buffer that a cancelled request holds. */
static void cancelled_buffers(void)
{
	int s[2];

	new_ring("cancelled buffers");
	provide(4, (uint32_t[]){ 16, 16, 16, 16 });
	check("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
	submit(SQE(RECV, BUFFER_SELECT, .fd = s[0], .user_data = 1));
	does("a receive that waits", SQE(ASYNC_CANCEL, .addr = 1), 0, 0);
	expect("holds none", -ECANCELED, 0);
	submit(SQE(RECV, BUFFER_SELECT, .fd = s[0], .op_flags = MSG_WAITALL, .user_data = 2));
	check("a part", write(s[1], "part", 4), 4);
	nothing_comes("of what it waits for");
	does("its cancel", SQE(ASYNC_CANCEL, .addr = 2), 0, 0);
	expect("is told with the part", 4, F_BUFFER);
	does("a list", SQE(PROVIDE_BUFFERS, .fd = 2, .addr = ADDR(memory[8]), .len = 16, .buf_index = 1), 0, 0);
	submit(SQE(READ, BUFFER_SELECT, .fd = s[0], .off = -1, .len = 16, .buf_index = 1, .user_data = 3));
	does("the cancel of a read", SQE(ASYNC_CANCEL, .addr = 3), 0, 0);
	expect("gives its buffer away", -ECANCELED, F_BUFFER);
	does("one is left", SQE(REMOVE_BUFFERS, .fd = 9, .buf_index = 1), 1, 0);
	close(s[0]);
	close(s[1]);
}

/* A send from a list of buffers sends them whole, whatever its length. */
static void lengths_of_sends(void)
{
	static const struct { const char *name; int ioprio; } kinds[] = {
		{ "a send", 0 }, { "polled first", POLL_FIRST }, { "a bundle, polled first", BUNDLE | POLL_FIRST },
	};

	for (int i = 0; i < 3; i++) {
		int s[2];

		new_ring("lengths of sends");
		provide(1, (uint32_t[]){ 64 });
		check("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
		does("a list", SQE(PROVIDE_BUFFERS, .fd = 1, .addr = ADDR(memory[1]), .len = 64, .buf_index = 1), 0, 0);
		does(kinds[i].name, SQE(SEND, BUFFER_SELECT, kinds[i].ioprio, s[0], .len = 1, .buf_index = 1), 64, F_BUFFER);
		does("from a ring", SQE(SEND, BUFFER_SELECT, kinds[i].ioprio, s[0], .len = 1), 1, F_BUFFER);
		close(s[0]);
		close(s[1]);
	}
}

/* A LINK_TIMEOUT that has expired when its request is complete at once. */
static void link_timers(void)
{
	uint64_t zero[2] = { 0 }, hour[2] = { 3600 };
	int file = open("corners.file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	struct { const char *name; struct sqe sqe; int res, timer; uint64_t *ts; } cases[] = {
		{ "a NOP, no time", SQE(NOP, LINK), 0, -ENOENT, zero },
		{ "a NOP, an hour", SQE(NOP, LINK), 0, -ECANCELED, hour },
		{ "a read", SQE(READ, LINK, .fd = file, .addr = ADDR(memory), .len = 1), 1, -ENOENT, zero },
		{ "a short read", SQE(READ, LINK, .fd = file, .addr = ADDR(memory), .len = 9), 4, -ENOENT, zero },
		{ "a failed read", SQE(READ, LINK, .fd = file, .addr = 8, .len = 9), -EFAULT, -ENOENT, zero },
		{ "no file", SQE(READ, LINK, .fd = 999, .addr = ADDR(memory), .len = 9), -EBADF, -ECANCELED, zero },
		{ "no registered file", SQE(READ, LINK | FIXED_FILE, .fd = 9, .addr = ADDR(memory), .len = 9), -EBADF, -ECANCELED, zero },
		{ "malformed", SQE(NOP, LINK, .op_flags = 1 << 30), -EINVAL, -ECANCELED, zero },
	};

	new_ring("link timers");
	check("file", write(file, "data", 4), 4);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		submit_linked(cases[i].sqe, SQE(LINK_TIMEOUT, .addr = ADDR(cases[i].ts), .len = 1));
		check(cases[i].name, next(), cases[i].res);
		check(cases[i].name, next(), cases[i].timer);
	}
	close(file);
}

/* What refuses an SQE, and what its request. */
static void refusals(void)
{
	int file = open("corners.file", O_RDWR | O_CREAT, 0600), path = open("corners.file", O_PATH), s[2];

	new_ring("refusals");
	check("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
	check("files", reg(REGISTER_FILES, &file, 1), 0);
	for (int opcode = WRITE; opcode <= SEND; opcode += SEND - WRITE) {
		for (int reach = 0; reach < 2; reach++) {
			push(SQE(opcode, .fd = opcode == SEND ? s[0] : file, .addr = reach ? 8 : 0xdead000000000000, .len = 10));
			push(SQE(NOP));
			check("an address", syscall(426, ring_fd, 2, 0, 0, 0, 0), 1 + reach);
			/* An address that only the request finds bad may be found by a worker. */
			if (!reach) {
				expect("bad", -EFAULT, 0);
				check("the next one", syscall(426, ring_fd, 1, 0, 0, 0, 0), 1);
				expect("a NOP", 0, 0);
			} else {
				check("one is bad", next() + next(), -EFAULT);
			}
		}
	}
	does("a registered file", SQE(NOP, FIXED_FILE, .fd = 0, .op_flags = NOP_FILE), 0, 0);
	does("none", SQE(NOP, FIXED_FILE, .fd = 1, .op_flags = NOP_FILE), -EBADF, 0);
	does("a path", SQE(NOP, .fd = path, .op_flags = NOP_FILE), -EBADF, 0);
	does("nothing into a path", SQE(SPLICE, .fd = path, .addr = -1, .off = -1, .fd_in = s[0]), -EBADF, 0);
	does("nothing out of a path", SQE(SPLICE, .fd = s[0], .addr = -1, .off = -1, .fd_in = path), -EBADF, 0);
	/* Its file is no file, which is a failure: only an attribute that cannot be set is none. */
	does("an attribute", SQE(FSETXATTR, CQE_SKIP, .fd = path, .addr = ADDR("user.name"), .len = 1, .off = ADDR("x")), -EBADF, 0);
	submit(SQE(FSETXATTR, CQE_SKIP | LINK, .fd = s[0], .addr = ADDR("user.name"), .len = 1, .off = ADDR("x")));
	does("behind one of a socket", SQE(NOP), 0, 0);
	close(file);
	close(path);
	close(s[0]);
	close(s[1]);
}

/* A ring that polls another one has its CQE as soon as the other one has. */
static void polled_ring(const char *name, unsigned setup)
{
	uint32_t params[30] = { [2] = setup };

	new_ring(name);
	int other = syscall(425, 4, params);
	char *queue = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, other, 0);
	struct sqe *entries = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, other, 0x10000000);

	submit(SQE(POLL_ADD, .fd = other, .op_flags = POLLIN));
	if (setup & SETUP_R_DISABLED)
		check("enabled", syscall(427, other, REGISTER_ENABLE_RINGS, 0, 0), 0);
	check("nothing yet", *cq_tail - *cq_head, 0);
	entries[0] = SQE(NOP);
	((uint32_t *)(queue + params[16]))[0] = 0;
	__atomic_store_n((uint32_t *)(queue + params[11]), 1, __ATOMIC_RELEASE);
	check("a NOP on the other ring", syscall(426, other, 1, 0, 0, 0, 0), 1);
	check("a CQE without a further call", *cq_tail - *cq_head, 1);
	expect("readable", POLLIN, 0);
	munmap(queue, 4096);
	munmap(entries, 4096);
	close(other);
}

/* Signal masks of two waiters. */
static volatile int handled;
static pid_t waiter;

static void on_signal(int signal)
{
	(void)signal;
	handled++;
}

static int wait_masked(unsigned min, uint64_t mask)
{
	struct { uint64_t sigmask; uint32_t size, pad; uint64_t ts; } arg = { ADDR(&mask), 8, 0, 0 };
	int r = syscall(426, ring_fd, 0, min, GETEVENTS | EXT_ARG, &arg, sizeof(arg));

	return r < 0 ? -errno : r;
}

static void *first_waiter(void *arg)
{
	sigset_t all;

	(void)arg;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, 0);
	__atomic_store_n(&waiter, syscall(186), __ATOMIC_RELEASE);
	return (void *)(long)syscall(426, ring_fd, 0, 1, GETEVENTS, 0, 0);
}

static void wait_until_asleep(pid_t *thread)
{
	char path[64], line[256], state = 0;

	while (!__atomic_load_n(thread, __ATOMIC_ACQUIRE))
		usleep(1000);
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", *thread);
	for (int i = 0; i < 20000 && state != 'S'; i++) {
		FILE *f = fopen(path, "r");

		usleep(3000);
		if (fgets(line, sizeof(line), f))
			sscanf(line, "%*d (%*[^)]) %c", &state);
		fclose(f);
	}
}

static void *second_waiter(void *arg)
{
	sigset_t none;

	(void)arg;
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, 0);
	__atomic_store_n(&waiter, syscall(186), __ATOMIC_RELEASE);
	return (void *)(long)wait_masked(1, 1ull << (SIGUSR1 - 1));
}

static void masks(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	pthread_t first, second;
	void *result;
	sigset_t usr1;
	int p[2];
	char byte;

	new_ring("signal masks");
	check("pipe", pipe(p), 0);
	sigaction(SIGUSR1, &action, 0);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr1, 0);
	pthread_create(&first, 0, first_waiter, 0);
	wait_until_asleep(&waiter);
	pthread_kill(pthread_self(), SIGUSR1);
	check("blocked", handled, 0);
	check("a bad mask", syscall(426, ring_fd, 0, 1, GETEVENTS, (void *)8, 8) < 0 ? -errno : 0, -EFAULT);
	check("a mask that lets it pass", wait_masked(1, 0), -EINTR);
	check("handled", handled, 1);
	waiter = 0;
	pthread_create(&second, 0, second_waiter, 0);
	wait_until_asleep(&waiter);
	pthread_kill(second, SIGUSR1);
	submit(SQE(READ, .fd = p[0], .addr = ADDR(&byte), .len = 1));
	check("a byte", write(p[1], "b", 1), 1);
	pthread_join(second, &result);
	check("a mask that blocks it", (long)result, 0);
	check("handled after that", handled, 2);
	pthread_join(first, &result);
	check("the first waiter", (long)result, 0);
	expect("the read", 1, 0);
}

/* Flags that are valid with others only. */
static void setup_flags(void)
{
	static const struct { const char *name; unsigned flags, cpu; int want; } setups[] = {
		{ "a CPU without a poll thread", SETUP_SQ_AFF, 0, -EINVAL },
		{ "a poll thread on a CPU", SETUP_SQPOLL | SETUP_SQ_AFF, 0, 0 },
		{ "a poll thread on no CPU", SETUP_SQPOLL | SETUP_SQ_AFF, 1 << 20, -EINVAL },
		{ "a number only, with the kernel's memory", SETUP_REGISTERED_FD_ONLY, 0, -EINVAL },
		{ "memory that is not there", SETUP_NO_MMAP, 0, -EFAULT },
	};
	uint32_t params[30];
	char *own = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fd, n;

	for (n = 0; n < (int)(sizeof(setups) / sizeof(*setups)); n++) {
		memset(params, 0, sizeof(params));
		params[2] = setups[n].flags;
		params[3] = setups[n].cpu;
		fd = syscall(425, 8, params);
		check(setups[n].name, fd < 0 ? -errno : 0, setups[n].want);
		if (fd >= 0)
			close(fd);
	}
	memset(params, 0, sizeof(params));
	params[2] = SETUP_REGISTERED_FD_ONLY | SETUP_NO_MMAP;
	*(uint64_t *)(params + 18) = (uint64_t)own + 4096;
	*(uint64_t *)(params + 28) = (uint64_t)own;
	check("a registered number", syscall(425, 8, params), 0);
	check("enters by it", syscall(426, 0, 0, 0, ENTER_REGISTERED_RING, 0, 0), 0);
}

/* Time-outs that are over before they begin, beside a mask that cannot be read. */
static void times_of_waits(void)
{
	static const struct { int64_t sec, nsec; int flags; } times[] = {
		{ 0, -5, 0 }, { -1, 0, 0 }, { -1, 2000000000, ABS_TIMER }, { 0, 2000000000, ABS_TIMER }, { 0, 1000, 0 },
	};
	static uint64_t mask;

	new_ring("times of waits");
	for (int n = 0; n < (int)(sizeof(times) / sizeof(*times)); n++) {
		for (int is_bad = 0; is_bad < 2; is_bad++) {
			struct { uint64_t sigmask; uint32_t size, pad; uint64_t ts; } arg = { is_bad ? 8 : ADDR(&mask), 8, 0, ADDR(&times[n]) };
			int flags = GETEVENTS | EXT_ARG | times[n].flags;

			check("a wait", syscall(426, ring_fd, 0, 1, flags, &arg, sizeof(arg)) < 0 ? errno : 0, is_bad ? EFAULT : ETIME);
			check("none", syscall(426, ring_fd, 0, 0, flags, &arg, sizeof(arg)), 0);
			check("a negative number", syscall(426, ring_fd, 0, -1, flags, &arg, sizeof(arg)) < 0 ? errno : 0, is_bad ? EFAULT : 0);
		}
	}
}

/* A read into no bytes looks at no socket; a write of none does. */
static void no_bytes(void)
{
	struct iovec nothing = { memory, 0 };
	int s[2], unconnected = socket(AF_UNIX, SOCK_STREAM, 0), tcp = socket(AF_INET, SOCK_STREAM, 0);
	int udp = socket(AF_INET, SOCK_DGRAM, 0);

	new_ring("no bytes");
	check("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
	for (int flags = 0; flags <= FORCE_ASYNC; flags += FORCE_ASYNC) {
		does("an empty socket", SQE(READV, flags, .fd = s[0], .addr = ADDR(&nothing), .len = 1), 0, 0);
		does("an unconnected socket", SQE(READV, flags, .fd = unconnected, .addr = ADDR(&nothing), .len = 1), 0, 0);
		does("one of TCP", SQE(READV, flags, .fd = tcp, .addr = ADDR(&nothing), .len = 1), 0, 0);
		/* RWF_NOWAIT, RWF_APPEND and the like, which no socket looks at. */
		for (int rw_flags = 0; rw_flags <= 0x20; rw_flags += 8) {
			struct sqe write = SQE(WRITEV, flags, .fd = udp, .addr = ADDR(&nothing), .len = 1, .op_flags = rw_flags);

			does("a write to nobody", write, -EDESTADDRREQ, 0);
		}
	}
	close(s[0]);
	close(s[1]);
	close(unconnected);
	close(tcp);
	close(udp);
}

int main(void)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	multishot_read("multishot read", 0);
	multishot_read("multishot read by a worker", FORCE_ASYNC);
	setup_flags();
	shut_down();
	registered_memory();
	polls("polls", 0);
	polls("polls of registered files", FIXED_FILE);
	cancelled_buffers();
	lengths_of_sends();
	link_timers();
	refusals();
	polled_ring("a polled ring", 0);
	polled_ring("a polled ring, deferred", SETUP_DEFER);
	polled_ring("a polled ring that begins disabled", SETUP_DEFER | SETUP_R_DISABLED);
	times_of_waits();
	no_bytes();
	masks();
	return failures != 0;
}
