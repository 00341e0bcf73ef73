/*
 * Which answers are expected: those of Linux 6.18, and newer ones where the kernel is as new. The
 * engine, under which BLOCK_IO_URING is in the environment, answers as the newest kernel.
 */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>

static inline int has_since(int major, int minor)
{
	struct utsname name;
	int a = 0, b = 0;

	if (getenv("BLOCK_IO_URING"))
		return 1;
	uname(&name);
	sscanf(name.release, "%d.%d", &a, &b);
	return a > major || (a == major && b >= minor);
}
