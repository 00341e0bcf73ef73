/* A program that can make no io_uring call, load no library and start no program. */
#include <stdio.h>

extern char **environ;

int main(void)
{
	for (char **variable = environ; *variable; variable++)
		puts(*variable);
	return 0;
}
