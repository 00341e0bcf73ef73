/*
 * Requests of every family under a system call filter that denies some calls.
 *
 *   filters_ops WHEN ACTION CALL...
 *
 * WHEN: "main" installs the filter before the first ring, "start" before the program starts, as a
 * container's profile. ACTION: the errno of the denied calls. CALL: its name, or "exec" for
 * mprotect(2) with PROT_EXEC. Exit status 77: no ring.
 */
#include "robust_ring.h"
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { FSYNC = 3, WRITE_FIXED = 5, RECVMSG = 10, OPENAT = 18, CLOSE = 19, STATX = 21, SPLICE = 30, UNLINKAT = 36, FUTEX2_WAIT = 51, FUTEX2_WAKE = 52 };
/* FUTEX2_SIZE_U32 | FUTEX2_PRIVATE */
#define FUTEX2_FLAGS 130
enum { REGISTER_BUFFERS = 0, REGISTER_FILES = 2, UNREGISTER_FILES = 3, REGISTER_EVENTFD = 4 };

/* Files that the program makes before its filter. */
enum { PIPE_READER = 60, PIPE_WRITER, EVENT };

#define CALL(name) { #name, SYS_##name }
static const struct { const char *name; int number; } known[] = {
	CALL(clock_gettime), CALL(clone), CALL(epoll_create1), CALL(epoll_ctl), CALL(epoll_pwait), CALL(epoll_pwait2),
	CALL(eventfd2), CALL(fcntl), CALL(fstat), CALL(futex), CALL(getpid), CALL(getrusage), CALL(io_getevents), CALL(io_setup),
	CALL(io_submit), CALL(madvise), CALL(membarrier), CALL(memfd_create), CALL(mremap), CALL(openat2), CALL(pidfd_open),
	CALL(pipe), CALL(pipe2), CALL(poll), CALL(ppoll), CALL(prctl), CALL(preadv2), CALL(prlimit64), CALL(process_vm_readv),
	CALL(process_vm_writev), CALL(pwritev2), CALL(readlink), CALL(sched_getaffinity), CALL(sched_setaffinity),
	CALL(timer_create), CALL(timerfd_create), CALL(newfstatat),
};

static int number_of(const char *name)
{
	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i].name, name))
			return known[i].number;
	printf("%s: not a known call\n", name);
	exit(2);
}

static void deny(int errnum, int calls, char **names)
{
	struct sock_filter code[200];
	int n = 0;
	uint32_t action = SECCOMP_RET_ERRNO | errnum;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < calls; i++) {
		if (!strcmp(names[i], "exec")) {
			code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 4);
			code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2]));
			code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1);
			code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
			code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
			continue;
		}
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number_of(names[i]), 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog filter = { n, code };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
		perror("seccomp");
		exit(2);
	}
}

static void files(struct ring *r)
{
	char out[] = "0123456789", in[16] = { 0 };
	struct iovec iov[2] = { { in, 4 }, { in + 4, 6 } };
	int fd;

	section = "files";
	fd = run(r, SQE(.opcode = OPENAT, .fd = AT_FDCWD, .addr = ADDR("ops-file"), .op_flags = O_RDWR | O_CREAT | O_TRUNC, .len = 0600));
	is_true("opened", fd >= 0);
	check("written", run(r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(out), .len = 10)), 10);
	check("read", run(r, SQE(.opcode = READ, .fd = fd, .addr = ADDR(in), .len = 10)), 10);
	is_true("the bytes", !memcmp(in, out, 10));
	memset(in, 0, sizeof(in));
	check("readv", run(r, SQE(.opcode = READV, .fd = fd, .addr = ADDR(iov), .len = 2)), 10);
	is_true("the bytes", !memcmp(in, out, 10));
	check("read by a worker", run(r, SQE(.opcode = READ, .fd = fd, .addr = ADDR(in), .len = 10, .flags = FORCE_ASYNC)), 10);
	check("written by a worker", run(r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(out), .len = 10, .flags = FORCE_ASYNC)), 10);
	check("at the file position", run(r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(out), .len = 3, .off = -1)), 3);
	check("the position", lseek(fd, 0, SEEK_CUR), 3);
	check("to a bad address", run(r, SQE(.opcode = READ, .fd = fd, .addr = 8, .len = 10)), -EFAULT);
	check("from bad iovecs", run(r, SQE(.opcode = READV, .fd = fd, .addr = 8, .len = 2)), -EFAULT);
	check("fsync", run(r, SQE(.opcode = FSYNC, .fd = fd)), 0);
	check("closed", run(r, SQE(.opcode = CLOSE, .fd = fd)), 0);
	check("a bad path", run(r, SQE(.opcode = OPENAT, .fd = AT_FDCWD, .addr = 8)), -EFAULT);
	check("unlinked", run(r, SQE(.opcode = UNLINKAT, .fd = AT_FDCWD, .addr = ADDR("ops-file"))), 0);
}

