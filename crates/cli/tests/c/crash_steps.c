/*
 * A signal at every instruction of a call, one at a time: of the way into the engine, in it, and of
 * the way out. Its handler runs once, the call has its result, no register is lost. Handlers that
 * return, that use a ring, and that jump out of the call. A parent steps the program through its
 * calls; on the kernel's ring the way is one instruction.
 */
#include "robust_ring.h"
#include <setjmp.h>
#include <sys/ptrace.h>
#include <sys/user.h>

enum { MOST = 20000 };

/* The program ---------------------------------------------------------------------------------- */

static struct ring mine, others;
static volatile int handled;
static sigjmp_buf out;
static unsigned long lost;

/*
 * Calls with known values in all registers that a system call preserves. Returns the result;
 * `*lost` counts the registers that have changed.
 */
long constant_site(const long *args, unsigned long *lost);
long any_site(const long *args, unsigned long *lost);

#define SITE(name, load) \
	".globl " name "\n.type " name ", @function\n" name ":\n.cfi_startproc\n" \
	"push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\npush %rsi\n" \
	"mov %rdi, %rbx\nmov (%rbx), %rax\nmov 8(%rbx), %rdi\nmov 16(%rbx), %rsi\nmov 24(%rbx), %rdx\nmov 32(%rbx), %r10\nmov 40(%rbx), %r8\nmov 48(%rbx), %r9\n" \
	"mov $0x1111, %rbx\nmov $0x2222, %rbp\nmov $0x3333, %r12\nmov $0x4444, %r13\nmov $0x5555, %r14\nmov $0x6666, %r15\n" \
	"movq %rbx, %xmm0\nmovq %rbp, %xmm7\nmovq %r12, %xmm15\n" \
	"stc\n" load "syscall\n" \
	"pop %rcx\n" \
	"jc 1f\nincq (%rcx)\n1:" \
	"cmp $0x1111, %rbx\nje 1f\nincq (%rcx)\n1:" \
	"cmp $0x2222, %rbp\nje 1f\nincq (%rcx)\n1:" \
	"cmp $0x3333, %r12\nje 1f\nincq (%rcx)\n1:" \
	"cmp $0x4444, %r13\nje 1f\nincq (%rcx)\n1:" \
	"cmp $0x5555, %r14\nje 1f\nincq (%rcx)\n1:" \
	"cmp $0x6666, %r15\nje 1f\nincq (%rcx)\n1:" \
	"movq %xmm0, %r11\ncmp $0x1111, %r11\nje 1f\nincq (%rcx)\n1:" \
	"movq %xmm7, %r11\ncmp $0x2222, %r11\nje 1f\nincq (%rcx)\n1:" \
	"movq %xmm15, %r11\ncmp $0x3333, %r11\nje 1f\nincq (%rcx)\n1:" \
	"pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n" \
	".cfi_endproc\n.size " name ", . - " name "\n"

__asm__(".text\n" SITE("constant_site", "mov $426, %eax\n") SITE("any_site", ""));

static long by_libc(void)
{
	return negative(syscall(426, mine.fd, 1, 0, 0, 0, 0));
}

static long by_constant_site(void)
{
	long args[] = { 0, mine.fd, 1, 0, 0, 0, 0 };

	return constant_site(args, &lost);
}

static long by_any_site(void)
{
	long args[] = { 426, mine.fd, 1, 0, 0, 0, 0 };

	return any_site(args, &lost);
}

static long no_ring_call(void)
{
	long args[] = { SYS_getppid, 0, 0, 0, 0, 0, 0 };

	return any_site(args, &lost) == getppid();
}

static long through_libc(void)
{
	return (close(-5) == -1 && errno == EBADF);
}

static const struct { const char *name; long (*call)(void); int submits; } calls[] = {
	{ "libc's syscall()", by_libc, 1 }, { "a constant number", by_constant_site, 1 }, { "any number", by_any_site, 1 },
	{ "a call that is no ring's", no_ring_call, 0 }, { "a function of libc", through_libc, 0 },
};
enum { CALLS = sizeof(calls) / sizeof(*calls) };

static void counts(int signal)
{
	handled++;
}

static void uses_a_ring(int signal)
{
	int saved = errno;

	works(&others);
	handled++;
	errno = saved;
}

static void jumps(int signal)
{
	handled++;
	siglongjmp(out, 1);
}

static void (*const handlers[])(int) = { counts, uses_a_ring, jumps };
enum { HANDLERS = 3 };

/* Between two breakpoints the parent sends a signal, or none. */
static void one_round(int call, int handler)
{
	volatile long result = 1;
	volatile int jumped = 0;

	handled = 0;
	lost = 0;
	if (calls[call].submits)
		push(&mine, SQE(.opcode = NOP));
	if (!sigsetjmp(out, 1)) {
		__asm__ volatile("int3" ::: "memory");
		result = calls[call].call();
	} else {
		jumped = 1;
	}
	__asm__ volatile("int3" ::: "memory");
	is_true("handled at most once", handled <= 1);
	check("registers lost", lost, 0);
	if (!jumped)
		check(calls[call].name, result, 1);
	is_true("a jump only from its handler", !jumped || handlers[handler] == jumps);
	if (calls[call].submits) {
		if (*mine.sq_head != *mine.sq_tail)
			check("what was not submitted is", by_libc(), 1);
		check("its CQE", next(&mine), 0);
		check("no other", waiting(&mine), 0);
	}
}

