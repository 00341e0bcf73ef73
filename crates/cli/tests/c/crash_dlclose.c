/*
 * A library is unloaded and loaded again at its place while a thread waits in a call of its. The
 * first argument names the library.
 */
#include "robust_ring.h"
#include <dlfcn.h>
#include <sys/resource.h>

enum { ROUNDS = 20 };

static const char *library;
static long (*wait_here)(int);
static struct ring mine;

static void *load(void)
{
	void *handle = dlopen(library, RTLD_NOW);

	wait_here = handle ? dlsym(handle, "wait_here") : 0;
	if (!wait_here) {
		puts(dlerror());
		exit(1);
	}
	return handle;
}

static void *waits(void *unused)
{
	return (void *)wait_here(mine.fd);
}

static void *loads(void *unused)
{
	for (int i = 0; i < 50; i++)
		dlclose(dlopen(library, RTLD_NOW));
	return 0;
}

static struct { char *start; size_t len; } code[64];

/* Mappings of code that is no file's. */
static int find_code(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], rights[8];
	unsigned long start, end, inode;
	int n = 0;

	while (n < 64 && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &start, &end, rights, &inode) == 4 && rights[2] == 'x' && !inode && !strchr(line, '[')) {
			code[n].start = (char *)start;
			code[n++].len = end - start;
		}
	fclose(maps);
	return n;
}

/* Takes their places, if they are free by now. */
static void take_code(int n, int taken[])
{
	for (int i = 0; i < n; i++)
		taken[i] = mmap(code[i].start, code[i].len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == code[i].start;
}

static void free_code(int n, int taken[])
{
	for (int i = 0; i < n; i++)
		if (taken[i])
			munmap(code[i].start, code[i].len);
}

static int round_trip(int p[2])
{
	int n, taken[64];
	pthread_t thread;
	void *handle = load(), *place = wait_here, *result;
	static char c;

	submit(&mine, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&c), .len = 1));
	pthread_create(&thread, 0, waits, 0);
	sleep_ms(10);
	n = find_code();
	dlclose(handle);
	take_code(n, taken);
	is_true("it is unloaded", !dlopen(library, RTLD_NOW | RTLD_NOLOAD));
	for (int i = 0; i < 3; i++) {
		handle = load();
		if (wait_here != place)
			return 0;
		if (i < 2)
			dlclose(handle);
	}
	write(p[1], "x", 1);
	pthread_join(thread, &result);
	free_code(n, taken);
	check("the wait returns", (long)result, 0);
	check("the CQE", next(&mine), 1);
	check("its calls are rewritten again", (push(&mine, SQE(.opcode = NOP)), enter_call(mine.fd, 1, 0, 0, 0, 0)), 1);
	check("another wait", wait_here(mine.fd), 0);
	check("another CQE", next(&mine), 0);
	dlclose(handle);
	return 1;
}

/* A library comes with so little address space, or it does not. */
static void load_limited(size_t more)
{
	int status;

	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		unsigned long pages = 0;
		FILE *statm = fopen("/proc/self/statm", "r");

		fscanf(statm, "%lu", &pages);
		fclose(statm);
		setrlimit(RLIMIT_AS, &(struct rlimit){ pages * 4096 + more, RLIM_INFINITY });
		void *handle = dlopen(library, RTLD_NOW);
		if (handle)
			dlclose(handle);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	check("a load without memory", status, 0);
}

int main(int argc, char **argv)
{
	int p[2];

	block_if_asked();
	library = argv[1];
	section = "a library in use";
	for (size_t more = 0; more < 2 << 20; more += 32 << 10)
		load_limited(more);
	mine = new_ring(8);
	pipe(p);
	for (int i = 0; i < ROUNDS; i++)
		if (!round_trip(p)) {
			/* Its place is taken: the thread must not return. */
			printf("the library came to another place\n");
			fflush(stdout);
			_exit(failures > 0);
		}
	int mappings = count_dir("map_files");
	loads(0);
	is_true("nothing stays", count_dir("map_files") <= mappings + 3);
	return finish();
}
