/*
 * Exceptions, cancellations and pthread_exit out of a signal handler that interrupts a wait: by
 * libc's syscall(), by a call of this program's own, and by one that is none of io_uring's. They
 * unwind through the call to the frames of the program.
 *
 * Exit status: 0 all as expected, 1 not, 77 no ring.
 */
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <execinfo.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "uring_filter.h"

/* libc declares that its own throws nothing. */
extern "C" long throwing_syscall(long nr, ...) __asm__("syscall");

enum { ENTER = 426, GETEVENTS = 1, ROUNDS = 20 };

static int failures, ring, empty_pipe[2];
static volatile int destroyed, handled, frames_seen;
static void *volatile caller;

static void check(const char *what, const char *how, long got, long want)
{
	if (got != want) {
		printf("%s, %s: %ld, expected %ld\n", what, how, got, want);
		fflush(stdout);
		failures++;
	}
}

struct Guard {
	~Guard() { destroyed++; }
};

__attribute__((noinline)) static long by_libc()
{
	return throwing_syscall(ENTER, ring, 0, 1, GETEVENTS, 0, 0);
}

#define CALL(nr, a, b, c, d) ({ \
	long result_; \
	register long r10_ __asm__("r10") = d, r8_ __asm__("r8") = 0, r9_ __asm__("r9") = 0; \
	__asm__ volatile("syscall" : "=a"(result_) : "0"((long)(nr)), "D"((long)(a)), "S"((long)(b)), "d"((long)(c)), "r"(r10_), "r"(r8_), "r"(r9_) : "rcx", "r11", "memory"); \
	result_; })

__attribute__((noinline)) static long by_own_call()
{
	return CALL(ENTER, ring, 0, 1, GETEVENTS);
}

/* With more registers saved and a frame of its own size. */
__attribute__((noinline)) static long by_any_number(volatile long *numbers)
{
	volatile char room[777];
	long a = numbers[0], b = numbers[1], c = numbers[2], d = numbers[3], e = numbers[4];

	room[5] = 1;
	long result = CALL(a, b, c, d, e);
	return result + room[5] + a + b + c + d + e + numbers[0];
}

static long by_own_enter()
{
	volatile long numbers[] = { ENTER, ring, 0, 1, GETEVENTS };

	return by_any_number(numbers);
}

static long by_own_read()
{
	static char c;
	volatile long numbers[] = { SYS_read, empty_pipe[0], (long)&c, 1, 0 };

	return by_any_number(numbers);
}

__attribute__((noinline)) static long guarded(long (*wait)())
{
	Guard guard;

	return wait();
}

static const struct { const char *name; long (*wait)(); } ways[] = {
	{ "libc's syscall()", by_libc }, { "a call of its own", by_own_call }, { "a call of any number", by_own_enter }, { "a read of its own", by_own_read },
};

static void on(int signal, void (*handler)(int))
{
	struct sigaction action = {};

	action.sa_handler = handler;
	sigaction(signal, &action, 0);
}

/* Repeated, in case the first one comes before the wait. */
static void alarms(int first_us, int next_us)
{
	struct itimerval timer = { { 0, next_us }, { 0, first_us } };

	setitimer(ITIMER_REAL, &timer, 0);
}

static void unblock_alarm()
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(SIG_UNBLOCK, &set, 0);
}

static void throws(int signal)
{
	alarms(0, 0);
	throw signal;
}

__attribute__((noinline)) static int caught(long (*wait)())
{
	int result = -1;

	try {
		alarms(2000, 100000);
		guarded(wait);
	} catch (int signal) {
		result = signal;
	}
	unblock_alarm();
	return result;
}

static void exceptions(const char *name, long (*wait)())
{
	on(SIGALRM, throws);
	for (int i = 0; i < ROUNDS; i++) {
		destroyed = 0;
		check("an exception is caught", name, caught(wait), SIGALRM);
		check("the frames in between are left", name, destroyed, 1);
	}
}

