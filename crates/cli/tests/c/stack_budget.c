/*
 * Raw system calls of threads that have ROOM bytes of stack left, the 128 below the stack pointer
 * included: as goroutines do. The first call of the process is one of them, others come from many
 * threads at once and from stacks all over the address space, with signals that are handled on
 * another stack. Below the room nothing is mapped.
 */
#include "robust_ring.h"
#include <sys/time.h>

enum { ROOM = 256, PAGE = 4096, THREADS = 8, STACKS = 24, ROUNDS = 25 };

/* Makes a call with the stack pointer at `top`: the number is a constant, or in a register. */
#define CALL_AT(name, load)                                                                        \
	__attribute__((noinline)) static long name(char *top, long nr, long a, long b, long c, long d, void *e, long f) \
	{                                                                                              \
		register long r10 asm("r10") = d, r9 asm("r9") = f, ret asm("rax") = nr;                  \
		register void *r8 asm("r8") = e;                                                           \
		asm volatile("mov %%rsp, %%r12\n\tmov %1, %%rsp\n\t" load "syscall\n\tmov %%r12, %%rsp\n\t" \
			     : "+r"(ret)                                                                       \
			     : "r"(top), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)                    \
			     : "rcx", "r11", "r12", "memory", "cc");                                          \
		return ret;                                                                                \
	}
CALL_AT(any_call, "")
CALL_AT(setup_at, "mov $425, %%eax\n\t")
CALL_AT(enter_at, "mov $426, %%eax\n\t")

static volatile int handled;
static int deepest;

static void counts(int signal)
{
	__atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
}

/* The lowest addresses of a stack, and what is not mapped below. */
static char *new_room(void)
{
	char *at = mmap(0, 128 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mprotect(at, PAGE, PROT_NONE);
	memset(at + PAGE, 0x5a, PAGE);
	return at + PAGE + ROOM;
}

/* How much of a room calls have used. */
static void note_depth(const char *top)
{
	int used = ROOM;

	while (used > 0 && top[-used] == 0x5a)
		used--;
	if (used > deepest)
		deepest = used;
}

static void calls(struct ring *r, char *top)
{
	uint64_t ts[2] = { 0, 1500000 }, arg[3] = { 0, 0, ADDR(ts) };

	push(r, SQE(.opcode = NOP));
	check("a NOP", enter_at(top, 426, r->fd, 1, 0, 0, 0, 0), 1);
	check("its result", next(r), 0);
	push(r, SQE(.opcode = NOP));
	check("a NOP by a number in a register", any_call(top, 426, r->fd, 1, 0, 0, 0, 0), 1);
	check("its result", next(r), 0);
	long res = enter_at(top, 426, r->fd, 0, 1, GETEVENTS | EXT_ARG, arg, sizeof(arg));
	is_true("a wait", res == -EINTR || res == -ETIME);
	check("a call that is the kernel's", any_call(top, SYS_getppid, 0, 0, 0, 0, 0, 0), getppid());
	check("a close", any_call(top, SYS_close, -1, 0, 0, 0, 0, 0), -EBADF);
}

static void *thread(void *unused)
{
	stack_t other = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
	struct ring r = new_ring(8);
	char *tops[STACKS];

	sigaltstack(&other, 0);
	for (int i = 0; i < STACKS; i++)
		tops[i] = new_room();
	for (int i = 0; i < ROUNDS * STACKS; i++) {
		calls(&r, tops[i % STACKS]);
		note_depth(tops[i % STACKS]);
	}
	end_ring(&r);
	return 0;
}

int main(void)
{
	struct sigaction action = { .sa_handler = counts, .sa_flags = SA_ONSTACK };
	struct itimerval timer = { { 0, 400 }, { 0, 400 } };
	pthread_t threads[THREADS];
	struct params p = { 0 };
	char *top = new_room();

	block_if_asked();
	section = "the first call";
	long fd = setup_at(top, 425, 8, ADDR(&p), 0, 0, 0, 0);
	if (fd == -ENOSYS || fd == -EPERM)
		return 77;
	is_true("a ring", fd >= 0);
	note_depth(top);
	section = "threads";
	sigaction(SIGALRM, &action, 0);
	setitimer(ITIMER_REAL, &timer, 0);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], 0, thread, 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], 0);
	is_true("signals came", handled > 20);
	printf("at most %d of %d bytes were used\n", deepest, ROOM);
	return finish();
}
