/* Prints what a program sees of itself. Under the loader of static programs all of it must be as
   after a plain execve(2). */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
extern void _start(void);
static __thread int in_thread = 7;
static char zeros[1 << 20];
static int data = 5;

static void file(const char *path) {
	char text[8192];
	int fd = open(path, O_RDONLY);
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	for (ssize_t i = 0; i < n; i++)
		if (text[i] == 0) text[i] = '|';
	text[n < 0 ? 0 : n] = 0;
	printf("%s: %s\n", path, text);
}

static void *thread(void *unused) {
	in_thread += 1;
	return (void *)(intptr_t)in_thread;
}

static int nested(int depth) {
	volatile char frame[4096];
	frame[0] = depth;
	return depth == 0 ? frame[0] : nested(depth - 1) + frame[0];
}

int main(int argc, char **argv) {
	for (int i = 0; i < argc; i++) printf("argument %d: %s\n", i, argv[i]);
	for (char **e = environ; *e; e++)
		if (strncmp(*e, "URINGLET", 8) && strncmp(*e, "LD_PRELOAD", 10)) printf("variable %s\n", *e);
	file("/proc/self/cmdline");
	file("/proc/self/comm");

	printf("entry %d, headers %d, base %lu, page %lu, secure %lu, clock %d\n", getauxval(AT_ENTRY) == (uintptr_t)_start,
	       *(uint32_t *)(getauxval(AT_PHDR) + 4) < 8, getauxval(AT_BASE), getauxval(AT_PAGESZ), getauxval(AT_SECURE),
	       getauxval(AT_SYSINFO_EHDR) != 0);
	printf("executed as %s, headers %lu of %lu bytes\n", (char *)getauxval(AT_EXECFN), getauxval(AT_PHNUM), getauxval(AT_PHENT));
	printf("random %d, stack aligned %d\n", getauxval(AT_RANDOM) != 0, (uintptr_t)__builtin_frame_address(0) % 16 == 0);
	uint64_t aux[64];
	int fd = open("/proc/self/auxv", O_RDONLY);
	ssize_t n = read(fd, aux, sizeof aux) / 16;
	close(fd);
	for (ssize_t i = 0; i < n; i++)
		if (aux[2 * i] == AT_ENTRY) printf("auxv has the entry: %d\n", aux[2 * i + 1] == (uintptr_t)_start);
	char *old = (char *)syscall(SYS_brk, 0);
	char *grown = (char *)syscall(SYS_brk, old + (1 << 20));
	if (grown == old + (1 << 20)) memset(old, 1, 1 << 20);
	printf("the heap grows: %d, shrinks: %d\n", grown == old + (1 << 20), (char *)syscall(SYS_brk, old) == old);
	int sum = data;
	for (size_t i = 0; i < sizeof zeros; i++) sum += zeros[i];
	printf("data and zeros: %d\n", sum);
	pthread_t id;
	void *result;
	pthread_create(&id, 0, thread, 0);
	pthread_join(id, &result);
	printf("thread-local: %d, %d\n", in_thread, (int)(intptr_t)result);
	struct timespec now;
	printf("clock: %d\n", clock_gettime(CLOCK_MONOTONIC, &now));
	struct rlimit limit;
	getrlimit(RLIMIT_STACK, &limit);
	printf("stack of %lu, used: %d\n", (unsigned long)limit.rlim_cur, nested(1000) != 0);
	sigset_t mask;
	sigprocmask(SIG_BLOCK, 0, &mask);
	printf("SIGUSR1 blocked: %d, SIGPIPE ignored: %d\n", sigismember(&mask, SIGUSR1), signal(SIGPIPE, SIG_DFL) == SIG_IGN);
	for (fd = 3; fd < 64; fd++)
		if (fcntl(fd, F_GETFD) >= 0) printf("descriptor %d is open\n", fd);
	printf("malloc: %d\n", malloc(100 << 20) != 0);
	return 42;
}
