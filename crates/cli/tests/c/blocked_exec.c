/* Executes its arguments where the kernel has no io_uring for them. */
#include "blocked.h"

int main(int argc, char **argv)
{
	block_io_uring();
	execvp(argv[1], argv + 1);
	perror(argv[1]);
	return 99;
}
