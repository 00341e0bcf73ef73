/* A program that cannot be attached: it asks for a ring, and lives with the answer. */
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
	syscall(425, 1, 0);
	return 0;
}
