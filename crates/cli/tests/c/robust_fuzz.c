/*
 * Random calls and SQEs, each in its own process: robust_fuzz FIRST COUNT prints a line a case,
 * "number what => answer". An answer is an errno, "ok", or the fate of the process. The same number
 * is the same case everywhere, so that the answers of two rings can be compared. With
 * FUZZ_TARGET=sqe all cases are SQEs, with FUZZ_TARGET=calls none is.
 */
#include "robust_ring.h"
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#define ROOM 65536
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define ONE_OF(...) ({ static const uint64_t list[] = { __VA_ARGS__ }; list[rnd() % COUNT(list)]; })

static uint64_t state;
static char *room;
static char line[512];
static int line_end;
static int fds[16], nr_fds, wait_for_ms;
static struct ring r;

static uint64_t rnd(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static int once_in(int n)
{
	return rnd() % n == 0;
}

static void say(const char *format, ...)
{
	va_list args;

	__builtin_va_start(args, format);
	line_end += vsnprintf(line + line_end, sizeof(line) - line_end, format, args);
	__builtin_va_end(args);
}

static void answer(long res)
{
	if (res < 0)
		say(" => %ld", res);
	else
		say(" => ok");
}

/* Memory that calls may find behind an address: another content every 512 bytes. */
enum { ZEROS, GARBAGE, PATH, NO_PATH, DIR_PATH, NEW_PATH, IOVECS, BAD_IOVECS, LONG_IOVECS, MSG, BAD_MSG, SHORT_TS, BAD_TS, UNIX, INET, HOW, FDS, THINGS };

static void *thing(int n)
{
	return room + n * 512;
}

static void fill_room(void)
{
	struct iovec { void *base; size_t len; } *iov;
	struct msghdr *msg;
	struct sockaddr_un *un = thing(UNIX);
	struct sockaddr_in *in = thing(INET);

	memset(room, 0, THINGS * 512);
	for (int i = 0; i < 64; i++)
		((uint64_t *)thing(GARBAGE))[i] = rnd();
	strcpy(thing(PATH), "file");
	strcpy(thing(NO_PATH), "none/such");
	strcpy(thing(DIR_PATH), "dir");
	strcpy(thing(NEW_PATH), "new");
	iov = thing(IOVECS);
	for (int i = 0; i < 8; i++)
		iov[i] = (struct iovec){ room + 32768 + i * 100, 100 };
	iov = thing(BAD_IOVECS);
	for (int i = 0; i < 8; i++)
		iov[i] = (struct iovec){ (void *)(i % 2 ? 8ul : -4096ul), 100 };
	iov = thing(LONG_IOVECS);
	for (int i = 0; i < 8; i++)
		iov[i] = (struct iovec){ room + 32768, i ? ~0ul >> 1 : 10 };
	msg = thing(MSG);
	*msg = (struct msghdr){ .msg_iov = thing(IOVECS), .msg_iovlen = 2 };
	msg = thing(BAD_MSG);
	*msg = (struct msghdr){ .msg_iov = (void *)8, .msg_iovlen = 2, .msg_name = (void *)16, .msg_namelen = 5 };
	((uint64_t *)thing(SHORT_TS))[1] = 1000000;
	((int64_t *)thing(BAD_TS))[0] = -1;
	((uint64_t *)thing(BAD_TS))[1] = 2000000000;
	*un = (struct sockaddr_un){ AF_UNIX, "new" };
	*in = (struct sockaddr_in){ AF_INET, htons(1), { htonl(INADDR_LOOPBACK) } };
	((uint64_t *)thing(HOW))[0] = O_RDWR;
	for (int i = 0; i < 16; i++)
		((int *)thing(FDS))[i] = i < nr_fds ? fds[i] : -1;
}

/* An address: valid, invalid, or near the end of a mapping. */
static uint64_t address(void)
{
	uint64_t at;

	switch (rnd() % 12) {
	case 0: at = 0; break;
	case 1: at = ONE_OF(1, 8, 4096, 0xfff, 0xdead0000); break;
	case 2: at = ONE_OF(0xffff800000000000, 0xffffffff80000000, ~0ull, ~7ull, 0x800000000000, 0x7fffffffffff, 0x8000000000000000); break;
	case 3: at = ADDR(room) + ROOM + rnd() % 4096; break; /* mapped, but not readable */
	case 4: at = ADDR(room) + ROOM - ONE_OF(1, 3, 8, 15, 16, 23, 64, 100); break;
	case 5: at = ADDR(room) + ROOM + 4096 + 512 * (rnd() % 4); break; /* read-only */
	default:
		at = rnd() % THINGS;
		say(" thing%d", (int)at);
		return ADDR(thing(at));
	}
	say(" %llx", (long long)(at - ADDR(room) < 2 * ROOM ? at - ADDR(room) : at));
	return at;
}

static uint32_t length(void)
{
	uint32_t n = once_in(10) ? rnd() : ONE_OF(0, 1, 2, 3, 8, 16, 24, 56, 100, 128, 4096, 65536, 0x7fffffff, 0x80000000, 0xffffffff);

	say(" len=%x", n);
	return n;
}

static int some_fd(void)
{
	int which = rnd() % (nr_fds + 6);
	int fd = which < nr_fds ? fds[which] : (int[]){ -1, -100, 400, 0x7fffffff, 0x80000000, 5000000 }[which - nr_fds];

	say(" fd%d", which);
	return fd;
}

static void open_files(void)
{
	int pair[2];
	struct sockaddr_un un = { AF_UNIX };

	unlink("new");
	rmdir("new");
	rmdir("dir");
	mkdir("dir", 0700);
	nr_fds = 0;
	fds[nr_fds++] = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	write(fds[0], "0123456789", 10);
	fds[nr_fds++] = open("file", O_RDONLY);
	fds[nr_fds++] = open("dir", O_RDONLY);
	pipe(pair);
	fds[nr_fds++] = pair[0];
	fds[nr_fds++] = pair[1];
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	fds[nr_fds++] = pair[0];
	write(pair[1], "hello", 5);
	fds[nr_fds++] = socket(AF_INET, SOCK_DGRAM, 0);
	fds[nr_fds++] = socket(AF_INET, SOCK_STREAM, 0);
	fds[nr_fds] = socket(AF_UNIX, SOCK_STREAM, 0);
	bind(fds[nr_fds], (void *)&un, 2);
	listen(fds[nr_fds++], 1);
	fds[nr_fds++] = eventfd(0, 0);
	fds[nr_fds++] = epoll_create1(0);
	fds[nr_fds++] = open("file", O_PATH);
	fds[nr_fds++] = open("/dev/null", O_RDWR);
}

static void fuzz_setup(void)
{
	struct params p = { 0 };
	uint32_t entries = once_in(4) ? rnd() >> (rnd() % 64) : ONE_OF(0, 1, 2, 3, 7, 8, 32768, 32769, 0x80000000, ~0u);
	int fd;

	for (int i = rnd() % 4; i > 0; i--)
		p.flags |= once_in(10) ? SETUP_CQE_MIXED : 1u << rnd() % 17;
	if (once_in(10))
		p.flags |= 1u << 21 + rnd() % 10;
	p.cq_entries = once_in(2) ? rnd() >> (32 + rnd() % 32) : ONE_OF(0, 1, 4, 16, 65536, 65537, ~0u);
	p.sq_thread_cpu = once_in(2) ? 0 : rnd();
	say("setup %x flags=%x cq=%x cpu=%x", entries, p.flags, p.cq_entries, p.sq_thread_cpu);
	p.wq_fd = once_in(2) ? r.fd : some_fd();
	say(" cq at");
	p.cq.user_addr = once_in(2) ? ADDR(room) : address();
	say(" sq at");
	p.sq.user_addr = once_in(2) ? ADDR(room) : address();
	if (once_in(12))
		p.resv[rnd() % 3] = 1;
	if (once_in(12))
		fd = setup_call(entries, (void *)address());
	else
		fd = setup_call(entries, &p);
	answer(fd);
	if (fd >= 0)
		say(" %u %u", p.sq_entries, p.cq_entries);
}

static void fuzz_register(void)
{
	/* Each operation of Linux 6.18 that the engine has (ops.rs compares). */
	static const uint8_t ops[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35 };
	unsigned op = once_in(20) ? rnd() | 64 : ops[rnd() % sizeof(ops)], n = once_in(2) ? 1 : ONE_OF(0, 2, 3, 4, 16, 17, 24, 32, 64, 128, 256, 257, 1u << 15, 1u << 20, ~0u);
	uint64_t arg;
	int with_garbage = once_in(3), fd;

	say("register %u n=%u", op, n);
	fd = once_in(10) ? some_fd() : op == 31 ? -1 : r.fd;
	/* Restrictions of tasks are newer than Linux 6.18. */
	if (op == 11 && fd == -1)
		fd = -100;
	arg = op == 30 && once_in(2) ? ADDR(thing(FDS)) : address();
	/* Addresses and sizes that decide first: most structures hold garbage. */
	if (with_garbage)
		for (int i = 0; i < 16; i++)
			((uint32_t *)thing(ZEROS))[i] = ONE_OF(0, 0, 0, 1, 2, 8, ~0u);
	if (op == 6 || op == 13 || op == 15 || op == 16)
		alarm(2);
	answer(register_call(fd, op, (void *)arg, n));
}

static void on_alarm(int signal)
{
}

static void fuzz_enter(void)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval timer = { { 0 }, { 0, 60000 } };
	uint64_t *arg = thing(ZEROS);
	unsigned submit = ONE_OF(0, 0, 1, 2, 100, ~0u), min = ONE_OF(0, 1, 2, 100, ~0u), flags = 0;
	size_t size = ONE_OF(0, 8, 8, 24, 24, 24, 16, 64, ~0ull);
	uint64_t at;
	int fd;

	for (int i = rnd() % 4; i > 0; i--)
		flags |= 1u << rnd() % 8;
	if (once_in(12))
		flags |= 256u << rnd() % 24;
	say("enter submit=%u min=%u flags=%x size=%zd", submit, min, flags, size);
	for (int i = rnd() % 4; i > 0; i--)
		push(&r, SQE(.opcode = NOP, .flags = once_in(8) ? 0x80 : 0));
	if (once_in(3)) {
		arg[0] = once_in(3) ? address() : 0;
		arg[1] = once_in(3) ? 8 : ONE_OF(0, 8ull | 1000ull << 32, 4);
		arg[2] = once_in(2) ? ADDR(thing(SHORT_TS)) : address();
		say(" in it:");
	}
	fd = once_in(10) ? some_fd() : r.fd;
	at = once_in(2) ? ADDR(arg) : once_in(2) ? 0 : address();
	sigaction(SIGALRM, &action, 0);
	setitimer(ITIMER_REAL, &timer, 0);
	answer(enter_call(fd, submit, min, flags, (void *)at, size));
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, 0);
	signal(SIGALRM, SIG_DFL);
}

