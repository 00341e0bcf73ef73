/* Attaches itself, and starts its argument by posix_spawn(3), which closes all descriptors above 2
 * in the child. The child's standard error is the standard output. */
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uringlet.h>

extern char **environ;

int main(int argc, char **argv)
{
	char *arguments[] = { argv[1], NULL };
	posix_spawn_file_actions_t actions;
	int status = 0;
	pid_t child;

	if (argc < 2 || uringlet_init() != URINGLET_ENGINE)
		return 2;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
	for (int fd = STDERR_FILENO + 1; fd < 1024; fd++)
		posix_spawn_file_actions_addclose(&actions, fd);
	if (posix_spawn(&child, argv[1], &actions, NULL, arguments, environ))
		return 3;
	return waitpid(child, &status, 0) == child ? status : 4;
}
