/* Waits inside the engine, and with "fork" uses its ring in a child: for a debugger. */
#include "robust_ring.h"

static struct ring ring;

__attribute__((noinline)) static void waits_in_the_engine(int ms)
{
	uint64_t ts[2] = { ms / 1000, ms % 1000 * 1000000ull };

	push(&ring, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1, .user_data = 9));
	check("submitted", enter_call(ring.fd, 1, 1, GETEVENTS, 0, 0), 1);
	check("the timeout", next(&ring), -ETIME);
	asm volatile("" ::: "memory");
}

__attribute__((noinline)) static int in_the_child(void)
{
	works(&ring);
	asm volatile("" ::: "memory");
	return 0;
}

int main(int number_of_arguments, char **arguments)
{
	block_if_asked();
	ring = new_ring(8);
	if (number_of_arguments > 1 && !strcmp(arguments[1], "fork"))
		check("the child", in_child(in_the_child, 10), 0);
	puts("waiting");
	fflush(stdout);
	waits_in_the_engine(number_of_arguments > 1 ? atoi(arguments[1]) : 300);
	return finish();
}
