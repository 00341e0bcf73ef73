/* Runs a program so that its first io_uring system call kills it. */
#include "check.h"

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	CHECK(setenv("BLOCK_IO_URING", "1", 1) == 0);
	block_io_uring();
	execvp(argv[1], argv + 1);
	perror(argv[1]);
	return 1;
}