/*
 * Ops that could reach beyond this process' own files and memory with random arguments get harmless
 * ones.
 */
static void tame(struct sqe *sqe)
{
	switch (sqe->opcode) {
	case 60: case 61: /* Too many iovecs are reported as too little memory there. */
		sqe->len &= 1023;
		/* fall through */
	case 1: case 2: case 4: case 5: case 22: case 23: /* transfers: no write streams, no protection information */
		sqe->file_index = sqe->addr3 = sqe->pad2 = 0;
		break;
	case 9: case 10: case 26: case 27: /* messages: no registered buffers, which came with Linux 7.2 */
		sqe->ioprio &= ~4;
		break;
	case 46: /* URING_CMD: commands to sockets, and one that is none */
		sqe->off = ONE_OF(0, 1, 2, 3, 77);
		sqe->addr = ONE_OF(1, 6, 99) | ONE_OF(2, 3, 4, 9, 30, 38, 999) << 32;
		sqe->addr3 = once_in(2) ? ADDR(thing(GARBAGE)) : address();
		sqe->file_index = ONE_OF(0, 2, 4, 8, ~0u);
		break;
	case 17: /* FALLOCATE: length */
		sqe->addr &= 0xffff;
		sqe->off &= 0xffff;
		break;
	case 25: /* MADVISE: only within the arena */
		if (sqe->addr - ADDR(room) < ROOM)
			sqe->len &= 4095;
		else if (sqe->addr > 0xffff && sqe->addr < 1ull << 47)
			sqe->addr = 8;
		sqe->off = 0;
		break;
	case 45: /* SOCKET: families that need no module */
		sqe->fd = ONE_OF(0, 1, 2, -1ull, 9999);
		sqe->off = ONE_OF(0, 1, 2, 77, 0x80001);
		sqe->len = ONE_OF(0, 6, 17, 99999);
		break;
	case 55: /* FTRUNCATE */
		sqe->off &= 0xffff;
		break;
	}
}

