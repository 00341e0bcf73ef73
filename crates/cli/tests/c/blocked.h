/*
 * Filters io_uring like a container: calls that reach the kernel answer EPERM. Any other answer
 * comes from the attached engine.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "uring_filter.h"

static void block_io_uring(void)
{
	filter_io_uring(SECCOMP_RET_ERRNO | EPERM, 99);
}
