/*
 * Waiting for children through a ring: by process, descriptor, group and all of them; ended,
 * stopped, cancelled, reaped by another wait.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/wait.h>
#include "net_ring.h"

enum { WAITID = 50, LINK_TIMEOUT = 15, MARK = 0x55 };
#define WAIT(which, id, options) SQE(WAITID, .fd = id, .len = which, .off = ADDR(&info), .file_index = options)
#define PIDFD(pid, flags) syscall(434, pid, flags)

static siginfo_t info;

static pid_t child(void)
{
	pid_t pid = fork();

	if (!pid)
		for (;;)
			pause();
	return pid;
}

static pid_t ended(int status)
{
	pid_t pid = fork();

	if (!pid)
		_exit(status);
	return pid;
}

/*
 * The siginfo that was returned; all 0 if the signal is 0, and untouched where all bytes are MARK.
 */
static void told(const char *what, int pid, int code, int status)
{
	check(what, info.si_signo, pid ? SIGCHLD : 0);
	check(what, info.si_pid, pid);
	check(what, info.si_code, code);
	check(what, info.si_status, status);
	memset(&info, MARK, sizeof(info));
}

static void untold(const char *what)
{
	check(what, info.si_signo, 0x55555555);
	check(what, info.si_pid, 0x55555555);
}

static void answers(void)
{
	pid_t pid;

	new_ring("answers");
	does("no child", WAIT(P_ALL, 0, WEXITED), -ECHILD, 0);
	told("nothing", 0, 0, 0);
	does("no child of ours", WAIT(P_PID, 1, WEXITED), -ECHILD, 0);
	pid = ended(3);
	does("ended", WAIT(P_PID, pid, WEXITED), 0, 0);
	told("its status", pid, CLD_EXITED, 3);
	does("gone", WAIT(P_PID, pid, WEXITED), -ECHILD, 0);
	pid = ended(7);
	does("left", WAIT(P_PID, pid, WEXITED | WNOWAIT), 0, 0);
	told("its status", pid, CLD_EXITED, 7);
	does("and taken", WAIT(P_ALL, 0, WEXITED), 0, 0);
	told("its status", pid, CLD_EXITED, 7);
	pid = ended(8);
	does("nobody is told", SQE(WAITID, .fd = pid, .len = P_PID, .file_index = WEXITED), 0, 0);
	untold("nothing");
	does("gone", WAIT(P_PID, pid, WEXITED), -ECHILD, 0);
}

static void malformed(pid_t pid)
{
	struct sqe good = WAIT(P_PID, pid, WEXITED | WNOHANG), bad[] = { good, good, good, good, good, good };
	int i;

	new_ring("malformed");
	memset(&info, MARK, sizeof(info));
	bad[0].addr = bad[1].buf_index = bad[2].addr3 = bad[3].op_flags = bad[4].ioprio = bad[5].personality = 1;
	for (i = 0; i < 6; i++)
		does("unused field", bad[i], -EINVAL, 0);
	does("which", WAIT(9, pid, WEXITED), -EINVAL, 0);
	does("nothing to wait for", WAIT(P_PID, pid, WNOHANG), -EINVAL, 0);
	does("option", WAIT(P_PID, pid, WEXITED | 0x100), -EINVAL, 0);
	does("process 0", WAIT(P_PID, 0, WEXITED), -EINVAL, 0);
	does("process -1", WAIT(P_PID, -1, WEXITED), -EINVAL, 0);
	does("group -1", WAIT(P_PGID, -1, WEXITED), -EINVAL, 0);
	does("no pidfd", WAIT(P_PIDFD, 0, WEXITED), -EBADF, 0);
	does("no file", WAIT(P_PIDFD, 999, WEXITED), -EBADF, 0);
	does("file -1", WAIT(P_PIDFD, -1, WEXITED), -EINVAL, 0);
	untold("of what is malformed");
	does("not yet", good, 0, 0);
	told("nothing", 0, 0, 0);
	good.flags = FIXED_FILE;
	good.pad2 = 1;
	does("neither is looked at", good, 0, 0);
	good.flags = FORCE_ASYNC;
	does("asynchronous", good, 0, 0);
	good.off = BAD_ADDRESS;
	does("address", good, -EFAULT, 0);
	good.flags = BUFFER_SELECT;
	does("buffer select", good, -EOPNOTSUPP, 0);
	does("group 0", WAIT(P_PGID, 0, WEXITED | WNOHANG), 0, 0);
	does("descriptor that does not block", WAIT(P_PIDFD, PIDFD(pid, O_NONBLOCK), WEXITED), 0, 0);
	told("nothing", 0, 0, 0);
}

/* Another wait may have reaped the child. */
static void ended_or_gone(const char *what)
{
	int res = next();

	check(what, res == 0 || res == -ECHILD, 1);
}

