/*
 * Runs a program and names the system calls that are made by code of one object and are not in a
 * list.
 *
 *   filters_trace OBJECT [CALL...] -- PROGRAM [ARGUMENT...]
 *
 * OBJECT: how the object's path ends. CALL: a number. A filter lets the listed calls pass at full
 * speed and stops the others, whose instruction pointer then tells who makes them. Standard output
 * is the program's. Exit status: the program's, or 100 if there were such calls: standard error
 * has their numbers.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_CALLS = 512, UNLISTED = 100 };

static char is_reported[MOST_CALLS];
static int reported;

static void stop_unlisted(int calls, char **numbers)
{
	struct sock_filter code[2 * 256 + 4];
	int n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < calls && i < 256; i++) {
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, atoi(numbers[i]), 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
	struct sock_fprog filter = { n, code };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
		perror("seccomp");
		_exit(99);
	}
}

/* Whether an address of the process lies in the object. */
static int is_in_object(pid_t pid, uint64_t address, const char *object)
{
	char path[64], line[4096];
	int found = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "r");
	while (maps && !found && fgets(line, sizeof(line), maps)) {
		uint64_t start, end;
		size_t len = strcspn(line, "\n");

		line[len] = 0;
		found = sscanf(line, "%lx-%lx", &start, &end) == 2 && address >= start && address < end && len >= strlen(object) &&
			!strcmp(line + len - strlen(object), object);
	}
	if (maps)
		fclose(maps);
	return found;
}

static void on_call(pid_t pid, const char *object)
{
	struct __ptrace_syscall_info info;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0 || info.op != PTRACE_SYSCALL_INFO_SECCOMP)
		return;
	if (info.seccomp.nr < MOST_CALLS && !is_reported[info.seccomp.nr] && is_in_object(pid, info.instruction_pointer, object)) {
		is_reported[info.seccomp.nr] = 1;
		reported++;
		fprintf(stderr, "unlisted: %d\n", (int)info.seccomp.nr);
	}
}

/* Follows the program and its children to the end of all; the program's wait status. */
static int follow(pid_t program, const char *object)
{
	int status, result = 0;
	pid_t pid;

	while ((pid = waitpid(-1, &status, __WALL)) > 0) {
		int signal = WSTOPSIG(status), event = status >> 16;

		if (!WIFSTOPPED(status)) {
			if (pid == program)
				result = status;
			continue;
		}
		if (event == PTRACE_EVENT_SECCOMP)
			on_call(pid, object);
		if (event == PTRACE_EVENT_STOP && (signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU))
			ptrace(PTRACE_LISTEN, pid, 0, 0);
		else
			ptrace(PTRACE_CONT, pid, 0, event ? 0 : signal);
	}
	return result;
}

int main(int argc, char **argv)
{
	const long options = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_TRACESECCOMP;
	int calls = 0, status, go[2];
	char c;
	pid_t pid;

	while (2 + calls < argc && strcmp(argv[2 + calls], "--"))
		calls++;
	if (3 + calls >= argc || pipe(go))
		return 99;
	pid = fork();
	if (pid == 0) {
		close(go[1]);
		read(go[0], &c, 1);
		close(go[0]);
		stop_unlisted(calls, argv + 2);
		execvp(argv[3 + calls], argv + 3 + calls);
		_exit(99);
	}
	if (ptrace(PTRACE_SEIZE, pid, 0, options | PTRACE_O_EXITKILL)) {
		perror("ptrace");
		return 77;
	}
	close(go[0]), close(go[1]);
	status = follow(pid, argv[1]);
	if (reported)
		return UNLISTED;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