/* Whether the probe reports this opcode. */
static int has_op(unsigned op)
{
	static struct { uint8_t last, n; uint16_t resv; uint32_t resv2[3]; struct { uint8_t op, resv; uint16_t flags; uint32_t resv2; } ops[256]; } probe;

	memset(&probe, 0, sizeof(probe));
	check("probe", register_call(r.fd, 8, &probe, 256), 0);
	return op <= probe.last && probe.ops[op].flags & 1;
}

static void fuzz_sqe(void)
{
	struct sqe sqe = { .opcode = once_in(20) ? rnd() : rnd() % 64, .user_data = 1 };
	struct cqe cqe;
	int n, async;

	for (int i = rnd() % 3; i > 0; i--)
		sqe.flags |= 1 << rnd() % 7;
	if (once_in(20))
		sqe.flags |= 0x80;
	if (sqe.opcode == SEND || sqe.opcode == SENDMSG) /* Provided buffers for sending came with a later kernel feature. */
		sqe.flags &= ~BUFFER_SELECT;
	say("sqe op=%u flags=%x", sqe.opcode, sqe.flags);
	sqe.fd = sqe.flags & FIXED_FILE ? (int)ONE_OF(0, 1, 2, 3, 4, 99, ~0u) : some_fd();
	sqe.addr = address();
	sqe.len = length();
	sqe.off = once_in(3) ? address() : ONE_OF(0, 0, 1, 5, ~0ull, 1ull << 63, 1 << 20);
	sqe.op_flags = once_in(2) ? 0 : once_in(3) ? rnd() : 1u << rnd() % 32;
	sqe.ioprio = once_in(2) ? 0 : once_in(3) ? rnd() : 1u << rnd() % 16;
	sqe.buf_index = once_in(2) ? 0 : ONE_OF(1, 2, 7, 65535);
	sqe.file_index = once_in(2) ? 0 : ONE_OF(1, 2, 9, ~0u);
	sqe.personality = once_in(20);
	if (once_in(6))
		sqe.addr3 = once_in(2) ? 1 : address();
	if (once_in(20))
		sqe.pad2 = 1;
	tame(&sqe);
	say(" off=%llx op_flags=%x ioprio=%x buf=%u file=%u pers=%u", (long long)(sqe.off - ADDR(room) < 2 * ROOM ? 0 : sqe.off), sqe.op_flags, sqe.ioprio,
	    sqe.buf_index, sqe.file_index, sqe.personality);
	alarm(5);
	push(&r, sqe);
	n = enter_call(r.fd, 1, 0, 0, 0, 0);
	if (n != 1) {
		say(" => enter %d", n);
		return;
	}
	comes(&r, wait_for_ms);
	cqe = waiting(&r) ? take(&r) : (struct cqe){ .res = 0 };
	if (has_op(sqe.opcode) || cqe.res != -EINVAL)
		answer(cqe.res);
	else
		say(" => unknown");
	/* Whatever the call was, the ring still works. */
	while (waiting(&r))
		take(&r);
	push(&r, SQE(.opcode = ASYNC_CANCEL, .fd = -1, .op_flags = CANCEL_ANY | 1, .user_data = 2));
	push(&r, SQE(.opcode = NOP, .user_data = 3));
	enter_call(r.fd, 2, 2, 0, 0, 0);
	for (async = 0; async < 100; async++) {
		cqe = next_cqe(&r);
		if (cqe.res == NO_CQE || cqe.user_data == 3)
			break;
	}
	if (cqe.user_data != 3 || cqe.res)
		say(" and the ring is dead");
}

