/* Rings that are made and used by code made at run time. argv[1] says what is shown. */
#include "trap_code.h"
#include <spawn.h>
#include <sys/prctl.h>

extern char **environ;
static char self[4096];

static void use_ring(struct ring *r, unsigned seed)
{
	char text[16] = "", back[16] = "";
	int p[2];

	pipe(p);
	snprintf(text, sizeof(text), "ring %u", seed);
	push(r, SQE(.opcode = NOP, .user_data = seed));
	check("a NOP is submitted", enter_call(r->fd, 1, 1, GETEVENTS, 0, 0), 1);
	check("its user_data", take(r).user_data, seed);
	push(r, SQE(.opcode = WRITE, .fd = p[1], .addr = ADDR(text), .len = sizeof(text), .off = -1));
	check("a write is submitted", enter_call(r->fd, 1, 1, GETEVENTS, 0, 0), 1);
	check("its result", take(r).res, sizeof(text));
	check("what is in the pipe", read(p[0], back, sizeof(back)), sizeof(text));
	check("the text", strcmp(text, back), 0);
	close(p[0]);
	close(p[1]);
}

static void one_ring(unsigned seed)
{
	struct ring r = new_ring(8);

	use_ring(&r, seed);
	end_ring(&r);
}

static long raw(long nr, long a, long b, long c, long d)
{
	return code(nr, a, b, c, d, 0, 0);
}

/* poll, epoll and dup by the same code. */
static void polled(void)
{
	struct ring r = new_ring(8);
	struct pollfd one = { r.fd, POLLIN };
	struct epoll_event event = { .events = EPOLLIN }, got;
	int ep = epoll_create1(0), other = (int)raw(SYS_dup, r.fd, 0, 0, 0);

	is_true("a duplicate", other > r.fd);
	check("epoll_ctl", raw(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, r.fd, (long)&event), 0);
	check("nothing is ready", raw(SYS_poll, (long)&one, 1, 0, 0), 0);
	push(&r, SQE(.opcode = NOP));
	check("submitted by the duplicate", enter_call(other, 1, 1, GETEVENTS, 0, 0), 1);
	check("ready", raw(SYS_poll, (long)&one, 1, 1000, 0), 1);
	check("epoll says so", epoll_wait(ep, &got, 1, 1000), 1);
	take(&r);
	check("a bad address", raw(SYS_poll, 8, 1, 0, 0), -EFAULT);
	close(other);
	close(ep);
	end_ring(&r);
}

static volatile sig_atomic_t came;

static void count(int signal)
{
	came++;
}

static void *interrupt_main(void *main)
{
	sleep_ms(100);
	pthread_kill(*(pthread_t *)main, SIGUSR1);
	return NULL;
}

/* The engine waits as outside of a handler. */
static void waits(void)
{
	struct ring r = new_ring(8);
	struct sigaction action = { .sa_handler = count };
	uint64_t ts[2] = { 0, 50000000 };
	pthread_t me = pthread_self(), thread;

	push(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1));
	check("a wait", enter_call(r.fd, 1, 1, GETEVENTS, 0, 0), 1);
	check("the timeout", take(&r).res, -ETIME);
	sigaction(SIGUSR1, &action, NULL);
	pthread_create(&thread, NULL, interrupt_main, &me);
	check("an interrupted wait", enter_call(r.fd, 0, 1, GETEVENTS, 0, 0), -EINTR);
	check("handlers run", came, 1);
	pthread_join(thread, NULL);
	end_ring(&r);
}

/* A compiler that makes its code in small pieces, over and over. */
static void many_pieces(void)
{
	enum { PIECES = 1000, STEP = 1 << 16 };
	char *area = mmap(NULL, (long)PIECES * STEP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), line[256];
	FILE *status;
	int filters = 0;

	for (int i = 0; i < PIECES; i++) {
		code = make_code_at(area + (long)(i * 7 % PIECES) * STEP, 4096);
		if (i % 50 == 0)
			one_ring(i);
	}
	for (int i = 0; i < 100; i++)
		code = make_code_at(NULL, 4096 << i % 4);
	one_ring(7);
	status = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof(line), status))
		sscanf(line, "Seccomp_filters: %d", &filters);
	is_true("few filters", filters < 40);
	fclose(status);
}