/* The parent says how often, through this page. */
static volatile struct { int call, handler, goes_on, handled; } *order;

static int program(void)
{
	struct sigaction action = { 0 };

	mine = new_ring(8);
	others = new_ring(8);
	ptrace(PTRACE_TRACEME, 0, 0, 0);
	__asm__ volatile("int3");
	while (order->goes_on) {
		action.sa_handler = handlers[order->handler];
		sigaction(SIGUSR1, &action, 0);
		one_round(order->call, order->handler);
		order->handled = handled;
		__asm__ volatile("int3");
	}
	return failures > 0;
}

/* The parent ----------------------------------------------------------------------------------- */

/* Whether the program has stopped at a breakpoint, not behind a step. */
static int at_breakpoint(pid_t pid)
{
	siginfo_t info;

	ptrace(PTRACE_GETSIGINFO, pid, 0, &info);
	return info.si_code == SI_KERNEL;
}

static int stops(pid_t pid, int request, int signal)
{
	int status;

	ptrace(request, pid, 0, signal);
	waitpid(pid, &status, 0);
	if (WIFSTOPPED(status))
		return WSTOPSIG(status);
	printf("%s: the program is gone: %x\n", section, status);
	fflush(stdout);
	_exit(1);
}

/* To the next breakpoint. */
static void run_on(pid_t pid, int signal)
{
	int got = stops(pid, PTRACE_CONT, signal);

	while (got != SIGTRAP)
		got = stops(pid, PTRACE_CONT, got);
}

/* Steps through a round to its end. Returns the number of steps. */
static int step_through(pid_t pid, unsigned long *rip)
{
	for (int i = 0; i < MOST; i++) {
		rip[i] = ptrace(PTRACE_PEEKUSER, pid, offsetof(struct user, regs.rip), 0);
		if (stops(pid, PTRACE_SINGLESTEP, 0) != SIGTRAP)
			i--;
		else if (at_breakpoint(pid))
			return i;
	}
	return MOST;
}

static int set_debug_register(pid_t pid, int n, unsigned long value)
{
	return ptrace(PTRACE_POKEUSER, pid, offsetof(struct user, u_debugreg[n]), value);
}

/* Into a round up to one of its steps. 0: the round has ended before. */
static int run_to(pid_t pid, const unsigned long *rip, int at)
{
	int times = 0, arrived = 1;

	for (int i = 0; i <= at; i++)
		times += rip[i] == rip[at];
	if (at == 0)
		return 1;
	/* A breakpoint of the processor's at its instruction. */
	set_debug_register(pid, 0, rip[at]);
	set_debug_register(pid, 7, 1);
	while (times-- && arrived) {
		run_on(pid, 0);
		arrived = !at_breakpoint(pid);
	}
	set_debug_register(pid, 7, 0);
	return arrived;
}

static int all_steps(pid_t pid, int call, int handler)
{
	static unsigned long rip[MOST];
	static char name[128];
	int signals = 0, n;

	sprintf(name, "%s, handler %d", calls[call].name, handler);
	section = name;
	order->call = call;
	order->handler = handler;
	/* The first round makes what is made once. */
	for (int i = 0; i < 4; i++)
		run_on(pid, 0);
	n = step_through(pid, rip);
	is_true("the call ends", n < MOST);
	run_on(pid, 0);
	for (int i = 0; i < n; i++) {
		/* To the round's start, into it, and with a signal to its end. */
		run_on(pid, 0);
		if (run_to(pid, rip, i)) {
			run_on(pid, SIGUSR1);
			run_on(pid, 0);
			check("handled", order->handled, 1);
			signals++;
		} else {
			run_on(pid, 0);
		}
	}
	is_true("signals", signals > 3);
	return signals;
}

int main(int argc, char **argv)
{
	int signals = 0, status;

	block_if_asked();
	order = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	order->goes_on = 1;
	pid_t pid = fork();
	if (pid == 0) {
		section = "the program";
		status = program();
		fflush(stdout);
		_exit(status);
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	if (set_debug_register(pid, 0, (unsigned long)main) || set_debug_register(pid, 7, 1)) {
		printf("skipped: no breakpoints of the processor's here\n");
		kill(pid, SIGKILL);
		return 0;
	}
	set_debug_register(pid, 7, 0);
	for (int call = 0; call < CALLS; call++)
		for (int handler = 0; handler < HANDLERS; handler++)
			signals += all_steps(pid, call, handler);
	order->goes_on = 0;
	ptrace(PTRACE_CONT, pid, 0, 0);
	waitpid(pid, &status, 0);
	check("the program's own checks", status, 0);
	printf("%d signals\n", signals);
	return finish();
}
