/*
 * Makes children in every way, most of them with an environment that has lost LD_PRELOAD. The child
 * prints which side answers its io_uring_setup.
 */
#include "blocked.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

static char self[4096];
static char *child_argv[] = { self, "child", NULL };
static char *empty[] = { "A=b", NULL };
static char *other[] = { "LD_PRELOAD=libm.so.6", "B=c", NULL };

static void ended(const char *road)
{
	int status;

	if (wait(&status) < 0 || status != 0) {
		printf("%s: status %x\n", road, status);
		exit(1);
	}
}

static void say(const char *road)
{
	printf("%s: ", road);
	fflush(stdout);
}

#define fork_and(road, exec) do { \
	say(road); \
	if (fork() == 0) { \
		exec; \
		_exit(9); \
	} \
	ended(road); \
} while (0)

int main(int argc, char **argv)
{
	char command[5000];
	pid_t pid;

	if (argc > 1) {
		errno = 0;
		syscall(425, 1, NULL);
		puts(errno == EPERM ? "kernel" : "engine");
		return 0;
	}
	readlink("/proc/self/exe", self, sizeof(self) - 1);
	block_io_uring();

	say("posix_spawn");
	if (posix_spawn(&pid, self, NULL, NULL, child_argv, empty))
		return 1;
	ended("posix_spawn");
	say("posix_spawn with another preload");
	if (posix_spawn(&pid, self, NULL, NULL, child_argv, other))
		return 1;
	ended("posix_spawn");
	say("vfork, after a failure");
	if (vfork() == 0) {
		execve("/nowhere", child_argv, empty);
		execve(self, child_argv, NULL);
		_exit(9);
	}
	ended("vfork");
	say("fork and fexecve");
	if (fork() == 0) {
		fexecve(open(self, O_RDONLY | O_CLOEXEC), child_argv, empty);
		_exit(9);
	}
	ended("fork");
	say("a fork alone");
	if (fork() == 0) {
		errno = 0;
		syscall(425, 1, NULL);
		puts(errno == EPERM ? "kernel" : "engine");
		fflush(stdout);
		_exit(0);
	}
	ended("fork");
	clearenv();
	/* Before anything has hooked the calls inside libc. */
	fork_and("execv", execv(self, child_argv));
	fork_and("execvp", execvp(self, child_argv));
	fork_and("execvpe", execvpe(self, child_argv, empty));
	fork_and("execl", execl(self, self, "child", NULL));
	fork_and("execlp", execlp(self, self, "child", NULL));
	fork_and("execle", execle(self, self, "child", NULL, other));
	say("posix_spawnp");
	if (posix_spawnp(&pid, self, NULL, NULL, child_argv, environ ? environ : empty))
		return 1;
	ended("posix_spawnp");
	say("popen");
	snprintf(command, sizeof(command), "%s child", self);
	if (pclose(popen(command, "w")))
		return 1;
	say("system");
	if (system(command))
		return 1;
	errno = 0;
	if (execve(self, child_argv, (char **)8) != -1 || errno != EFAULT)
		return puts("a bad environment is the kernel's to refuse"), 1;
	say("execve");
	execve(self, child_argv, empty);
	return 9;
}
