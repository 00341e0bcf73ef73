/*
 * Signals that reach a thread inside the engine: handlers that fork, use the same ring, or never
 * return.
 */
#include "blocked.h"
#include <linux/io_uring.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#define CHECK(what) ((what) ? (void)0 : (printf("line %d: %s (errno %d)\n", __LINE__, #what, errno), exit(1)))

static struct io_uring_params params;
static uint8_t *rings;
static struct io_uring_sqe *sqes;
static int ring;

static uint32_t *word(uint32_t offset)
{
	return (uint32_t *)(rings + offset);
}

static void make_ring(void)
{
	ring = syscall(SYS_io_uring_setup, 8, &params);
	CHECK(ring >= 0 && params.features & IORING_FEAT_SINGLE_MMAP);
	rings = mmap(NULL, params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	sqes = mmap(NULL, 8 * sizeof(*sqes), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	CHECK(rings != MAP_FAILED && sqes != MAP_FAILED);
	for (uint32_t i = 0; i < 8; i++)
		word(params.sq_off.array)[i] = i;
}

/* One NOP, submitted and completed. */
static void nop(void)
{
	uint32_t tail = *word(params.sq_off.tail);
	uint32_t head = *word(params.cq_off.head);

	memset(&sqes[tail & 7], 0, sizeof(*sqes));
	__atomic_store_n(word(params.sq_off.tail), tail + 1, __ATOMIC_RELEASE);
	CHECK(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
	CHECK(__atomic_load_n(word(params.cq_off.tail), __ATOMIC_ACQUIRE) == head + 1);
	__atomic_store_n(word(params.cq_off.head), head + 1, __ATOMIC_RELEASE);
}

static volatile sig_atomic_t ticks;
static sigjmp_buf out;
static enum { COUNT, USE, LEAVE } what;

static void arm(void)
{
	struct itimerval soon = { { 0, 0 }, { 0, 50 + ticks % 100 } };

	setitimer(ITIMER_REAL, &soon, NULL);
}

static void tick(int signal)
{
	pid_t child;
	int saved = errno;

	ticks++;
	if (what == USE) {
		if (ticks % 8 == 0) {
			child = fork();
			if (child == 0)
				_exit(0);
			waitpid(child, NULL, 0);
		}
		close(dup(0));
		syscall(SYS_io_uring_enter, ring, 0, 0, 0, NULL, 0);
		syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0);
	}
	if (what != COUNT)
		arm();
	errno = saved;
	if (what == LEAVE)
		siglongjmp(out, 1);
}

static void interrupted_work(void)
{
	what = USE;
	for (ticks = 0, arm(); ticks < 1500;)
		nop();
	/* None may arrive before sigsetjmp. */
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	what = LEAVE;
	ticks = 0;
	sigsetjmp(out, 1);
	if (ticks == 0)
		arm();
	/* No call that a jump could leave half done in the program's own memory. */
	while (ticks < 1500)
		syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0);
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	what = COUNT;
	nop();
	puts("interrupted work ok");
}

static void interrupted_wait(void)
{
	/* Repeated: on a busy machine the first may arrive before the wait. */
	struct itimerval soon = { { 0, 200000 }, { 0, 20000 } };
	sigset_t block, none;

	ticks = 0;
	setitimer(ITIMER_REAL, &soon, NULL);
	CHECK(syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) == -1 && errno == EINTR && ticks >= 1);
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	ticks = 1;

	/* Blocked, and admitted by the mask of the wait alone. */
	sigemptyset(&none);
	sigemptyset(&block);
	sigaddset(&block, SIGALRM);
	sigprocmask(SIG_BLOCK, &block, NULL);
	raise(SIGALRM);
	CHECK(ticks == 1);
	CHECK(syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, &none, 8) == -1 && errno == EINTR && ticks == 2);
	sigprocmask(SIG_UNBLOCK, &block, NULL);
	CHECK(ticks == 2);
	puts("interrupted wait ok");
}

/* Signals at any moment of the way into a wait end it. */
static void interrupted_on_the_way(void)
{
	for (int i = 0; i < 1000; i++) {
		struct itimerval soon = { { 0, 5000 }, { 0, 1 + i % 60 } };

		setitimer(ITIMER_REAL, &soon, NULL);
		CHECK(syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) == -1 && errno == EINTR);
	}
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
}

static void second(int signal, siginfo_t *info, void *context)
{
	ticks += info->si_signo == SIGUSR1 && info->si_code == SI_TKILL ? 100 : 10000;
}

static void handlers_as_set(void)
{
	struct sigaction action = { .sa_sigaction = second, .sa_flags = SA_SIGINFO | SA_RESETHAND }, old;

	CHECK(sigaction(SIGALRM, NULL, &old) == 0 && old.sa_handler == tick && !(old.sa_flags & (SA_SIGINFO | SA_RESETHAND)));
	CHECK(sigaction(SIGUSR1, &action, &old) == 0 && old.sa_handler == SIG_DFL);
	CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_sigaction == second);
	CHECK((old.sa_flags & (SA_SIGINFO | SA_RESETHAND)) == (int)(SA_SIGINFO | SA_RESETHAND));
	ticks = 0;
	raise(SIGUSR1);
	CHECK(ticks == 100);
	CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
	CHECK(signal(SIGUSR2, tick) == SIG_DFL && signal(SIGUSR2, SIG_IGN) == tick && signal(SIGUSR2, SIG_DFL) == SIG_IGN);
	CHECK(sigaction(SIGKILL, &action, NULL) == -1 && errno == EINVAL);
	puts("handlers ok");
}

int main(void)
{
	/* Set before there is a ring. */
	signal(SIGALRM, tick);
	make_ring();
	interrupted_work();
	interrupted_wait();
	interrupted_on_the_way();
	handlers_as_set();
	return 0;
}
