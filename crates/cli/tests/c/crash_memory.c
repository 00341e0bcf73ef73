/*
 * Every call by which the engine asks for address space fails once, and from it on, in a run of
 * its own: each request gets its CQE, with the right result, ENOMEM or EAGAIN;
 * no crash, no hang. A supervisor answers these calls (seccomp's notifications); which are the
 * engine's is told by their address. On the kernel's ring there are none. Then the process itself
 * is given little.
 *
 * arguments: [first [last]], the calls to fail
 */
#include "robust_ring.h"
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { FSYNC = 3, OPENAT = 18, CLOSE = 19, FILES_UPDATE = 20, STATX = 21, MSG_RING = 40, READ_MULTISHOT = 49, FUTEX_WAIT_OP = 51 };
enum { REGISTER_BUFFERS = 0, UNREGISTER_BUFFERS = 1, REGISTER_FILES = 2, UNREGISTER_FILES = 3, REGISTER_EVENTFD = 4, REGISTER_PBUF_RING = 22, SYNC_CANCEL = 24 };
#define SETUP_URINGLET (1u << 31)
enum { MANY = 300 };

/* The supervisor ------------------------------------------------------------------------------ */

static uint64_t code_from, code_to;

static void find_engine(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], rights[8];
	unsigned long start, end;

	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "liburinglet") && sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3 && rights[2] == 'x') {
			code_from = start;
			code_to = end;
		}
	fclose(maps);
}

/* Notifications of the engine's calls for address space. Returns the listener. */
static int notify(void)
{
	enum { IP = offsetof(struct seccomp_data, instruction_pointer) };
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 6),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, IP + 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, code_from >> 32, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, IP),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)code_from, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)code_to, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
}

