/*
 * Programs that make no ring, each under a filter that kills it at any system call but those that
 * the program itself makes. They must live with the engine attached as without it.
 * Arguments: a static program that exits with 7, a library without system calls.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_CALLS 24
#define CALLS(...) ((const int[MAX_CALLS]){ __VA_ARGS__ })
#define must(truth) must_at(__LINE__, #truth, truth)

extern char **environ;
static const char *exit_seven, *library;
static int pipes[2], file, set;

static void must_at(int line, const char *what, int truth)
{
	char text[256];

	if (!truth) {
		int len = snprintf(text, sizeof(text), "line %d: %s: %s\n", line, what, strerror(errno));

		write(1, text, len);
		_exit(1);
	}
}

/*
 * From now on only these calls (a list that ends with 0), read, write and exit_group. `denied`
 * answers `error`.
 */
static void allow(const int *calls, int denied, int error)
{
	struct sock_filter code[2 * MAX_CALLS + 8];
	int n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
#define ANSWER(nr, action) do { \
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1); \
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action); \
} while (0)
	if (denied)
		ANSWER(denied, SECCOMP_RET_ERRNO | error);
	ANSWER(SYS_read, SECCOMP_RET_ALLOW);
	ANSWER(SYS_write, SECCOMP_RET_ALLOW);
	ANSWER(SYS_exit_group, SECCOMP_RET_ALLOW);
	for (int i = 0; i < MAX_CALLS && calls[i]; i++)
		ANSWER(calls[i], SECCOMP_RET_ALLOW);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);

	struct sock_fprog filter = { n, code };

	must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	must(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
}

static void refused_opens(int error)
{
	const char *bad[] = { NULL, (void *)8, (void *)-4096 };

	allow(CALLS(0), SYS_openat, error);
	must(open("/etc/passwd", O_RDONLY) == -1 && errno == error);
	must(open("relative", O_RDWR | O_CREAT, 0600) == -1 && errno == error);
	must(open64("", O_RDONLY) == -1 && errno == error);
	must(openat(AT_FDCWD, "/dev/null", O_RDONLY) == -1 && errno == error);
	must(openat64(AT_FDCWD, "/device", O_RDONLY) == -1 && errno == error);
	for (int i = 0; i < 3; i++)
		must(open(bad[i], O_RDONLY) == -1 && errno == error);
}

static void open_refused_with_eacces(void) { refused_opens(EACCES); }
static void open_refused_with_eperm(void) { refused_opens(EPERM); }

static void open_refused_by_permissions(void)
{
	if (!geteuid()) {
		must(!setresgid(65534, 65534, 65534) && !setresuid(65534, 65534, 65534));
	}
	allow(CALLS(SYS_openat), 0, 0);
	must(open("/proc/1/mem", O_RDWR) == -1 && (errno == EACCES || errno == EPERM));
	must(open("/nowhere/at/all", O_RDONLY) == -1 && errno == ENOENT);
	must(open((void *)8, O_RDONLY) == -1 && errno == EFAULT);
}

static void stat_of_missing_paths(void)
{
	struct stat st;

	allow(CALLS(SYS_newfstatat, SYS_stat, SYS_access, SYS_faccessat, SYS_faccessat2, SYS_openat), 0, 0);
	must(stat("/nowhere", &st) == -1 && errno == ENOENT);
	must(lstat("nowhere", &st) == -1 && errno == ENOENT);
	must(fstatat(AT_FDCWD, "/dev/nowhere", &st, 0) == -1 && errno == ENOENT);
	must(access("/nowhere", R_OK) == -1 && errno == ENOENT);
	must(!opendir("/nowhere") && errno == ENOENT);
}