static void ring_with_resources(int sparse)
{
	uint64_t iovecs[4] = { ADDR(room) + 32768, 4096, ADDR(room) + 40960, 100 };
	int files[4] = { fds[0], fds[3], -1, fds[5] };

	r = new_ring_with(4, 0, 0);
	if (sparse)
		return;
	register_call(r.fd, 0, iovecs, 2);
	register_call(r.fd, 2, files, 4);
}

static int is_target(const char *name)
{
	const char *target = getenv("FUZZ_TARGET");

	return target && !strcmp(target, name);
}

static int calls_only(void)
{
	return is_target("calls");
}

static int sqes_only(void)
{
	return is_target("sqe");
}

static void one_case(unsigned long number)
{
	struct rlimit limit = { 1 << 20, 1 << 20 };

	state = number * 0x2545f4914f6cdd1dull;
	open_files();
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &limit);
	line_end = 0;
	say("%lu ", number);
	wait_for_ms = getenv("PATIENT") ? 1000 : 25;
	ring_with_resources(number / 10 % 2);
	fill_room();
	alarm(5);
	switch (number % (calls_only() ? 4 : 10) + (sqes_only() ? 10 : 0)) {
	case 0: fuzz_setup(); break;
	case 1: case 2: fuzz_register(); break;
	case 3: fuzz_enter(); break;
	default: fuzz_sqe(); break;
	}
}

int main(int argc, char **argv)
{
	unsigned long first = strtoul(argv[1], 0, 0), count = strtoul(argv[2], 0, 0);

	struct timespec limit = { 8, 0 };
	sigset_t child;

	block_if_asked();
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, 0);
	signal(SIGALRM, SIG_DFL);
	room = mmap((void *)0x10000000000, ROOM + 4096 + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	mprotect(room + ROOM, 4096, PROT_NONE);
	mprotect(room + ROOM + 4096, 4096, PROT_READ);
	char *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	r = new_ring(1);
	end_ring(&r);
	for (unsigned long number = first; number < first + count; number++) {
		int status = 0;
		pid_t pid;

		memset(shared, 0, 4096);
		sprintf(shared, "%lu ?", number);
		pid = fork();
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			one_case(number);
			strcpy(shared, line);
			_exit(0);
		}
		/* A case that waits with its alarm masked is ended too; a SIGCHLD may be of an earlier one. */
		while (!waitpid(pid, &status, WNOHANG))
			if (sigtimedwait(&child, 0, &limit) < 0)
				kill(pid, SIGKILL);
		printf("%s%s\n", shared, status == SIGALRM || status == SIGKILL ? " => hangs" : status ? " => crashes" : "");
	}
	return 0;
}
