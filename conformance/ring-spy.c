/*
 * Preloaded: reports whether a program that can work without a ring got one from liburing.so.2.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

struct io_uring;

int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
	int (*next)(unsigned, struct io_uring *, unsigned) = dlsym(RTLD_NEXT, "io_uring_queue_init");
	int ret = next(entries, ring, flags);

	fprintf(stderr, "ring of %u entries: %d\n", entries, ret);
	return ret;
}
