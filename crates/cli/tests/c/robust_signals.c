/*
 * Signals while a thread is inside a ring's calls: they end waits, their handlers use rings, and
 * some handlers never return.
 */
#include "robust_ring.h"
#include <setjmp.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/uio.h>

static volatile int handled;
static struct ring mine, others;
static pthread_t main_thread;

static void count(int signal)
{
	handled++;
}

static void on(int signal, void (*handler)(int), int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };

	sigaction(signal, &action, 0);
}

static void after_ms(int ms)
{
	setitimer(ITIMER_REAL, &(struct itimerval){ { 0 }, { ms / 1000, ms % 1000 * 1000 } }, 0);
}

/* Repeated every 100 ms, in case the first one arrives before the wait. */
static void signals_from(int ms)
{
	setitimer(ITIMER_REAL, &(struct itimerval){ { 0, 100000 }, { ms / 1000, ms % 1000 * 1000 } }, 0);
}

static void no_more_signals(void)
{
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, 0);
}

static int wait_plain(struct ring *r)
{
	return enter_call(r->fd, 0, 1, GETEVENTS, 0, 0);
}

static void interrupted_waits(void)
{
	section = "waits are interrupted";
	struct ring r = new_ring(8);

	for (int flags = 0; flags < 2; flags++) {
		on(SIGALRM, count, flags ? SA_RESTART : 0);
		handled = 0;
		signals_from(20);
		check("plain", wait_plain(&r), -EINTR);
		is_true("handled", handled >= 1);
		signals_from(20);
		check("with a timeout", wait_ms(&r, 1, 20000), -EINTR);
		/* If there are CQEs, though too few, the wait succeeds. */
		submit(&r, SQE(.opcode = NOP));
		signals_from(20);
		check("with too few", enter_call(r.fd, 0, 2, GETEVENTS, 0, 0), 0);
		take(&r);
		push(&r, SQE(.opcode = NOP));
		signals_from(20);
		check("submitted before", enter_call(r.fd, 1, 2, GETEVENTS, 0, 0), 1);
		no_more_signals();
		take(&r);
	}
	check("timeout", wait_ms(&r, 1, 20), -ETIME);
	works(&r);
	end_ring(&r);
}

static void masks(void)
{
	section = "signal masks";
	struct ring r = new_ring(8);
	uint64_t none = 0, all = ~0ull, ts[2] = { 0, 30000000 }, arg[3] = { ADDR(&none), 8, ADDR(ts) };
	sigset_t block, old;

	on(SIGUSR1, count, 0);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &block, &old);
	handled = 0;
	raise(SIGUSR1);
	check("blocked", handled, 0);
	check("let through for the wait", enter_call(r.fd, 0, 1, GETEVENTS, &none, 8), -EINTR);
	check("handled", handled, 1);
	raise(SIGUSR1);
	check("also with the long argument", enter_call(r.fd, 0, 1, GETEVENTS | EXT_ARG, arg, sizeof(arg)), -EINTR);
	check("handled", handled, 2);
	pthread_sigmask(SIG_BLOCK, 0, &block);
	is_true("blocked again", sigismember(&block, SIGUSR1));
	pthread_sigmask(SIG_SETMASK, &old, 0);

	/* Blocked during the wait; handled at its end. */
	on(SIGALRM, count, 0);
	handled = 0;
	after_ms(10);
	arg[0] = ADDR(&all);
	check("kept away", enter_call(r.fd, 0, 1, GETEVENTS | EXT_ARG, arg, sizeof(arg)), -ETIME);
	check("handled at the end", handled, 1);

	check("bad mask", enter_call(r.fd, 0, 1, GETEVENTS, (void *)8, 8), -EFAULT);
	check("bad size", enter_call(r.fd, 0, 1, GETEVENTS, &none, 4), -EINVAL);
	arg[0] = 8;
	check("bad mask, long", enter_call(r.fd, 0, 1, GETEVENTS | EXT_ARG, arg, sizeof(arg)), -EFAULT);
	arg[0] = 0;
	arg[2] = 8;
	check("bad timeout", enter_call(r.fd, 0, 1, GETEVENTS | EXT_ARG, arg, sizeof(arg)), -EFAULT);
	check("bad argument", enter_call(r.fd, 0, 1, GETEVENTS | EXT_ARG, (void *)8, sizeof(arg)), -EFAULT);
	check("short argument", enter_call(r.fd, 0, 1, GETEVENTS | EXT_ARG, arg, 8), -EINVAL);
	works(&r);
	end_ring(&r);
}

static void uses_another(int signal)
{
	uint64_t ts[2] = { 0, 2000000 };
	int saved = errno;

	works(&others);
	check("a timer in the handler", run(&others, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1)), -ETIME);
	handled++;
	errno = saved;
}

