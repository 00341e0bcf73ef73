/*
 * Counts the instructions of an io_uring_enter(2) in user space, however busy the machine is: a
 * parent steps a child through it. `cargo xtask count` runs this.
 *
 *	count LIBRARY DIRECTORY [LISTING]
 *
 * LIBRARY is preloaded into the child, whose file is made in DIRECTORY. Prints a line for each
 * path: its name, and the instructions of its shortest round, the caller's own included. LISTING
 * gets the address of each instruction, to find out where they are: the name, the address in
 * LIBRARY, in hexadecimal (0 if it is elsewhere).
 *
 * The child's time stamp counter is the parent's to say: stepped through, each write would look
 * slow and go to a worker.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENTRIES = 64, LEN = 1024, WARM = 50, ROUNDS = 4, PHASE_FD = 9, CONNECTIONS = 32 };

/* The path that the child is in, from 1 (0: none), and the round. Shared by both processes. */
static volatile int *phase, *round_number;

/* The child ------------------------------------------------------------------------------------ */

static int ring, file, sockets[2], servers[CONNECTIONS], clients[CONNECTIONS];
static char buffer[LEN];
static struct io_uring_sqe *sqes;
static struct io_uring_cqe *cqes;
static unsigned *sq_tail, *sq_array, *cq_head, *cq_tail, sq_mask, cq_mask;

static void make_ring(void)
{
	struct io_uring_params p = { 0 };
	char *rings;

	ring = (int)syscall(SYS_io_uring_setup, ENTRIES, &p);
	if (ring < 0)
		err(1, "io_uring_setup");
	rings = mmap(0, p.sq_off.array + ENTRIES * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	sqes = mmap(0, ENTRIES * sizeof(*sqes), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	if (rings == MAP_FAILED || sqes == MAP_FAILED)
		err(1, "mmap of the ring");
	sq_tail = (unsigned *)(rings + p.sq_off.tail);
	sq_mask = *(unsigned *)(rings + p.sq_off.ring_mask);
	sq_array = (unsigned *)(rings + p.sq_off.array);
	cq_head = (unsigned *)(rings + p.cq_off.head);
	cq_tail = (unsigned *)(rings + p.cq_off.tail);
	cq_mask = *(unsigned *)(rings + p.cq_off.ring_mask);
	cqes = (struct io_uring_cqe *)(rings + p.cq_off.cqes);
}

static void push(struct io_uring_sqe sqe)
{
	unsigned tail = *sq_tail;

	sqes[tail & sq_mask] = sqe;
	sq_array[tail & sq_mask] = tail & sq_mask;
	__atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
}

static void submit_and_wait(unsigned to_submit, unsigned min_complete)
{
	if (syscall(SYS_io_uring_enter, ring, to_submit, min_complete, IORING_ENTER_GETEVENTS, 0, 0) != (long)to_submit)
		err(1, "io_uring_enter");
}

/* Takes `n` CQEs, all there are, and looks at each result. */
static void reap(unsigned n, int result)
{
	unsigned head = *cq_head;

	for (unsigned i = 0; i < n; i++)
		if (cqes[head++ & cq_mask].res != result)
			errx(1, "path %d: result %d", *phase, cqes[(head - 1) & cq_mask].res);
	if (head != __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE))
		errx(1, "path %d: more CQEs than SQEs", *phase);
	__atomic_store_n(cq_head, head, __ATOMIC_RELEASE);
}

static void enter(unsigned n, int result)
{
	submit_and_wait(n, n);
	reap(n, result);
}

static struct io_uring_sqe transfer(int opcode, int fd, unsigned len)
{
	return (struct io_uring_sqe){ .opcode = opcode, .fd = fd, .addr = (uintptr_t)buffer, .len = len };
}

static void nops(unsigned n, unsigned char flags)
{
	for (unsigned i = 0; i < n; i++)
		push((struct io_uring_sqe){ .opcode = IORING_OP_NOP, .flags = i + 1 < n ? flags : 0 });
	enter(n, 0);
}

static void files(unsigned n, int opcode)
{
	for (unsigned i = 0; i < n; i++)
		push(transfer(opcode, file, LEN));
	enter(n, LEN);
}

static void nop_1(void) { nops(1, 0); }
static void nop_8(void) { nops(8, 0); }
static void linked_8(void) { nops(8, IOSQE_IO_LINK); }
static void read_1(void) { files(1, IORING_OP_READ); }
static void read_8(void) { files(8, IORING_OP_READ); }
static void write_1(void) { files(1, IORING_OP_WRITE); }
static void write_8(void) { files(8, IORING_OP_WRITE); }

static void statx_8(void)
{
	static struct statx found[8];

	for (int i = 0; i < 8; i++)
		push((struct io_uring_sqe){ .opcode = IORING_OP_STATX, .fd = AT_FDCWD, .addr = (uintptr_t)"/", .len = STATX_BASIC_STATS, .off = (uintptr_t)&found[i] });
	enter(8, 0);
}

static void message(void)
{
	push(transfer(IORING_OP_SEND, sockets[0], 12));
	push(transfer(IORING_OP_RECV, sockets[1], 12));
	enter(2, 12);
}

static void connect_all(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(listener, (void *)&address, len) || listen(listener, CONNECTIONS) || getsockname(listener, (void *)&address, &len))
		err(1, "listen");
	for (int i = 0; i < CONNECTIONS; i++) {
		clients[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(clients[i], (void *)&address, len) || (servers[i] = accept(listener, 0, 0)) < 0)
			err(1, "connect");
	}
}

