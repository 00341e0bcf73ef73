/*
 * Executes its arguments where the kernel has no io_uring for them, as user and group N if asked:
 * blocked_exec [--user N] PROGRAM ARGUMENTS
 */
#include "blocked.h"
#include <grp.h>

int main(int argc, char **argv)
{
	char **program = argv + 1;

	if (argc > 3 && !strcmp(argv[1], "--user")) {
		int id = atoi(argv[2]);

		if (setgroups(0, NULL) || setresgid(id, id, id) || setresuid(id, id, id)) {
			perror("becoming another user");
			return 99;
		}
		program = argv + 3;
	}
	block_io_uring();
	execvp(program[0], program);
	perror(program[0]);
	return 99;
}