static void uses_the_same(int signal)
{
	uint64_t ts[2] = { 0, 2000000 };
	int saved = errno;

	works(&mine);
	check("a timer in the handler", run(&mine, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1)), -ETIME);
	handled++;
	errno = saved;
}

static void handlers_use_rings(void)
{
	section = "handlers use rings";
	sigset_t alarm_only, old;
	uint64_t none = 0;
	int p[2];

	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	char c;

	pipe(p);
	mine = new_ring(8);
	others = new_ring(8);
	submit(&mine, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&c), .len = 1));
	for (int i = 0; i < 20; i++) {
		handled = 0;
		on(SIGALRM, uses_another, 0);
		signals_from(3);
		check("interrupted", wait_plain(&mine), -EINTR);
		no_more_signals();
		is_true("its handler used another ring", handled >= 1);
		handled = 0;
		on(SIGALRM, uses_the_same, 0);
		signals_from(3);
		check("interrupted again", wait_plain(&mine), -EINTR);
		no_more_signals();
		is_true("its handler used the same ring", handled >= 1);
		handled = 0;
		/* A handler that only the wait's mask admits. */
		pthread_sigmask(SIG_BLOCK, &alarm_only, &old);
		after_ms(3);
		check("interrupted by its mask", enter_call(mine.fd, 0, 1, GETEVENTS, &none, 8), -EINTR);
		check("its handler used the same ring", handled, 1);
		pthread_sigmask(SIG_SETMASK, &old, 0);
	}
	write(p[1], "x", 1);
	check("the read came", next(&mine), 1);
	end_ring(&mine);
	end_ring(&others);
	close(p[0]);
	close(p[1]);
}

/*
 * Signals at any moment of submission: the handler must never find a lock held by the thread that
 * it interrupted.
 */
static volatile int stop;

static void *storm(void *arg)
{
	while (!stop) {
		pthread_kill(main_thread, SIGUSR2);
		for (int i = 0; i < 2000 && !stop; i++)
			__builtin_ia32_pause();
	}
	return 0;
}

static void enters_both(int signal)
{
	int saved = errno;

	works(&others);
	enter_call(mine.fd, 0, 0, GETEVENTS, 0, 0);
	handled++;
	errno = saved;
}

static void a_storm(void)
{
	section = "a storm of signals";
	pthread_t thread;
	uint64_t end = now_us() + 1000000, deadline = end + 60000000, done = 0;
	int p[2];

	pipe(p);
	main_thread = pthread_self();
	mine = new_ring(64);
	others = new_ring(8);
	on(SIGUSR2, enters_both, SA_RESTART);
	handled = 0;
	stop = 0;
	pthread_create(&thread, 0, storm, 0);
	while (now_us() < end || (handled <= 100 && now_us() < deadline)) {
		uint64_t ts[2] = { 0, 20000 };

		for (int i = 0; i < 4; i++)
			push(&mine, SQE(.opcode = NOP));
		push(&mine, SQE(.opcode = POLL_ADD, .fd = p[0], .op_flags = POLLIN));
		push(&mine, SQE(.opcode = ASYNC_CANCEL, .fd = -1, .op_flags = CANCEL_ANY | 1));
		push(&mine, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1));
		while (*mine.sq_head != *mine.sq_tail)
			enter_call(mine.fd, *mine.sq_tail - *mine.sq_head, 0, 0, 0, 0);
		for (int i = 0; i < 7; i++)
			is_true("a result", next(&mine) != NO_CQE);
		done++;
	}
	stop = 1;
	pthread_join(thread, 0);
	is_true("signals came", handled > 100);
	printf("%lu rounds, %d signals\n", (unsigned long)done, handled);
	signal(SIGUSR2, SIG_IGN);
	works(&mine);
	works(&others);
	end_ring(&mine);
	end_ring(&others);
}

static sigjmp_buf out;

static void jumps(int signal)
{
	siglongjmp(out, 1);
}

static void *later_wait(void *arg)
{
	struct ring *r = arg;

	return (void *)(long)wait_ms(r, 1, 60000);
}

