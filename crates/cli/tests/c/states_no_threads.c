/*
 * No thread is to be had, as beyond RLIMIT_NPROC or a cgroup's pids.max: the engine's workers and
 * its watcher cannot start, at first or at all. A filter answers the program's clone() with EAGAIN;
 * the kernel's workers do not pass it.
 */
#include "robust_ring.h"
#include <linux/sched.h>
#include <sys/socket.h>

static void deny_threads(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		/* Processes may be made. */
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
		perror("seccomp");
		exit(77);
	}
}

static void reads_of(const char *what, struct ring *r, int reader, int writer, int flags)
{
	char bytes[4] = "";

	section = what;
	for (int i = 0; i < 3; i++) {
		/* Nothing is there yet, and this thread writes it: it must come back from the call. */
		submit(r, SQE(.opcode = READ, .fd = reader, .addr = ADDR(bytes + i), .len = 1, .flags = flags, .off = -1));
		check("written", write(writer, "x", 1), 1);
		check("read", next(r), 1);
	}
	check("bytes", strcmp(bytes, "xxx"), 0);
}

static void pipes_and_sockets(struct ring *r)
{
	int p[2], s[2];

	check("a pipe", pipe(p), 0);
	check("sockets", socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
	reads_of("armed", r, p[0], p[1], 0);
	reads_of("forced", r, p[0], p[1], FORCE_ASYNC);
	reads_of("a socket, forced", r, s[0], s[1], FORCE_ASYNC);
	/* A poll that no one is woken for but the waiter. */
	submit(r, SQE(.opcode = POLL_ADD, .fd = p[0], .op_flags = POLLIN));
	write(p[1], "x", 1);
	check("polled", next(r), POLLIN);
	for (int i = 0; i < 2; i++) {
		close(p[i]);
		close(s[i]);
	}
}

static void files(struct ring *r)
{
	char name[] = "/tmp/no-threads-XXXXXX", text[8] = "";
	int fd = mkstemp(name);
	struct { void *base; size_t len; } part = { "written", 7 };

	section = "files";
	check("a write", run(r, SQE(.opcode = 2, .fd = fd, .addr = ADDR(&part), .len = 1, .flags = FORCE_ASYNC)), 7);
	check("fsync", run(r, SQE(.opcode = 3, .fd = fd)), 0);
	check("a read", run(r, SQE(.opcode = READ, .fd = fd, .addr = ADDR(text), .len = 7, .flags = FORCE_ASYNC)), 7);
	check("its bytes", strcmp(text, "written"), 0);
	for (int i = 0; i < 8; i++)
		push(r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR("twice"), .len = 5, .off = 5 * i, .flags = FORCE_ASYNC | (i < 7 ? LINK : 0)));
	check("a chain", enter_call(r->fd, 8, 8, GETEVENTS, 0, 0), 8);
	for (int i = 0; i < 8; i++)
		check("of writes", next(r), 5);
	close(fd);
	unlink(name);
}

static void timers(struct ring *r)
{
	uint64_t ts[2] = { 0, 2000000 };
	int p[2];
	char byte;

	section = "timers";
	check("alone", run(r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1)), -ETIME);
	check("a pipe", pipe(p), 0);
	push(r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&byte), .len = 1, .flags = FORCE_ASYNC | LINK, .user_data = 1));
	push(r, SQE(.opcode = LINK_TIMEOUT, .addr = ADDR(ts), .len = 1, .user_data = 2));
	check("linked", enter_call(r->fd, 2, 0, 0, 0, 0), 2);
	for (int i = 0; i < 2; i++) {
		struct cqe cqe = next_cqe(r);

		if (cqe.user_data == 1)
			is_true("the read", cqe.res == -ECANCELED || cqe.res == -EINTR);
		else
			is_true("its time-out", cqe.res == -ETIME || cqe.res == -EALREADY);
	}
	close(p[0]);
	close(p[1]);
}

/* futex(2)'s newer flags: 32 bits, this process. */
enum { U32_PRIVATE = 2 | 128 };

/* Requests that sleep without an end and cannot be polled. */
static void sleepers(struct ring *r)
{
	static uint32_t word = 7;
	struct cqe cqe;

	section = "sleepers";
	submit(r, SQE(.opcode = 51, .fd = U32_PRIVATE, .addr = ADDR(&word), .off = 7, .addr3 = ~0u, .user_data = 1));
	/* Differs: without a thread the engine refuses. */
	if (waiting(r)) {
		check("refused", next(r), -EAGAIN);
		return;
	}
	check("woken", run(r, SQE(.opcode = 52, .fd = U32_PRIVATE, .addr = ADDR(&word), .off = 1, .addr3 = ~0u, .user_data = 2)) >= 0, 1);
	comes(r, 1000);
	next(r);
}

static void all(const char *what, struct ring *r)
{
	printf("%s\n", what);
	fflush(stdout);
	works(r);
	timers(r);
	pipes_and_sockets(r);
	files(r);
	sleepers(r);
	works(r);
}

/* Threads were to be had until now, then no more: what runs goes on. */
static void from_now_on(void)
{
	struct ring r = new_ring(16);
	int p[2];
	char bytes[8];

	section = "from now on";
	check("a pipe", pipe(p), 0);
	for (int i = 0; i < 4; i++)
		submit(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(bytes + i), .len = 1, .flags = FORCE_ASYNC, .user_data = i));
	deny_threads();
	for (int i = 4; i < 8; i++)
		submit(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(bytes + i), .len = 1, .flags = FORCE_ASYNC, .user_data = i));
	for (int i = 0; i < 8; i++) {
		check("written", write(p[1], "x", 1), 1);
		check("read", next(&r), 1);
	}
	close(p[0]);
	close(p[1]);
	all("a ring from before", &r);
	end_ring(&r);
}

static int never(void)
{
	deny_threads();
	struct ring r = new_ring(16);

	all("never a thread", &r);
	end_ring(&r);
	return failures;
}

int main(void)
{
	block_if_asked();
	check("without any from the start", in_child(never, 5), 0);
	from_now_on();
	return finish();
}
