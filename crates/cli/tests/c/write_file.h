/* Files for tests of writes, and the results of several requests. */
#pragma once
#include "robust_ring.h"
#include <sys/stat.h>

static int fresh(const char *name, int flags)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0600);

	is_true("the file opens", fd >= 0);
	return fd;
}

static long size_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? -errno : st.st_size;
}

/* The results of the next `n` requests by their user_data, which count from 0. */
static void results(struct ring *r, unsigned n, int *res)
{
	for (unsigned i = 0; i < n; i++)
		res[i] = NO_CQE;
	for (unsigned i = 0; i < n; i++) {
		struct cqe cqe = next_cqe(r);

		if (cqe.res != NO_CQE && cqe.user_data < n)
			res[cqe.user_data] = cqe.res;
	}
}
