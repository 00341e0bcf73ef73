/*
 * Starts a program in every way, each time with an environment that has lost LD_PRELOAD. The
 * program is this one again, or a script for it: it prints its name and arguments, and which side
 * answers its io_uring_setup.
 *
 * children roads TARGET        every road
 * children many TARGET COUNT   that many by vfork and a call of its own; prints how many were lost,
 *                              and how much more the process has at the end
 * children errors FILE...      what execve answers for each, and for bad arguments
 */
#include "blocked.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

static char *target, target_dir[PATH_MAX], target_path[PATH_MAX + 8], *target_name;
static char *child_argv[] = { "a name", "child", "x y", NULL };
static char *empty[] = { "A=b", NULL };

/* A call with a constant number. */
#define own_call(number, a, b, c, d, e) ({ \
	long result; \
	register long fourth asm("r10") = (long)(d); \
	register long fifth asm("r8") = (long)(e); \
	asm volatile("mov $" #number ", %%eax\n\tsyscall" \
		     : "=a"(result) : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth) : "rcx", "r11", "memory"); \
	result; \
})

static __attribute__((noinline)) long own_execve(const char *path, char **arguments, char **environment)
{
	return own_call(59, path, arguments, environment, NULL, 0);
}

static __attribute__((noinline)) long own_execveat(int dir, const char *path, int flags)
{
	return own_call(322, (long)dir, path, child_argv, empty, (long)flags);
}

static int child(int argc, char **argv)
{
	char name[32] = "";

	int by_kernel = own_call(425, 1, NULL, NULL, NULL, 0) == -EPERM;

	prctl(PR_GET_NAME, name);
	printf("%s %s:", by_kernel ? "kernel" : "engine", name);
	for (int i = 0; i < argc; i++)
		printf(" %s", strncmp(argv[i], "/dev/fd/", 8) ? argv[i] : "by descriptor");
	for (char **variable = environ; *variable; variable++)
		if (strncmp(*variable, "LD_PRELOAD=", 11))
			printf(" %s", *variable);
	printf("\n");
	return 0;
}

static long own_vfork_and_execve(const char *path, char **arguments, char **environment)
{
	pid_t pid = vfork();

	if (pid == 0) {
		own_execve("/nowhere", arguments, environment);
		own_execve(path, arguments, environment);
		_exit(9);
	}
	return pid;
}

static int wait_for(const char *road, pid_t pid)
{
	int status = -1;

	if (waitpid(pid, &status, 0) != pid || status != 0)
		printf("%s: status %x\n", road, status);
	return status;
}

#define road(name, call) do { \
	printf("%s: ", name); \
	fflush(stdout); \
	pid_t pid = fork(); \
	if (pid == 0) { \
		call; \
		perror(name); \
		_exit(9); \
	} \
	wait_for(name, pid); \
} while (0)

static void spawned(const char *name, int error, pid_t *pid)
{
	if (error)
		printf("%s: error %d\n", name, error);
	else
		wait_for(name, *pid);
}

static int roads(void)
{
	char command[2 * PATH_MAX];
	pid_t pid;

	/* exec of the shell: the same process, so the same name, in every shell. */
	snprintf(command, sizeof(command), "exec '%s' child 'x y'", target);
	clearenv();
	setenv("PATH", target_path, 1);
	road("execve", execve(target, child_argv, empty));
	road("execve without an environment", execve(target, child_argv, NULL));
	road("execv", execv(target, child_argv));
	road("execvp", execvp(target_name, child_argv));
	road("execvpe", execvpe(target_name, child_argv, empty));
	road("execl", execl(target, "a name", "child", "x y", NULL));
	road("execlp", execlp(target_name, "a name", "child", "x y", NULL));
	road("execle", execle(target, "a name", "child", "x y", NULL, empty));
	road("fexecve", fexecve(open(target, O_RDONLY), child_argv, empty));
	road("execveat", own_execveat(open(target_dir, O_RDONLY), target_name, 0));
	road("execveat of a path", own_execveat(AT_FDCWD, target, 0));
	road("execveat of an O_PATH descriptor", own_execveat(open(target, O_PATH), "", AT_EMPTY_PATH));
	road("syscall(2)", syscall(SYS_execve, target, child_argv, empty));
	road("a call of its own", own_execve(target, child_argv, empty));
	road("in the directory", chdir(target_dir) || execve(target_name, child_argv, empty));
	printf("vfork: ");
	fflush(stdout);
	pid = own_vfork_and_execve(target, child_argv, empty);
	wait_for("vfork", pid);
	printf("posix_spawn: ");
	fflush(stdout);
	spawned("posix_spawn", posix_spawn(&pid, target, NULL, NULL, child_argv, empty), &pid);
	printf("posix_spawnp: ");
	fflush(stdout);
	spawned("posix_spawnp", posix_spawnp(&pid, target_name, NULL, NULL, child_argv, empty), &pid);
	printf("system: ");
	fflush(stdout);
	if (system(command))
		puts("system failed");
	printf("popen: ");
	fflush(stdout);
	if (pclose(popen(command, "w")))
		puts("popen failed");
	return 0;
}