/* No CQE before the child ends; then its status. */
static void waits(const char *what, pid_t pid, struct sqe sqe)
{
	submit(sqe);
	nothing_comes(what);
	kill(pid, SIGKILL);
	expect(what, 0, 0);
	told(what, pid, CLD_KILLED, SIGKILL);
}

static void ends(void)
{
	pid_t pid = child();
	int fd;

	new_ring("ends");
	waits("process", pid, WAIT(P_PID, pid, WEXITED));
	pid = child();
	waits("all", pid, WAIT(P_ALL, 0, WEXITED));
	pid = child();
	waits("group", pid, WAIT(P_PGID, getpgrp(), WEXITED));
	pid = child();
	waits("more than the end", pid, WAIT(P_PID, pid, WEXITED | WSTOPPED));
	pid = child();
	waits("descriptor", pid, WAIT(P_PIDFD, PIDFD(pid, 0), WEXITED));
	pid = child();
	fd = PIDFD(pid, 0);
	submit(WAIT(P_PIDFD, fd, WEXITED));
	close(fd);
	kill(pid, SIGKILL);
	expect("closed", 0, 0);
	told("closed", pid, CLD_KILLED, SIGKILL);
	pid = child();
	submit(WAIT(P_PID, pid, WEXITED));
	kill(pid, SIGKILL);
	waitpid(pid, 0, 0);
	ended_or_gone("who is first");
}

static void stops(pid_t pid)
{
	new_ring("stops");
	memset(&info, MARK, sizeof(info));
	submit(WAIT(P_ALL, 0, WEXITED | WSTOPPED));
	nothing_comes("runs");
	kill(pid, SIGSTOP);
	expect("stopped", 0, 0);
	told("stopped", pid, CLD_STOPPED, SIGSTOP);
	submit(WAIT(P_PID, pid, WCONTINUED));
	nothing_comes("stands");
	kill(pid, SIGCONT);
	expect("continued", 0, 0);
	told("continued", pid, CLD_CONTINUED, SIGCONT);
}

/*
 * A cancel counts what it ends, even a single request; so does a time limit. The order of the two
 * CQEs is open.
 */
static void cancels(pid_t pid)
{
	struct sqe waits[] = { WAIT(P_ALL, 0, WEXITED), WAIT(P_PID, pid, WEXITED), WAIT(P_PID, pid, WEXITED | WSTOPPED) }, linked;
	uint64_t soon[2] = { 0, 20000000 };
	int i;

	new_ring("cancels");
	for (i = 0; i < 3; i++) {
		waits[i].user_data = 5;
		submit(waits[i]);
		nothing_comes("waits");
		submit(SQE(ASYNC_CANCEL, .addr = 5));
		check("cancelled", next() + next(), 1 - ECANCELED);
		/* At once, before a worker can have begun. */
		submit(waits[i]);
		submit(SQE(ASYNC_CANCEL, .addr = 5));
		check("cancelled at once", next() + next(), 1 - ECANCELED);
		linked = waits[i];
		linked.flags = LINK;
		submit_linked(linked, SQE(LINK_TIMEOUT, .addr = ADDR(soon), .len = 1));
		check("late", next() + next(), 1 - ECANCELED);
	}
	linked = WAIT(P_PID, 1, WEXITED);
	linked.flags = LINK;
	submit_linked(linked, SQE(NOP));
	check("fails", next(), -ECHILD);
	check("its link", next(), -ECANCELED);
	/*
	 * A wait whose ring ends reaps no child: the child is still there. The kernel ends its ring some
	 * time after the last close, and until then the wait may reap it.
	 */
	submit(waits[0]);
	new_ring("after that");
	kill(pid, SIGKILL);
	submit(WAIT(P_PID, pid, WEXITED));
	if (getenv("BLOCK_IO_URING"))
		expect("reaped by its successor", 0, 0);
	else
		ended_or_gone("reaped by its successor");
}

/* More waits than workers, and each completes. */
static void many(void)
{
	enum { N = 24 };
	pid_t pids[N];
	int i;

	new_ring("many");
	for (i = 0; i < N; i++) {
		pids[i] = child();
		submit(SQE(WAITID, .fd = pids[i], .len = i & 1 ? P_ALL : P_PID, .file_index = WEXITED));
	}
	for (i = 0; i < N; i++)
		kill(pids[i], SIGKILL);
	for (i = 0; i < N; i++)
		ended_or_gone("ends");
	nothing_comes("all are reaped");
	while (waitpid(-1, 0, 0) > 0)
		;
}

int main(void)
{
	pid_t pid;

	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	answers();
	ends();
	many();
	pid = child();
	malformed(pid);
	stops(pid);
	cancels(pid);
	return failures > 0;
}