/* Code in a file that is mapped twice. */
static void mapped_file(void)
{
	int fd = memfd_create("code", 0);

	write(fd, call_bytes, sizeof(call_bytes));
	code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	one_ring(1);
	code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	one_ring(2);
	close(fd);
}

/* Code that makes code. */
static void made_by_code(void)
{
	long page = code(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy((void *)page, call_bytes, sizeof(call_bytes));
	code = (call_code *)page;
	one_ring(3);
	page = (long)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy((void *)page, call_bytes, sizeof(call_bytes));
	check("mprotect", code(SYS_mprotect, page, 4096, PROT_READ | PROT_EXEC, 0, 0, 0), 0);
	code = (call_code *)page;
	one_ring(4);
}

static pthread_barrier_t barrier;

static void *later(void *seed)
{
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 20; i++)
		one_ring((long)seed + i);
	return NULL;
}

/* Threads that were there before the code. */
static void threads(void)
{
	pthread_t thread[4];

	pthread_barrier_init(&barrier, NULL, 5);
	for (long i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, later, (void *)(i * 100));
	code = make_code_at(NULL, 4096);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	one_ring(5);
}

static void ended_by(const char *what, int expected)
{
	int status;

	wait(&status);
	check(what, status, expected);
}

static const char *child_mode = "child";

/* argv[2] is a static program that asks for a ring. */
static void children(char *other)
{
	char *child[] = { self, (char *)child_mode, NULL }, *plain[] = { other, NULL }, *empty[] = { "A=b", NULL };
	char command[9000];
	pid_t pid;

	snprintf(command, sizeof(command), "%s %s && %s", self, child_mode, other);
	for (int round = 0; round < 20; round++) {
		check("posix_spawn", posix_spawn(&pid, self, NULL, NULL, child, environ), 0);
		ended_by("a child", 0);
		check("posix_spawn of another program", posix_spawn(&pid, other, NULL, NULL, plain, empty), 0);
		ended_by("another program", 0);
		if (vfork() == 0) {
			execve(self, child, empty);
			_exit(1);
		}
		ended_by("a child without an environment", 0);
		check("system", system(command), 0);
		if (fork() == 0) {
			one_ring(6);
			exit(failures != 0);
		}
		ended_by("a fork", 0);
		/* No hook sees this one. */
		if (fork() == 0) {
			code(SYS_execve, (long)self, (long)child, (long)empty, 0, 0, 0);
			_exit(1);
		}
		ended_by("a child that cannot be attached", 0);
	}
}

static int as_child(void)
{
	code = make_code_at(NULL, 4096);
	/* One that is not attached gets the kernel's answer, whatever that is, and lives. */
	if (getenv("LD_PRELOAD") && getenv("URINGLET_TRAP"))
		one_ring(8);
	else
		setup_call(1, NULL);
	return failures != 0;
}

static void from_handler(int signal)
{
	one_ring(9);
	came++;
}

static int blocks_sigsys(const sigset_t *set)
{
	return sigismember(set, SIGSYS);
}

/* The program's own masks: it may block what it likes, and sees what it has asked for. */
static void masks(void)
{
	sigset_t all, old, some;
	struct sigaction action = { .sa_handler = from_handler }, back;
	uint64_t kernel = ~0ull;

	came = 0;
	sigfillset(&all);
	sigemptyset(&some);
	sigaddset(&some, SIGUSR2);
	check("nothing is blocked", sigprocmask(SIG_BLOCK, NULL, &old) || blocks_sigsys(&old), 0);
	check("everything is blocked", sigprocmask(SIG_BLOCK, &all, &old) || blocks_sigsys(&old), 0);
	one_ring(10);
	check("it is seen", sigprocmask(SIG_BLOCK, &some, &old) || !blocks_sigsys(&old), 0);
	check("pthread_sigmask", pthread_sigmask(SIG_SETMASK, &some, &old) || !blocks_sigsys(&old), 0);
	check("SIGSYS is free", pthread_sigmask(SIG_SETMASK, &all, &old) || blocks_sigsys(&old), 0);
	one_ring(11);
	check("unblocked", sigprocmask(SIG_UNBLOCK, &all, &old) || !blocks_sigsys(&old), 0);
	check("free again", sigprocmask(SIG_BLOCK, NULL, &old) || blocks_sigsys(&old), 0);
	check("a bad request", sigprocmask(77, &all, &old), -1);
	check("a bad request changes nothing", sigprocmask(SIG_BLOCK, NULL, &old) || blocks_sigsys(&old), 0);

	sigfillset(&action.sa_mask);
	check("sigaction", sigaction(SIGUSR1, &action, NULL), 0);
	raise(SIGUSR1);
	check("a ring in a handler that blocks everything", came, 1);
	check("the handler's mask is seen", sigaction(SIGUSR1, NULL, &back) || !blocks_sigsys(&back.sa_mask), 0);
	is_true("and its handler", back.sa_handler == from_handler);
	sigemptyset(&action.sa_mask);
	check("another mask", sigaction(SIGUSR1, &action, &back) || !blocks_sigsys(&back.sa_mask), 0);
	check("is seen", sigaction(SIGUSR1, NULL, &back) || blocks_sigsys(&back.sa_mask), 0);
	one_ring(12);
}

