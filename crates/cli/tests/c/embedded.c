/* Calls uringlet_init() as its argument says, and prints what it returned and whose the ring is. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uringlet.h>

static int from_constructor = -1000;

#ifdef IN_CONSTRUCTOR
__attribute__((constructor)) static void construct(void)
{
	from_constructor = uringlet_init();
}
#endif

static const char *whose_ring(void)
{
	char params[120] = { 0 }, path[64], target[128] = "";
	long ring = syscall(425, 8, params);

	if (ring < 0)
		return "no ring";
	snprintf(path, sizeof(path), "/proc/self/fd/%ld", ring);
	if (readlink(path, target, sizeof(target) - 1) < 0)
		return "no link";
	return strstr(target, "[io_uring]") ? "kernel" : "engine";
}

static void *wait_for_end(void *end)
{
	char byte;

	return read(*(int *)end, &byte, 1) < 0 ? end : NULL;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	pthread_t other;
	int result, ends[2];

	if (!strcmp(mode, "version")) {
		puts(uringlet_version());
		return 0;
	}
	if (!strcmp(mode, "threads") && (pipe(ends) || pthread_create(&other, NULL, wait_for_end, &ends[0])))
		return 2;
	result = from_constructor == -1000 ? uringlet_init() : from_constructor;
	printf("%d %s: %s\n", result, whose_ring(), uringlet_strerror(result));
	return 0;
}