static void polls(void)
{
	struct pollfd fds[2] = { { pipes[0], POLLIN }, { pipes[1], POLLOUT } };
	struct timespec now = { 0 };
	struct timeval none = { 0 };
	fd_set writable;

	allow(CALLS(SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6), 0, 0);
	must(poll(fds, 2, 0) == 1);
	must(ppoll(fds, 2, &now, NULL) == 1);
	FD_ZERO(&writable);
	FD_SET(pipes[1], &writable);
	must(select(pipes[1] + 1, NULL, &writable, NULL, &none) == 1);
	must(pselect(pipes[1] + 1, NULL, &writable, NULL, &now, NULL) == 1);
	must(syscall(SYS_poll, fds, 2, 0) == 1);
	must(poll((void *)8, 1, 0) == -1 && errno == EFAULT);
}

static void epolls(void)
{
	struct epoll_event event = { EPOLLOUT };

	allow(CALLS(SYS_epoll_ctl, SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2), 0, 0);
	must(!epoll_ctl(set, EPOLL_CTL_ADD, pipes[1], &event));
	must(epoll_wait(set, &event, 1, 0) == 1);
	must(epoll_pwait(set, &event, 1, 0, NULL) == 1);
	must(syscall(SYS_epoll_wait, set, &event, 1, 0) == 1);
	must(!epoll_ctl(set, EPOLL_CTL_DEL, pipes[1], &event));
}

static void numbers(void)
{
	allow(CALLS(SYS_dup, SYS_dup2, SYS_dup3, SYS_fcntl, SYS_close, SYS_close_range), 0, 0);
	int copy = dup(file);

	must(copy >= 0);
	must(dup2(file, copy) == copy && dup2(file, file) == file);
	must(dup2(file, 200) == 200 && dup3(file, 201, O_CLOEXEC) == 201);
	must(dup2(-1, 200) == -1 && errno == EBADF);
	must(fcntl(file, F_DUPFD, 300) == 300 && fcntl(file, F_DUPFD_CLOEXEC, 400) == 400);
	must(fcntl(file, F_GETFL) >= 0);
	must(!close(copy) && close(copy) == -1 && errno == EBADF);
	must(syscall(SYS_dup2, file, 202) == 202 && !syscall(SYS_close, 202));
	must(!close_range(200, 400, 0));
	closefrom(500);
	must(fcntl(300, F_GETFD) == -1);
}

static void mappings(void)
{
	allow(CALLS(SYS_mmap, SYS_munmap), 0, 0);
	void *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);

	must(at != MAP_FAILED && !munmap(at, 4096));
	must(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED && errno == EBADF);
}

static void limits(void)
{
	struct rlimit limit;

	allow(CALLS(SYS_prlimit64, SYS_setrlimit, SYS_getrlimit), 0, 0);
	must(!getrlimit(RLIMIT_FSIZE, &limit));
	must(!setrlimit(RLIMIT_FSIZE, &limit));
	must(!prlimit(0, RLIMIT_NOFILE, NULL, &limit));
	must(!prlimit(0, RLIMIT_NOFILE, &limit, NULL));
}

static void identities(void)
{
	gid_t groups[1] = { 65534 };

	if (geteuid())
		return;
	allow(CALLS(SYS_setgroups, SYS_setresgid, SYS_setresuid, SYS_setreuid, SYS_setregid, SYS_setuid, SYS_setgid, SYS_setfsuid, SYS_setfsgid,
		    SYS_prctl, SYS_unshare), 0, 0);
	must(!setgroups(1, groups));
	must(!setegid(65534) && !setegid(0) && !seteuid(65534) && !seteuid(0));
	must(!setfsuid(0) && !setfsgid(0));
	must(!unshare(0) && !prctl(PR_SET_NAME, "alone"));
	must(!setresgid(65534, 65534, 65534) && !setregid(65534, 65534) && !setgid(65534));
	must(!setresuid(65534, 65534, 65534) && !setreuid(65534, 65534) && !setuid(65534));
}

static volatile int handled;

static void count(int signal)
{
	handled++;
}

static void handlers(void)
{
	struct sigaction action = { .sa_handler = count }, old;
	pid_t self = getpid();

	allow(CALLS(SYS_rt_sigaction, SYS_rt_sigreturn, SYS_kill), 0, 0);
	must(!sigaction(SIGUSR1, &action, NULL) && !sigaction(SIGUSR1, NULL, &old) && old.sa_handler == count);
	must(signal(SIGUSR2, count) == SIG_DFL && signal(SIGUSR2, SIG_IGN) == count);
	must(!kill(self, SIGUSR1) && handled == 1);
}