static void streams(struct ring *r)
{
	int p[2] = { PIPE_READER, PIPE_WRITER }, s[2];
	char c = 0, out[8] = "message";
	struct iovec iov = { out, 8 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	section = "streams";
	socketpair(AF_UNIX, SOCK_STREAM, 0, s);
	submit(r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&c), .len = 1));
	check("nothing yet", waiting(r), 0);
	write(p[1], "x", 1);
	check("read from a pipe", next(r), 1);
	submit(r, SQE(.opcode = POLL_ADD, .fd = p[0], .op_flags = POLLIN));
	write(p[1], "x", 1);
	check("polled", next(r) & POLLIN, POLLIN);
	submit(r, SQE(.opcode = RECV, .fd = s[0], .addr = ADDR(&c), .len = 1));
	check("sent", run(r, SQE(.opcode = SEND, .fd = s[1], .addr = ADDR("y"), .len = 1)) >= 0, 1);
	is_true("both", next(r) >= 0);
	check("sendmsg", run(r, SQE(.opcode = SENDMSG, .fd = s[1], .addr = ADDR(&m), .len = 1)), 8);
	check("recvmsg", run(r, SQE(.opcode = RECVMSG, .fd = s[0], .addr = ADDR(&m), .len = 1)), 8);
	submit(r, SQE(.opcode = RECV, .fd = s[0], .addr = ADDR(&c), .len = 1, .flags = FORCE_ASYNC));
	sleep_ms(5);
	write(s[1], "z", 1);
	check("received by a worker", next(r), 1);
	submit(r, SQE(.opcode = RECV, .fd = s[0], .addr = ADDR(&c), .len = 1, .user_data = 5));
	submit(r, SQE(.opcode = ASYNC_CANCEL, .addr = 5, .user_data = 6));
	is_true("cancelled", next(r) <= 0);
	is_true("cancelled", next(r) <= 0);
	close(s[0]), close(s[1]);
}

static void timers(struct ring *r)
{
	uint64_t ms[2] = { 0, 3000000 }, long_time[2] = { 100, 0 };

	section = "timers";
	check("a timeout", run(r, SQE(.opcode = TIMEOUT, .addr = ADDR(ms), .len = 1)), -ETIME);
	check("a bad timespec", run(r, SQE(.opcode = TIMEOUT, .addr = 8, .len = 1)), -EFAULT);
	submit(r, SQE(.opcode = TIMEOUT, .addr = ADDR(long_time), .len = 1, .off = 1));
	submit(r, SQE(.opcode = NOP));
	check("the NOP", next(r), 0);
	check("a count", next(r), 0);
	check("a wait with a limit", wait_ms(r, 1, 3), -ETIME);
}

static void resources(struct ring *r)
{
	static char buffer[8192];
	struct iovec iov = { buffer, sizeof(buffer) }, bad = { (void *)8, 8192 };
	int fd = open("ops-fixed", O_RDWR | O_CREAT | O_TRUNC, 0600), event = EVENT;
	uint64_t count = 0;

	section = "resources";
	check("bad buffers", register_call(r->fd, REGISTER_BUFFERS, &bad, 1), -EFAULT);
	check("buffers", register_call(r->fd, REGISTER_BUFFERS, &iov, 1), 0);
	check("files", register_call(r->fd, REGISTER_FILES, &fd, 1), 0);
	check("written", run(r, SQE(.opcode = WRITE_FIXED, .fd = 0, .addr = ADDR(buffer), .len = 4096, .flags = FIXED_FILE)), 4096);
	check("read", run(r, SQE(.opcode = READ_FIXED, .fd = 0, .addr = ADDR(buffer + 4096), .len = 4096, .flags = FIXED_FILE)), 4096);
	check("files unregistered", register_call(r->fd, UNREGISTER_FILES, 0, 0), 0);
	check("an eventfd", register_call(r->fd, REGISTER_EVENTFD, &event, 1), 0);
	check("a NOP", run(r, SQE(.opcode = NOP)), 0);
	check("the eventfd", read(event, &count, 8), 8);
	close(fd);
	unlink("ops-fixed");
}

static void futexes(struct ring *r)
{
	static uint32_t word = 1;

	section = "futexes";
	submit(r, SQE(.opcode = FUTEX2_WAIT, .fd = FUTEX2_FLAGS, .addr = ADDR(&word), .off = 1, .addr3 = ~0u));
	check("woken", run(r, SQE(.opcode = FUTEX2_WAKE, .fd = FUTEX2_FLAGS, .addr = ADDR(&word), .off = 1, .addr3 = ~0u)) >= 0, 1);
	is_true("and the waiter", next(r) >= 0);
}

/* O_DIRECT, where the file system has it. */
static void direct(struct ring *r)
{
	static char buffer[4096] __attribute__((aligned(4096)));
	int fd = open("ops-direct", O_RDWR | O_CREAT | O_DIRECT, 0600);

	section = "direct";
	if (fd >= 0) {
		check("written", run(r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(buffer), .len = 4096)), 4096);
		check("read", run(r, SQE(.opcode = READ, .fd = fd, .addr = ADDR(buffer), .len = 4096)), 4096);
		close(fd);
	}
	unlink("ops-direct");
}

int main(int argc, char **argv)
{
	struct ring r;
	int p[2], err, is_denied_early = argc > 1 && !strcmp(argv[1], "start");

	block_if_asked();
	if (fcntl(EVENT, F_GETFD) < 0) {
		pipe(p);
		dup2(p[0], PIPE_READER), dup2(p[1], PIPE_WRITER), dup2(eventfd(0, EFD_NONBLOCK), EVENT);
	}
	if (argc > 3) {
		/* Its filter stays. */
		unsetenv("BLOCK_IO_URING");
		deny(atoi(argv[2]), argc - 3, argv + 3);
		if (is_denied_early) {
			execl("/proc/self/exe", argv[0], NULL);
			return 2;
		}
	}
	section = "setup";
	err = try_ring(&r, 8, 0, 0);
	if (err) {
		printf("no ring: %s\n", strerror(-err));
		return 77;
	}
	works(&r);
	files(&r);
	streams(&r);
	timers(&r);
	resources(&r);
	futexes(&r);
	direct(&r);
	works(&r);
	end_ring(&r);
	return finish();
}
