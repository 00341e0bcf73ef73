/*
 * Buffers that fault, of a device's client and of its server: requests end with EIO, and no handler
 * of the program is called, whatever it does with SIGSEGV and SIGBUS. "ublk_faults": exit status 0,
 * all as expected. "ublk_faults die": dies of SIGSEGV.
 */
#include "ublk.h"
#include <setjmp.h>
#include <signal.h>

enum { PAGE = 4096 };

static volatile sig_atomic_t heard;
static void *volatile heard_at;
static sigjmp_buf back;
static struct client client;
static char *good, *half, *cut, *bad = (char *)8;

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)context;
	heard = signal;
	heard_at = info->si_addr;
	siglongjmp(back, 1);
}

/* Two pages, the second of them without rights, or beyond the end of its file. */
static void make_buffers(void)
{
	int fd = memfd_create("cut", 0);

	good = aligned_alloc(PAGE, MAX_BYTES);
	memset(good, 'g', MAX_BYTES);
	half = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(mprotect(half + PAGE, PAGE, PROT_NONE), 0);
	check(ftruncate(fd, PAGE), 0);
	cut = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
}

/* The server's buffer is valid: the client's are not. */
static void user_faults(int line)
{
	check_at(line, "a good write", client_run(&client, WRITE, 0, 16, good), 2 * PAGE);
	check_at(line, "a bad write", client_run(&client, WRITE, 0, 16, bad), -EIO);
	check_at(line, "a write of half a buffer", client_run(&client, WRITE, 0, 16, half), -EIO);
	check_at(line, "a write of half a file", client_run(&client, WRITE, 0, 16, cut), -EIO);
	check_at(line, "a bad read", client_run(&client, READ, 0, 16, bad), -EIO);
	check_at(line, "a read into half a buffer", client_run(&client, READ, 0, 16, half), -EIO);
	check_at(line, "a read into half a file", client_run(&client, READ, 0, 16, cut), -EIO);
	check_at(line, "a good read", client_run(&client, READ, 0, 16, good), 2 * PAGE);
	check_at(line, "signals", heard, 0);
}

static void server_faults(int line)
{
	check_at(line, "a write to a bad server", client_run(&client, WRITE, 0, 16, good), -EIO);
	check_at(line, "a read from a bad server", client_run(&client, READ, 0, 16, good), -EIO);
	check_at(line, "signals", heard, 0);
}

/* A fault of the program's own code. */
static void own_fault(char *at, int signal)
{
	heard = 0;
	if (!sigsetjmp(back, 1))
		*(volatile char *)at = 1;
	check(heard, signal);
	check(heard_at == at, 1);
	heard = 0;
}

static void all_ways(void (*faults)(int line))
{
	static char stack[1 << 16];
	stack_t other = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK }, old;
	sigset_t all, before;

	faults(__LINE__);
	check(sigaction(SIGSEGV, 0, &old), 0);
	check(old.sa_handler == SIG_DFL, 1);

	check(sigaltstack(&other, 0), 0);
	check(sigaction(SIGSEGV, &action, &old), 0);
	check(old.sa_handler == SIG_DFL, 1);
	check(sigaction(SIGBUS, &action, 0), 0);
	faults(__LINE__);
	own_fault(bad, SIGSEGV);
	own_fault(cut + PAGE, SIGBUS);
	faults(__LINE__);

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	faults(__LINE__);
	pthread_sigmask(SIG_SETMASK, &before, 0);

	check(signal(SIGSEGV, SIG_IGN) == (void *)handler, 1);
	faults(__LINE__);

	/* By a raw call, with libc's restorer. */
	struct { void *handler; unsigned long flags; void *restorer; uint64_t mask; } raw;
	check(sigaction(SIGSEGV, &action, 0), 0);
	check(syscall(SYS_rt_sigaction, SIGSEGV, 0, &raw, 8), 0);
	raw.handler = handler;
	check(syscall(SYS_rt_sigaction, SIGSEGV, &raw, 0, 8), 0);
	faults(__LINE__);
	own_fault(bad, SIGSEGV);

	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	faults(__LINE__);
}

static void live(void (*faults)(int line), struct server *server, uint64_t flags)
{
	server->flags = flags;
	check(add_device(flags, server->depth), 0);
	check(set_params(), 0);
	server_start(server);
	check(control(START_DEV, 0, 0, 1), 0);
	client_open(&client, 8);
	faults ? all_ways(faults) : user_faults(__LINE__);
	if (!faults)
		*(volatile char *)bad = 1;
	client_close(&client);
	check(control(STOP_DEV, 0, 0, 0), 0);
	pthread_join(server->thread, 0);
	check(control(DEL_DEV, 0, 0, 0), 0);
}

int main(int argc, char **argv)
{
	struct server fine = { .depth = 1, .null = 1 }, asking = { .depth = 1, .null = 1 }, broken = { .depth = 1, .null = 1 };

	(void)argv;
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	make_buffers();
	control_open();
	broken.buffers[0] = bad;
	live(argc > 1 ? 0 : user_faults, &fine, 0);
	live(user_faults, &asking, F_NEED_GET_DATA);
	live(server_faults, &broken, 0);
	return failures != 0;
}