/* Lets the calls pass, but for the `nth` and, if asked, those after it. Returns their number. */
static int supervise(int listener, int nth, int and_on)
{
	struct pollfd pfd = { listener, POLLIN };
	int n = 0;

	for (;;) {
		struct seccomp_notif call = { 0 };
		struct seccomp_notif_resp answer = { 0 };

		if (poll(&pfd, 1, -1) < 0 || pfd.revents & POLLHUP)
			return n;
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
			continue;
		n++;
		answer.id = call.id;
		if (n == nth || (and_on && n > nth))
			answer.error = -ENOMEM;
		else
			answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
}

/* The work ------------------------------------------------------------------------------------ */

static int is_refusal(int res)
{
	return res == -ENOMEM || res == -EAGAIN;
}

/* Submits what was pushed. Fewer if there is no memory: these are withdrawn. */
static int submitted(struct ring *r, int n)
{
	int done = 0;

	for (int tries = 0; done < n && tries < 5; tries++) {
		int res = enter_call(r->fd, n - done, 0, 0, 0, 0);

		if (res > 0)
			done += res;
		else
			is_true("a submission is refused for want of memory", is_refusal(res) || res == -EBUSY);
	}
	__atomic_store_n(r->sq_tail, *r->sq_tail - (n - done), __ATOMIC_RELEASE);
	check("what was not taken is still there", *r->sq_tail - *r->sq_head, 0);
	return done;
}

/* The next CQE, at once or in a while. */
static int take_one(struct ring *r, struct cqe *cqe)
{
	uint64_t end = now_us() + 20000000;

	while (!waiting(r) && now_us() < end) {
		int res = wait_ms(r, 1, 100);

		if (is_refusal(res))
			sleep_ms(1);
	}
	if (!waiting(r)) {
		is_true("a CQE comes", 0);
		printf("hangs\n");
		fflush(stdout);
		_exit(2);
	}
	*cqe = take(r);
	return cqe->res;
}

static int counts;

/* One request: its result is `want`, if it has been submitted and has not been refused. */
#define one(r, want, ...) one_at(__LINE__, r, want, SQE(__VA_ARGS__))

static int one_at(int line, struct ring *r, int want, struct sqe sqe)
{
	struct cqe cqe;

	sqe.user_data = ++counts;
	push(r, sqe);
	if (!submitted(r, 1))
		return -EAGAIN;
	take_one(r, &cqe);
	check_at(line, "user_data", cqe.user_data, counts);
	if (!is_refusal(cqe.res))
		check_at(line, "its result", cqe.res, want);
	return cqe.res;
}

/* `n` requests that wait for a pipe, and are cancelled or completed by a byte each. */
static void many_polls(struct ring *r, int n, int cancels)
{
	int p[2], in = 0, seen = 0, cancelled = 0;
	struct cqe cqe;

	pipe(p);
	while (in < n) {
		int batch = n - in < 8 ? n - in : 8;

		for (int i = 0; i < batch; i++)
			push(r, SQE(.opcode = POLL_ADD, .fd = p[0], .op_flags = POLLIN, .user_data = 7));
		int done = submitted(r, batch);
		in += done;
		if (done < batch)
			break;
	}
	if (cancels) {
		push(r, SQE(.opcode = ASYNC_CANCEL, .fd = -1, .op_flags = CANCEL_ANY | 1, .user_data = 8));
		cancelled = submitted(r, 1);
	}
	if (!cancelled)
		write(p[1], "x", 1);
	for (int i = 0; i < in + cancelled; i++) {
		take_one(r, &cqe);
		if (cqe.user_data == 7) {
			seen++;
			is_true("a poll's result", cqe.res == POLLIN || cqe.res == -ECANCELED || is_refusal(cqe.res));
			/* A cancel that failed for want of memory. */
		} else if (cqe.res < 0) {
			write(p[1], "x", 1);
		}
	}
	check("polls completed", seen, in);
	check("no other", waiting(r), 0);
	close(p[0]);
	close(p[1]);
}

static void chains(struct ring *r)
{
	uint64_t ts[2] = { 0, 1000000 };
	struct cqe cqe;
	int p[2], in;

	pipe(p);
	push(r, SQE(.opcode = POLL_ADD, .fd = p[0], .op_flags = POLLIN, .flags = LINK));
	push(r, SQE(.opcode = LINK_TIMEOUT, .addr = ADDR(ts), .len = 1, .flags = LINK));
	for (int i = 0; i < 5; i++)
		push(r, SQE(.opcode = NOP, .flags = i < 4 ? LINK : 0));
	in = submitted(r, 7);
	for (int i = 0; i < in; i++) {
		take_one(r, &cqe);
		is_true("a result in a chain", cqe.res == -ECANCELED || cqe.res == -ETIME || cqe.res == 0 || is_refusal(cqe.res));
		/* The head of a chain that was cut off. */
		if (in < 7)
			write(p[1], "x", 1);
	}
	push(r, SQE(.opcode = NOP, .flags = DRAIN));
	push(r, SQE(.opcode = NOP, .flags = DRAIN));
	in = submitted(r, 2);
	while (in--)
		take_one(r, &cqe);
	close(p[0]);
	close(p[1]);
}

static void files_and_buffers(struct ring *r, int direct)
{
	static char memory[1 << 16] __attribute__((aligned(4096)));
	static struct { uint64_t addr; uint32_t len; uint16_t bid, tail; } bufs[16] __attribute__((aligned(4096)));
	struct { uint64_t addr; uint32_t entries; uint16_t group, flags; uint64_t resv[3]; } pbuf = { ADDR(bufs), 16, 3 };
	struct iovec { void *base; size_t len; } iov[4] = { { memory, 4096 }, { memory + 4096, 4096 }, { memory, 100 }, { memory, 65536 } };
	static int numbers[1000];
	int p[2], file = open("data", O_RDWR | O_CREAT | O_TRUNC | direct, 0600), res;
	int plain = open("data", O_RDWR);

	pipe(p);
	memset(memory, 'm', sizeof(memory));
	check("the file", pwrite(file < 0 ? plain : file, memory, 65536, 0), 65536);
	one(r, 4096, .opcode = READ, .fd = file < 0 ? plain : file, .addr = ADDR(memory), .len = 4096);
	one(r, 4096, .opcode = READ, .fd = plain, .addr = ADDR(memory), .len = 4096, .flags = FORCE_ASYNC);
	one(r, 4096, .opcode = READV, .fd = plain, .addr = ADDR(iov), .len = 1);
	one(r, 8292, .opcode = READV, .fd = plain, .addr = ADDR(iov), .len = 3, .flags = FORCE_ASYNC);
	one(r, 4096, .opcode = WRITE, .fd = plain, .addr = ADDR(memory), .len = 4096);
	one(r, 0, .opcode = FSYNC, .fd = plain);
	res = register_call(r->fd, REGISTER_BUFFERS, iov, 4);
	is_true("buffers", res == 0 || is_refusal(res));
	if (res == 0) {
		one(r, 100, .opcode = READ_FIXED, .fd = plain, .addr = ADDR(memory), .len = 100, .buf_index = 2);
		check("no buffers", register_call(r->fd, UNREGISTER_BUFFERS, 0, 0), 0);
	}
	for (int i = 0; i < 1000; i++)
		numbers[i] = i < 5 ? plain : -1;
	res = register_call(r->fd, REGISTER_FILES, numbers, 1000);
	is_true("files", res == 0 || is_refusal(res));
	if (res == 0) {
		one(r, 100, .opcode = READ, .fd = 3, .addr = ADDR(memory), .len = 100, .flags = FIXED_FILE);
		one(r, 1, .opcode = FILES_UPDATE, .addr = ADDR(numbers), .len = 1, .off = 7);
		check("no files", register_call(r->fd, UNREGISTER_FILES, 0, 0), 0);
	}
	memset(bufs, 0, sizeof(bufs));
	res = register_call(r->fd, REGISTER_PBUF_RING, &pbuf, 1);
	is_true("a buffer ring", res == 0 || is_refusal(res));
	if (res == 0) {
		bufs[0].addr = ADDR(memory);
		bufs[0].len = 10;
		__atomic_store_n(&bufs[0].tail, 1, __ATOMIC_RELEASE);
		write(p[1], "0123456789", 10);
		one(r, 10, .opcode = READ, .fd = p[0], .len = 10, .flags = BUFFER_SELECT, .buf_index = 3);
	}
	write(p[1], "x", 1);
	close(file);
	close(plain);
	close(p[0]);
	close(p[1]);
}

static void kinds(struct ring *r)
{
	uint64_t ts[2] = { 0, 1000000 };
	static char statx_buf[256], c;
	int pair[2];
	struct cqe cqe;

	one(r, 0, .opcode = NOP);
	one(r, -ETIME, .opcode = TIMEOUT, .addr = ADDR(ts), .len = 1);
	int fd = one(r, 0, .opcode = STATX, .fd = AT_FDCWD, .addr = ADDR("/"), .off = ADDR(statx_buf), .len = 0xfff);
	one(r, -ENOENT, .opcode = OPENAT, .fd = AT_FDCWD, .addr = ADDR("/no/such/file"), .flags = FORCE_ASYNC);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	one(r, 1, .opcode = SEND, .fd = pair[0], .addr = ADDR("y"), .len = 1);
	one(r, 1, .opcode = RECV, .fd = pair[1], .addr = ADDR(&c), .len = 1, .flags = FORCE_ASYNC);
	push(r, SQE(.opcode = RECV, .fd = pair[1], .addr = ADDR(&c), .len = 1));
	if (submitted(r, 1)) {
		write(pair[0], "z", 1);
		is_true("a receive", take_one(r, &cqe) == 1 || is_refusal(cqe.res));
	}
	close(pair[0]);
	close(pair[1]);
	int event = eventfd(0, EFD_NONBLOCK);
	int res = register_call(r->fd, REGISTER_EVENTFD, &event, 1);
	is_true("an eventfd", res == 0 || is_refusal(res));
	one(r, 0, .opcode = NOP);
	close(event);
}

/* More CQEs than the CQ has room for. */
static void overflow(struct ring *r)
{
	struct cqe cqe;
	int in = 0;

	for (int i = 0; i < 30; i++) {
		push(r, SQE(.opcode = NOP));
		push(r, SQE(.opcode = POLL_ADD, .fd = 0, .op_flags = POLLOUT | POLLIN));
		int done = submitted(r, 2);
		in += done;
	}
	for (int i = 0; i < in; i++)
		take_one(r, &cqe);
	check("no other CQE", waiting(r), 0);
}

static void *enters(void *ring)
{
	one(ring, 0, .opcode = NOP);
	return 0;
}

static int all_work(int with_uringlet)
{
	struct ring r, second;
	pthread_t thread;

	for (int mode = 0; mode < 1 + with_uringlet; mode++) {
		int err = try_ring(&r, 16, mode ? SETUP_URINGLET : 0, 0);

		if (err) {
			check("no ring for want of memory", is_refusal(err) ? -ENOMEM : err, -ENOMEM);
			continue;
		}
		kinds(&r);
		many_polls(&r, 20, 0);
		many_polls(&r, MANY, 1);
		chains(&r);
		/* To end an AIO context takes the kernel some time. */
		files_and_buffers(&r, mode ? 0 : O_DIRECT);
		overflow(&r);
		err = try_ring(&second, 512, 0, 4096);
		if (!err) {
			many_polls(&second, MANY, 0);
			end_ring(&second);
		} else {
			is_true("no second ring for want of memory", is_refusal(err));
		}
		if (!pthread_create(&thread, 0, enters, &r))
			pthread_join(thread, 0);
		end_ring(&r);
	}
	return 0;
}

/* Returns the number of calls. */
static int run_with(int nth, int and_on)
{
	int numbers[2], number = -1, status, n = 0;
	char what[64];

	pipe(numbers);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(60);
		number = code_to ? notify() : -1;
		write(numbers[1], &number, sizeof(number));
		failures = 0;
		all_work(code_to != 0);
		fflush(stdout);
		_exit(failures > 0);
	}
	close(numbers[1]);
	read(numbers[0], &number, sizeof(number));
	if (number >= 0) {
		int pidfd = syscall(SYS_pidfd_open, pid, 0);
		int listener = syscall(SYS_pidfd_getfd, pidfd, number, 0);

		n = supervise(listener, nth, and_on);
		close(listener);
		close(pidfd);
	}
	close(numbers[0]);
	waitpid(pid, &status, 0);
	sprintf(what, "call %d fails%s", nth, and_on ? ", and all after it" : "");
	check(what, status, 0);
	return n;
}

