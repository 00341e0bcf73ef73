/* A call site in a function that has a name. */
#include <stdio.h>

__attribute__((noinline)) long make_ring(void)
{
	long result;

	__asm__ volatile("mov $425, %%eax\n\tsyscall" : "=a"(result) : "D"(1L), "S"(0L) : "rcx", "r11", "memory");
	return result;
}

int main(void)
{
	printf("it ran: %ld\n", make_ring());
	return 0;
}
