/* Uses a ring by the functions of whichever libc it is loaded with. */
#include "robust_ring.h"

int use_ring(void)
{
	section = "another namespace";
	struct ring r = new_ring(8);
	uint64_t ts[2] = { 0, 1000000 };
	int p[2], copy = dup(r.fd), original = r.fd;
	char byte = 0;

	works(&r);
	check("a timer", run(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1)), -ETIME);
	check("a pipe", pipe(p), 0);
	submit(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&byte), .len = 1, .flags = FORCE_ASYNC));
	check("written", write(p[1], "x", 1), 1);
	check("read", next(&r), 1);
	/* Closed by this libc's close(): the duplicate is what is left. */
	close(original);
	check("closed", enter_call(original, 0, 0, 0, 0, 0), -EBADF);
	r.fd = copy;
	works(&r);
	pid_t child = fork();
	int status = -1;

	if (!child) {
		struct ring own = new_ring(8);

		works(&own);
		_exit(failures);
	}
	waitpid(child, &status, 0);
	check("a child by this libc's fork()", status, 0);
	end_ring(&r);
	close(p[0]);
	close(p[1]);
	return failures;
}