/* What a process may lose. Memory is address space, kB: resident pages depend on the machine. */
struct holdings { int descriptors, mappings, threads; long memory; };

static int entries(const char *folder)
{
	int count = 0;
	DIR *open = opendir(folder);

	while (readdir(open))
		count++;
	closedir(open);
	return count;
}

static struct holdings holdings(void)
{
	struct holdings now = { entries("/proc/self/fd"), 0, entries("/proc/self/task"), 0 };
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r"), *status = fopen("/proc/self/status", "r");

	while (fgets(line, sizeof(line), maps))
		now.mappings++;
	while (fgets(line, sizeof(line), status))
		sscanf(line, "VmSize: %ld", &now.memory);
	fclose(maps);
	fclose(status);
	return now;
}

/* Only descriptors and words are shared with a vfork child: it prints into a pipe. */
static int many(int count)
{
	int lost = 0, out[2];
	char answer[4096];
	struct holdings before, after;

	if (pipe(out))
		return 1;
	dup2(out[1], 1);
	for (int i = 0; i < count; i++) {
		if (i == 1)
			before = holdings();
		pid_t pid = own_vfork_and_execve(target, child_argv, empty);

		wait_for("vfork", pid);
		ssize_t len = read(out[0], answer, sizeof(answer));
		lost += len < 6 || memcmp(answer, "engine", 6);
	}
	after = holdings();
	fprintf(stderr, "%d lost, more: %d descriptors, %d mappings, %d threads, %ld kB\n", lost, after.descriptors - before.descriptors,
		after.mappings - before.mappings, after.threads - before.threads, after.memory - before.memory);
	return 0;
}

static void answer(const char *what, const char *path, char **arguments, char **environment)
{
	pid_t pid;
	int status;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		dup2(open("/dev/null", O_WRONLY), 2);
		execve(path, arguments, environment);
		_exit(errno);
	}
	waitpid(pid, &status, 0);
	printf("%s: %s %d\n", what, WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static int errors(int count, char **files)
{
	char *long_argument = malloc(200 << 10), *large[] = { long_argument, NULL };
	char **numbers = malloc(8 * (1 << 20));
	int writer;

	memset(long_argument, 'a', 200 << 10);
	long_argument[(200 << 10) - 1] = 0;
	for (int i = 0; i < (1 << 20) - 1; i++)
		numbers[i] = "12345678901234567890";
	numbers[(1 << 20) - 1] = NULL;
	for (int i = 0; i < count; i++) {
		answer(files[i], files[i], child_argv, empty);
		answer("a long argument", files[i], large, empty);
		answer("a long variable", files[i], child_argv, large);
		answer("many arguments", files[i], numbers, empty);
		answer("many variables", files[i], child_argv, numbers);
		answer("bad arguments", files[i], (char **)8, empty);
		answer("a bad argument", files[i], (char *[]){ (char *)8, NULL }, empty);
		answer("a bad environment", files[i], child_argv, (char **)8);
		answer("a bad variable", files[i], child_argv, (char *[]){ (char *)8, NULL });
		writer = open(files[i], O_WRONLY);
		if (writer >= 0) {
			answer("being written", files[i], child_argv, empty);
			close(writer);
		}
	}
	answer("a bad path", (char *)8, child_argv, empty);
	answer("no path", NULL, child_argv, empty);
	answer("an empty path", "", child_argv, empty);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 8;
	/* A script's interpreter is given the script, too. */
	if (!strcmp(argv[1], "child"))
		return child(argc, argv);
	block_io_uring();
	if (!strcmp(argv[1], "errors"))
		return errors(argc - 2, argv + 2);
	target = argv[2];
	target_name = strrchr(target, '/') + 1;
	snprintf(target_dir, sizeof(target_dir), "%.*s", (int)(target_name - target), target);
	snprintf(target_path, sizeof(target_path), "/nowhere:%s", target_dir);
	return argc > 3 ? many(atoi(argv[3])) : roads();
}
