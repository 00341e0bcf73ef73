/* Ends with a core dump, a call deep. */
#include <stdlib.h>
#include <sys/resource.h>

__attribute__((noinline)) static void fails(volatile int depth)
{
	if (depth)
		abort();
}

int main(void)
{
	setrlimit(RLIMIT_CORE, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY });
	fails(3);
	return 0;
}