/* `ulimit -v`: so many bytes more than the process has. */
static void run_limited(size_t more)
{
	int status;
	char what[64];

	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		unsigned long pages = 0;
		FILE *statm = fopen("/proc/self/statm", "r");

		alarm(60);
		fscanf(statm, "%lu", &pages);
		fclose(statm);
		failures = 0;
		setrlimit(RLIMIT_AS, &(struct rlimit){ pages * 4096 + more, RLIM_INFINITY });
		all_work(code_to != 0);
		fflush(stdout);
		_exit(failures > 0);
	}
	waitpid(pid, &status, 0);
	sprintf(what, "with %zu KiB of address space", more >> 10);
	check(what, status, 0);
}

int main(int argc, char **argv)
{
	int first = argc > 1 ? atoi(argv[1]) : 1, last = argc > 2 ? atoi(argv[2]) : 100000;

	block_if_asked();
	section = "no memory";
	find_engine();
	int n = run_with(0, 0);
	if (code_to)
		is_true("calls of the engine are seen", n > 10);
	for (int and_on = 0; and_on < 2; and_on++)
		for (int i = first; i <= last && run_with(i, and_on) >= i; i++)
			;
	/* The engine's table of descriptor numbers takes 16 MiB. */
	for (size_t more = 0; more < 22 << 20 && argc < 2; more += more < 15 << 20 || more > 18 << 20 ? 1 << 20 : 96 << 10)
		run_limited(more);
	printf("%d calls\n", n);
	return finish();
}
