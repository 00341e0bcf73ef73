/*
 * Code that is made at run time: it makes system calls that nobody could have rewritten. The ring
 * of robust_ring.h goes by these calls.
 */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef long call_code(long nr, long a, long b, long c, long d, long e, long f);

/* mov %rdi, %rax; the arguments one register down; syscall; ret */
static const unsigned char call_bytes[] = {
	0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2, 0x4d, 0x89, 0xc8,
	0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05, 0xc3,
};

static call_code *code;

static call_code *make_code_at(void *at, size_t len)
{
	char *page = mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	/* At the end: the program counter behind the call is next to the end of the mapping. */
	page += len - sizeof(call_bytes);
	memcpy(page, call_bytes, sizeof(call_bytes));
	if (mprotect(page + sizeof(call_bytes) - len, len, PROT_READ | PROT_EXEC)) {
		perror("mprotect");
		exit(1);
	}
	return (call_code *)page;
}

/* The io_uring calls of the program's own text. */
static long call_text(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long result;

#define TEXT_CALL(load) __asm__ volatile(load "\n\tsyscall" : "=&a"(result) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory")
	switch (nr) {
	case 425: TEXT_CALL("mov $425, %%eax"); break;
	case 426: TEXT_CALL("mov $426, %%eax"); break;
	case 427: TEXT_CALL("mov $427, %%eax"); break;
	case SYS_mmap: TEXT_CALL("mov $9, %%eax"); break;
	default: result = code ? code(nr, a, b, c, d, e, f) : -ENOSYS;
	}
	return result;
}

/* Whether the calls are those of the program's text. */
static int by_text;

static long code_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	long result = (by_text ? call_text : code)(nr, a, b, c, d, e, f);

	if (result < 0 && result > -4096) {
		errno = -result;
		return -1;
	}
	return result;
}

#define CODE_CALL(nr, a, b, c, d, e, f, ...) code_syscall(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define syscall(...) CODE_CALL(__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define mmap(a, b, c, d, e, f) ((void *)code_syscall(SYS_mmap, (long)(a), b, c, d, e, f))
#include "robust_ring.h"
#undef mmap
#undef syscall