/* The calls of fork, vfork and posix_spawn in glibc and musl, and those of their children. */
#define SPAWN_CALLS SYS_clone, SYS_clone3, SYS_fork, SYS_vfork, SYS_set_robust_list, SYS_wait4, SYS_execve, SYS_rt_sigprocmask, \
	SYS_rt_sigaction, SYS_mmap, SYS_mprotect, SYS_munmap, SYS_gettid, SYS_rseq

static void ends_with_seven(pid_t pid)
{
	int status = 0;

	must(pid > 0 && waitpid(pid, &status, 0) == pid);
	must(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void fork_and_exec(void)
{
	char *arguments[] = { "seven", NULL }, *local[] = { "A=b", "C=d", NULL };
	char **heap = calloc(4, sizeof(*heap));
	pid_t pid;

	heap[0] = strdup("E=f");
	allow(CALLS(SPAWN_CALLS), 0, 0);
	for (int i = 0; i < 4; i++) {
		pid = fork();
		if (!pid) {
			execve(exit_seven, arguments, i == 0 ? environ : i == 1 ? local : i == 2 ? heap : NULL);
			_exit(1);
		}
		ends_with_seven(pid);
	}
	pid = vfork();
	if (!pid) {
		execv(exit_seven, arguments);
		_exit(1);
	}
	ends_with_seven(pid);
	must(execve(exit_seven, arguments, (char **)8) == -1 && errno == EFAULT);
	must(execve("/nowhere", arguments, local) == -1 && errno == ENOENT);
}

static void spawn(void)
{
	char *arguments[] = { "seven", NULL }, *local[] = { "A=b", NULL };
	pid_t pid;

	allow(CALLS(SPAWN_CALLS), 0, 0);
	must(!posix_spawn(&pid, exit_seven, NULL, NULL, arguments, environ));
	ends_with_seven(pid);
	must(!posix_spawn(&pid, exit_seven, NULL, NULL, arguments, local));
	ends_with_seven(pid);
}

static void load_a_library(void)
{
	allow(CALLS(SYS_openat, SYS_pread64, SYS_fstat, SYS_newfstatat, SYS_mmap, SYS_mprotect, SYS_munmap, SYS_close, SYS_brk,
		    SYS_getrandom, SYS_readlink, SYS_futex, SYS_getcwd), 0, 0);
	void *handle = dlopen(library, RTLD_NOW);
	int (*answer)(void) = handle ? dlsym(handle, "answer") : NULL;

	must(answer && answer() == 42);
	must(!dlclose(handle));
}

static const struct { const char *name; void (*run)(void); } programs[] = {
#define PROGRAM(name) { #name, name }
	PROGRAM(open_refused_with_eacces),
	PROGRAM(open_refused_with_eperm),
	PROGRAM(open_refused_by_permissions),
	PROGRAM(stat_of_missing_paths),
	PROGRAM(polls),
	PROGRAM(epolls),
	PROGRAM(numbers),
	PROGRAM(mappings),
	PROGRAM(limits),
	PROGRAM(identities),
	PROGRAM(handlers),
	PROGRAM(fork_and_exec),
	PROGRAM(spawn),
	PROGRAM(load_a_library),
};

int main(int count, char **arguments)
{
	int failed = 0;

	exit_seven = arguments[1];
	library = arguments[2];
	file = open(arguments[0], O_RDONLY);
	set = epoll_create1(0);
	must(file >= 0 && set >= 0 && !pipe(pipes));
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		int status = 0;
		pid_t pid = fork();

		if (!pid) {
			programs[i].run();
			_exit(0);
		}
		waitpid(pid, &status, 0);
		if (status)
			printf("%s: %s %d\n", programs[i].name, WIFSIGNALED(status) ? "killed by signal" : "status",
			       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		failed |= status != 0;
	}
	puts(failed ? "NOT left alone" : "left alone");
	return failed;
}