static void looks(int signal)
{
	void *frames[64];
	int n = backtrace(frames, 64);

	for (int i = 0; i < n; i++)
		frames_seen += frames[i] == caller;
	handled++;
}

__attribute__((noinline)) static void backtraces(const char *name, long (*wait)())
{
	caller = __builtin_return_address(0);
	frames_seen = handled = 0;
	on(SIGALRM, looks);
	alarms(2000, 100000);
	check("interrupted", name, wait() != 0 && handled, 1);
	alarms(0, 0);
	check("a handler's backtrace reaches main", name, frames_seen >= 1, 1);
}

static void exits(int signal)
{
	pthread_exit((void *)5);
}

static void tests_cancel(int signal)
{
	pthread_testcancel();
}

static volatile int waiter;

static void *waits(void *wait)
{
	Guard guard;

	waiter = syscall(SYS_gettid);
	guarded((long (*)())wait);
	return 0;
}

/* The thread that was started has come to its wait. */
static void until_it_sleeps()
{
	char path[64], state = 0;

	for (int i = 0; i < 20000 && state != 'S'; i++) {
		usleep(1000);
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", waiter);
		FILE *stat = waiter ? fopen(path, "r") : NULL;
		if (stat && fscanf(stat, "%*d %*s %c", &state) != 1)
			state = 0;
		if (stat)
			fclose(stat);
	}
}

static void *waits_async(void *wait)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
	return waits(wait);
}

static void threads_end(const char *name, long (*wait)())
{
	pthread_t thread;
	void *result;

	on(SIGUSR1, exits);
	destroyed = waiter = 0;
	pthread_create(&thread, 0, waits, (void *)wait);
	until_it_sleeps();
	pthread_kill(thread, SIGUSR1);
	pthread_join(thread, &result);
	check("pthread_exit", name, (long)result, 5);
	check("its frames are left", name, destroyed, 2);
	on(SIGUSR1, tests_cancel);
	destroyed = waiter = 0;
	pthread_create(&thread, 0, waits, (void *)wait);
	until_it_sleeps();
	pthread_cancel(thread);
	pthread_kill(thread, SIGUSR1);
	pthread_join(thread, &result);
	check("a cancellation", name, result == PTHREAD_CANCELED, 1);
	check("its frames are left", name, destroyed, 2);
}

static void threads_are_cancelled(const char *name, long (*wait)())
{
	pthread_t thread;
	void *result;

	for (int i = 0; i < ROUNDS; i++) {
		destroyed = 0;
		pthread_create(&thread, 0, waits_async, (void *)wait);
		usleep(i * 100);
		pthread_cancel(thread);
		pthread_join(thread, &result);
		check("an asynchronous cancellation", name, result == PTHREAD_CANCELED, 1);
	}
}

/* The process ends as by any exception that nobody catches. */
static void uncaught(const char *name, long (*wait)())
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		fclose(stderr);
		close(2);
		on(SIGALRM, throws);
		alarms(2000, 100000);
		wait();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	check("an exception without a catch aborts", name, WIFSIGNALED(status) ? WTERMSIG(status) : -1, SIGABRT);
}

int main()
{
	char params[120] = {};
	void *warm[2];

	if (getenv("BLOCK_IO_URING"))
		filter_io_uring(SECCOMP_RET_KILL_PROCESS, 1);
	pipe(empty_pipe);
	ring = syscall(425, 8, params);
	if (ring < 0)
		return 77;
	backtrace(warm, 2);
	for (const auto &way : ways) {
		exceptions(way.name, way.wait);
		backtraces(way.name, way.wait);
		threads_end(way.name, way.wait);
		threads_are_cancelled(way.name, way.wait);
		uncaught(way.name, way.wait);
	}
	printf("%s\n", failures ? "NOT as expected" : "as expected");
	return failures > 0;
}