/* A round of an echo server: receives are armed, messages come, each is answered. */
static void echo(void)
{
	for (int i = 0; i < CONNECTIONS; i++)
		push(transfer(IORING_OP_RECV, servers[i], LEN));
	submit_and_wait(CONNECTIONS, 0);
	for (int i = 0; i < CONNECTIONS; i++)
		if (send(clients[i], buffer, 12, 0) != 12)
			err(1, "send");
	submit_and_wait(0, CONNECTIONS);
	reap(CONNECTIONS, 12);
	for (int i = 0; i < CONNECTIONS; i++)
		push(transfer(IORING_OP_SEND, servers[i], 12));
	enter(CONNECTIONS, 12);
	for (int i = 0; i < CONNECTIONS; i++)
		if (recv(clients[i], buffer, 12, 0) != 12)
			err(1, "recv");
}

static const struct {
	const char *name;
	void (*once)(void);
} paths[] = {
	{ "nop", nop_1 },   { "nop-8", nop_8 },     { "linked-nop-8", linked_8 }, { "read", read_1 },
	{ "read-8", read_8 }, { "write", write_1 }, { "write-8", write_8 },       { "send-recv", message },
	{ "echo-32", echo },   { "statx-8", statx_8 },
};
enum { PATHS = sizeof(paths) / sizeof(*paths) };

static int run_paths(const char *directory)
{
	if (chdir(directory) || (file = open(".", O_TMPFILE | O_RDWR, 0600)) < 0 || write(file, buffer, LEN) != LEN)
		err(1, "a file in %s", directory);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		err(1, "socketpair");
	connect_all();
	make_ring();
	for (int i = 0; i < PATHS; i++) {
		for (int n = 0; n < WARM; n++)
			paths[i].once();
		*phase = i + 1;
		__asm__ volatile("int3");
		for (*round_number = 0; *round_number < ROUNDS; ++*round_number)
			paths[i].once();
		*phase = 0;
	}
	return 0;
}

/* The parent ----------------------------------------------------------------------------------- */

static unsigned long library, library_end;

static void find_library(pid_t child, const char *path)
{
	char name[64], line[4600];
	unsigned long start, end;
	FILE *maps;

	snprintf(name, sizeof(name), "/proc/%d/maps", child);
	maps = fopen(name, "r");
	while (maps && fgets(line, sizeof(line), maps)) {
		line[strcspn(line, "\n")] = 0;
		if (strstr(line, path) && sscanf(line, "%lx-%lx", &start, &end) == 2) {
			library = library ? library : start;
			library_end = end;
		}
	}
	if (!library)
		errx(1, "%s is not in the child", path);
	fclose(maps);
}

/* If the next instruction is an RDTSC or RDTSCP: executes it. */
static int read_counter(pid_t child, struct user_regs_struct *regs)
{
	static uint64_t now = 1 << 20;
	long code = ptrace(PTRACE_PEEKTEXT, child, regs->rip, 0);
	int len = (code & 0xffff) == 0x310f ? 2 : (code & 0xffffff) == 0xf9010f ? 3 : 0;

	if (!len)
		return 0;
	now += 50;
	regs->rax = (uint32_t)now;
	regs->rdx = now >> 32;
	regs->rip += len;
	ptrace(PTRACE_SETREGS, child, 0, regs);
	return 1;
}

static void count(pid_t child, const char *path, FILE *listing)
{
	long counts[PATHS][ROUNDS] = { 0 };
	struct user_regs_struct regs;
	int status, is_stepping = 0;

	while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
		int signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
		int now = *phase, round = *round_number;

		if (!signal && now && is_stepping && round < ROUNDS) {
			ptrace(PTRACE_GETREGS, child, 0, &regs);
			do {
				int is_inside = regs.rip >= library && regs.rip < library_end;

				counts[now - 1][round]++;
				if (listing)
					fprintf(listing, "%s %llx\n", paths[now - 1].name, is_inside ? regs.rip - library : 0);
			} while (read_counter(child, &regs));
		} else if (!signal) {
			is_stepping = now;
			if (now == 1 && !library)
				find_library(child, path);
		}
		ptrace(is_stepping ? PTRACE_SINGLESTEP : PTRACE_CONT, child, 0, signal);
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		errx(1, "the child ended with status %#x", status);
	for (int i = 0; i < PATHS; i++) {
		long least = counts[i][0];

		for (int n = 1; n < ROUNDS; n++)
			least = counts[i][n] < least ? counts[i][n] : least;
		printf("%s %ld\n", paths[i].name, least);
	}
}

int main(int argc, char **argv)
{
	pid_t child;
	int shared;

	if (argc == 2) {
		phase = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, PHASE_FD, 0);
		round_number = phase + 1;
		return run_paths(argv[1]);
	}
	if (argc < 3)
		errx(2, "usage: count LIBRARY DIRECTORY [LISTING]");
	shared = memfd_create("phase", 0);
	if (ftruncate(shared, 4096) || dup2(shared, PHASE_FD) < 0)
		err(1, "shared memory");
	phase = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
	round_number = phase + 1;
	child = fork();
	if (!child) {
		setenv("LD_PRELOAD", argv[1], 1);
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execl("/proc/self/exe", argv[0], argv[2], (char *)0);
		err(1, "execl");
	}
	ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_EXITKILL);
	count(child, argv[1], argc > 3 ? fopen(argv[3], "w") : 0);
}
