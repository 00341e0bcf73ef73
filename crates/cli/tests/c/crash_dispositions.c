/*
 * A program that changes what its signals do, the last real-time one above all: a request that a
 * worker runs can be cancelled all the same, the program lives, and its own use of the signal
 * works.
 */
#include "robust_ring.h"

enum { OPENAT = 18, LAST = 64 };

static const char fifo[] = "nobody-writes";

/* The kernel's own structure. */
struct raw_action { void *handler; unsigned long flags; void *restorer; uint64_t mask; };

static void by_sigaction(int sig, void (*handler)(int))
{
	struct sigaction action = { .sa_handler = handler };

	sigaction(sig, &action, 0);
}

static void by_signal(int sig, void (*handler)(int))
{
	signal(sig, handler);
}

static void by_raw_call(int sig, void (*handler)(int))
{
	struct raw_action action = { handler };

	syscall(SYS_rt_sigaction, sig, &action, 0, 8);
}

/* Not seen by the engine: this object has no call of io_uring to be rewritten. */
static void by_inline_call(int sig, void (*handler)(int))
{
	struct raw_action action = { handler };
	register long size __asm__("r10") = 8;
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "0"((long)SYS_rt_sigaction), "D"((long)sig), "S"(&action), "d"(0L), "r"(size) : "rcx", "r11", "memory");
}

typedef void (*set_action)(int, void (*)(int));
static const set_action ways[] = { by_sigaction, by_signal, by_raw_call, by_inline_call };
static set_action way;
static void (*disposition)(int);

static volatile int handled, value, interrupted_thread;

static void counts(int sig, siginfo_t *info, void *context)
{
	handled++;
	value = info->si_value.sival_int;
	interrupted_thread = syscall(SYS_gettid);
}

static void handle_last(int flags)
{
	struct sigaction action = { .sa_sigaction = counts, .sa_flags = SA_SIGINFO | flags };

	handled = 0;
	sigaction(LAST, &action, 0);
}

/* A worker opens a FIFO that nobody writes to. */
static void start_open(struct ring *r)
{
	submit(r, SQE(.opcode = OPENAT, .fd = AT_FDCWD, .addr = ADDR(fifo), .op_flags = O_RDONLY, .user_data = 5, .flags = FORCE_ASYNC));
	sleep_ms(20);
}

static void cancel_open(struct ring *r)
{
	struct cqe a, b;

	check("cancel is submitted", (push(r, SQE(.opcode = ASYNC_CANCEL, .fd = -1, .addr = 5, .user_data = 6)), enter_call(r->fd, 1, 0, 0, 0, 0)), 1);
	a = next_cqe(r);
	b = next_cqe(r);
	if (a.user_data != 6) {
		struct cqe c = a;
		a = b;
		b = c;
	}
	check("the worker runs it", a.res, -EALREADY);
	/* The kernel lets its internal number for a restart through. */
	is_true("the open is interrupted", b.res == -EINTR || b.res == -512);
	works(r);
}

static int all_changed_later(void)
{
	struct ring r = new_ring(8);

	start_open(&r);
	for (int sig = 1; sig <= LAST; sig++)
		if (sig != SIGALRM && sig != SIGCHLD)
			way(sig, disposition);
	cancel_open(&r);
	/* Also while an interrupt is on its way again and again. */
	if (way == by_inline_call)
		goto end;
	start_open(&r);
	push(&r, SQE(.opcode = ASYNC_CANCEL, .fd = -1, .addr = 5, .user_data = 6));
	enter_call(r.fd, 1, 0, 0, 0, 0);
	way(LAST, disposition);
	next(&r);
	next(&r);
	sleep_ms(30);
	works(&r);
end:
	end_ring(&r);
	return 0;
}

static int last_changed_before(void)
{
	way(LAST, disposition);
	struct ring r = new_ring(8);
	start_open(&r);
	cancel_open(&r);
	end_ring(&r);
	return 0;
}

static int all_blocked(void)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, 0);
	struct ring r = new_ring(8);
	start_open(&r);
	cancel_open(&r);
	raise(LAST);
	cancel_open((start_open(&r), &r));
	sigset_t pending;
	sigpending(&pending);
	is_true("the program's own stays pending", sigismember(&pending, LAST));
	end_ring(&r);
	return 0;
}

static int handler_of_its_own(void)
{
	union sigval seven = { .sival_int = 7 };
	struct sigaction now;
	struct ring r = new_ring(8);

	start_open(&r);
	handle_last(SA_RESTART);
	cancel_open(&r);
	sleep_ms(30);
	check("no interrupt of the engine reaches it", handled, 0);
	sigaction(LAST, 0, &now);
	is_true("it is told its handler", now.sa_sigaction == counts);
	is_true("and its flags", (now.sa_flags & (SA_SIGINFO | SA_RESETHAND)) == SA_SIGINFO);
	raise(LAST);
	check("raised", handled, 1);
	for (int i = 0; i < 100; i++) {
		sigqueue(getpid(), LAST, seven);
		for (int j = 0; j < 5000 && handled < 2 + i; j++)
			sleep_ms(1);
		check("sent to the process", handled, 2 + i);
		check("with its value", value, 7);
		check("on a thread of the program", interrupted_thread, getpid());
	}
	end_ring(&r);
	return 0;
}

static void *send_later(void *arg)
{
	sleep_ms(50);
	pthread_kill(*(pthread_t *)arg, LAST);
	return 0;
}

static int ends_a_wait(void)
{
	struct ring r = new_ring(8);
	pthread_t thread, me = pthread_self();

	handle_last(0);
	for (int i = 0; i < 3; i++) {
		pthread_create(&thread, 0, send_later, &me);
		check("interrupted", enter_call(r.fd, 0, 1, GETEVENTS, 0, 0), -EINTR);
		check("handled", handled, i + 1);
		pthread_join(thread, 0);
	}
	works(&r);
	end_ring(&r);
	return 0;
}

static int dies_of_it(void)
{
	struct ring r = new_ring(8);

	start_open(&r);
	way(LAST, disposition);
	cancel_open(&r);
	kill(getpid(), LAST);
	sleep_ms(50);
	return 0;
}

int main(void)
{
	static char name[64];

	block_if_asked();
	mkfifo(fifo, 0600);
	for (unsigned i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		way = ways[i];
		disposition = SIG_DFL;
		sprintf(name, "way %u", i);
		section = name;
		check("all default, later", in_child(all_changed_later, 5), 0);
		check("the last default, before", in_child(last_changed_before, 5), 0);
		check("the default kills", WTERMSIG(in_child(dies_of_it, 5)), LAST);
		disposition = SIG_IGN;
		check("all ignored, later", in_child(all_changed_later, 5), 0);
		check("the last ignored, before", in_child(last_changed_before, 5), 0);
		check("an ignored one does nothing", in_child(dies_of_it, 5), 0);
	}
	section = "dispositions";
	check("all blocked", in_child(all_blocked, 5), 0);
	check("a handler", in_child(handler_of_its_own, 5), 0);
	check("ends a wait", in_child(ends_a_wait, 5), 0);
	return finish();
}