static void leave_by_jump(void)
{
	section = "siglongjmp out of a wait";
	struct ring r = new_ring(8);
	sigset_t alarm_only;
	uint64_t none = 0;
	static char c;
	int p[2], fds, tasks;
	pthread_t thread;
	void *result;

	pipe(p);
	submit(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&c), .len = 1));
	on(SIGALRM, jumps, 0);
	fds = count_dir("fd");
	tasks = count_dir("task");
	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	for (volatile int i = 0; i < 100; i++) {
		if (!sigsetjmp(out, 1)) {
			after_ms(2);
			wait_plain(&r);
			check("not reached", 1, 0);
		}
		works(&r);
		if (!sigsetjmp(out, 1)) {
			pthread_sigmask(SIG_BLOCK, &alarm_only, 0);
			after_ms(2);
			enter_call(r.fd, 0, 1, GETEVENTS, &none, 8);
			check("not reached", 1, 0);
		}
		works(&r);
	}
	is_true("nothing stays of 200 waits", count_dir("fd") <= fds + 5 && count_dir("task") <= tasks + 2);
	/* Other threads still wait, and are woken. */
	pthread_create(&thread, 0, later_wait, &r);
	sleep_ms(30);
	write(p[1], "x", 1);
	uint64_t start = now_us();
	pthread_join(thread, &result);
	check("another thread's wait", (long)result, 0);
	is_true("soon", now_us() - start < 20000000);
	check("its CQE", next(&r), 1);
	end_ring(&r);
	/* The ring has really ended. */
	close(p[0]);
	signal(SIGPIPE, SIG_IGN);
	int gone = 0;
	for (int i = 0; i < 200 && !gone; i++) {
		gone = write(p[1], "x", 1) < 0;
		sleep_ms(5);
	}
	check("and lets go of its files", gone, 1);
	close(p[1]);
}

static void exits(int signal)
{
	pthread_exit((void *)5);
}

static void *cancelled_wait(void *arg)
{
	for (;;) {
		wait_ms(arg, 1, 10);
		pthread_testcancel();
	}
}

static void *exiting_wait(void *arg)
{
	wait_plain(arg);
	return 0;
}

static void threads_end_inside(void)
{
	section = "threads that end while they wait";
	struct ring r = new_ring(8);
	static char c;
	int p[2];
	pthread_t thread;
	void *result;

	pipe(p);
	submit(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&c), .len = 1));
	on(SIGUSR1, exits, 0);
	for (int i = 0; i < 10; i++) {
		pthread_create(&thread, 0, cancelled_wait, &r);
		sleep_ms(10);
		pthread_cancel(thread);
		pthread_join(thread, &result);
		is_true("cancelled", result == PTHREAD_CANCELED);
		works(&r);
		pthread_create(&thread, 0, exiting_wait, &r);
		sleep_ms(10);
		pthread_kill(thread, SIGUSR1);
		pthread_join(thread, &result);
		check("ended by its handler", (long)result, 5);
		works(&r);
	}
	write(p[1], "x", 1);
	check("the read came", next(&r), 1);
	end_ring(&r);
	close(p[0]);
	close(p[1]);
}

static int write_flags, write_late;

/* Beyond RLIMIT_FSIZE: SIGXFSZ would kill, but a worker writes. */
static int writes_too_much(void)
{
	static char buf[8192];
	struct rlimit limit = { 4096, 4096 };
	int file = open("limited", O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (!write_late)
		setrlimit(RLIMIT_FSIZE, &limit);
	struct ring r = new_ring(8);
	if (write_late)
		setrlimit(RLIMIT_FSIZE, &limit);
	struct iovec iov = { buf, 4096 };
	check("up to the limit", run(&r, SQE(.opcode = WRITE, .fd = file, .addr = ADDR(buf), .len = 8192, .flags = write_flags)), 4096);
	check("beyond", run(&r, SQE(.opcode = WRITE, .fd = file, .addr = ADDR(buf), .len = 4096, .off = 4096, .flags = write_flags)), -EFBIG);
	check("by iovecs", run(&r, SQE(.opcode = 2, .fd = file, .addr = ADDR(&iov), .len = 1, .off = 4096, .flags = write_flags)), -EFBIG);
	push(&r, SQE(.opcode = 55, .fd = file, .off = 10000));
	check("submit and wait", enter_call(r.fd, 1, 1, GETEVENTS, 0, 0), 1);
	check("ftruncate", next(&r), -EFBIG);
	return 0;
}

static int writes_to_nobody(void)
{
	struct ring r = new_ring(8);
	int p[2];

	pipe(p);
	close(p[0]);
	check("nobody reads", run(&r, SQE(.opcode = WRITE, .fd = p[1], .addr = ADDR(p), .len = 1, .flags = FORCE_ASYNC)), -EPIPE);
	return 0;
}

static void signals_of_writes(void)
{
	section = "signals of writes";
	for (write_late = 0; write_late < 2; write_late++)
		for (write_flags = 0; write_flags <= FORCE_ASYNC; write_flags += FORCE_ASYNC)
			check("survives a full file", in_child(writes_too_much, 5), 0);
	check("survives a pipe without readers", in_child(writes_to_nobody, 5), 0);
}

int main(void)
{
	block_if_asked();
	signals_of_writes();
	interrupted_waits();
	masks();
	handlers_use_rings();
	a_storm();
	leave_by_jump();
	threads_end_inside();
	return finish();
}