static int own_traps;

static void own_trap(int signal, siginfo_t *info, void *context)
{
	own_traps += info->si_code == 1 && info->si_errno == 5;
	came++;
}

static void trap_getppid(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP | 5),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	check("a filter", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* What a child dies of that gets SIGSYS in this way. */
static int dies_of(void (*what)(void))
{
	int status;

	if (fork() == 0) {
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
		what();
		_exit(0);
	}
	wait(&status);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void raise_it(void)
{
	raise(SIGSYS);
}

static void be_trapped(void)
{
	trap_getppid();
	getppid();
}

/* The program's own actions for SIGSYS, its own traps among them. */
static void actions(void)
{
	struct sigaction action = { .sa_sigaction = own_trap, .sa_flags = SA_SIGINFO | SA_RESTART }, back;

	came = 0;
	check("the default", sigaction(SIGSYS, NULL, &back) || back.sa_handler != SIG_DFL, 0);
	check("it kills", dies_of(raise_it), SIGSYS);
	check("a trap kills", dies_of(be_trapped), SIGSYS);
	is_true("signal() gives the default back", signal(SIGSYS, SIG_IGN) == SIG_DFL);
	check("ignored", sigaction(SIGSYS, NULL, &back) || back.sa_handler != SIG_IGN, 0);
	check("what is ignored does not kill", dies_of(raise_it), 0);
	check("but a trap", dies_of(be_trapped), SIGSYS);
	one_ring(13);
	check("a handler", sigaction(SIGSYS, &action, &back) || back.sa_handler != SIG_IGN, 0);
	check("is seen", sigaction(SIGSYS, NULL, &back) || back.sa_sigaction != own_trap, 0);
	check("with its flags", back.sa_flags & ~0x04000000, SA_SIGINFO | SA_RESTART);
	one_ring(14);
	check("our calls do not come to it", came, 0);
	raise(SIGSYS);
	check("others do", came, 1);
	trap_getppid();
	getppid();
	check("and the program's own traps", own_traps, 1);
	one_ring(15);
	check("and nothing else", came, 2);
	action.sa_flags |= SA_RESETHAND;
	sigaction(SIGSYS, &action, NULL);
	raise(SIGSYS);
	check("once", came, 3);
	check("then the default", sigaction(SIGSYS, NULL, &back) || back.sa_handler != SIG_DFL, 0);
	one_ring(16);
}

/* The calls of the program's own text. */
static void text(void)
{
	by_text = 1;
	one_ring(17);
	waits();
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	section = mode;
	readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (strcmp(mode, "text") == 0) {
		text();
		return failures != 0;
	}
	if (strcmp(mode, "child") == 0)
		return as_child();
	if (strcmp(mode, "threads") != 0)
		code = make_code_at(NULL, 4096);
	if (strcmp(mode, "rings") == 0)
		one_ring(0), polled(), waits(), mapped_file(), made_by_code();
	else if (strcmp(mode, "pieces") == 0)
		many_pieces();
	else if (strcmp(mode, "threads") == 0)
		threads();
	else if (strcmp(mode, "children") == 0)
		children(argv[2]);
	else if (strcmp(mode, "masks") == 0)
		masks();
	else if (strcmp(mode, "actions") == 0)
		actions();
	else
		return 2;
	return failures != 0;
}
