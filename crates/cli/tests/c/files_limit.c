/*
 * With a soft limit of 64 descriptors: 40 open files are registered, and the limit stays. With a
 * hard limit of 1,024: a table of as many slots, 800 files in them, each with its own bytes, and
 * the numbers are the program's again once they are gone.
 */
#define _GNU_SOURCE
#include "robust_ring.h"
#include <sys/resource.h>

enum { LIMIT = 1024, FILES = 800, REGISTER_FILES2 = 13, UNREGISTER_FILES = 3, SPARSE = 1, OPENAT = 18 };

struct table {
	uint32_t nr, flags;
	uint64_t resv2, data, tags;
};

static int sparse(struct ring *r, uint32_t nr)
{
	struct table table = { .nr = nr, .flags = SPARSE };

	return register_call(r->fd, REGISTER_FILES2, &table, sizeof(table));
}

static void fill(struct ring *r)
{
	for (int i = 0; i < FILES; i++) {
		char name[32];

		snprintf(name, sizeof(name), "file-%d", i);
		submit(r, SQE(.opcode = OPENAT, .fd = AT_FDCWD, .addr = ADDR(name), .len = 0600, .op_flags = O_RDWR | O_CREAT,
			.file_index = i + 1));
		check("opened into a slot", next(r), 0);
		submit(r, SQE(.opcode = WRITE, .flags = FIXED_FILE, .fd = i, .addr = ADDR(&i), .len = sizeof(i)));
		check("written", next(r), sizeof(i));
	}
}

static void read_back(struct ring *r)
{
	for (int i = 0; i < FILES; i++) {
		int found = -1;

		submit(r, SQE(.opcode = READ, .flags = FIXED_FILE, .fd = i, .addr = ADDR(&found), .len = sizeof(found)));
		check("read", next(r), sizeof(found));
		check("the slot's own file", found, i);
	}
}

/* Registered files are no open files of the program's. */
static void open_and_registered(void)
{
	enum { SOFT = 64, OPEN = 40 };
	struct rlimit before, limit, after;
	struct ring r = new_ring(8);
	int files[OPEN], i;

	section = "a soft limit";
	getrlimit(RLIMIT_NOFILE, &before);
	limit = (struct rlimit){ SOFT, before.rlim_max };
	check("limited", setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (i = 0; i < OPEN; i++)
		files[i] = open("/dev/null", O_RDWR);
	is_true("open", files[OPEN - 1] >= 0);
	check("registered as well", register_call(r.fd, 2, files, OPEN), 0);
	check("again", register_call(r.fd, UNREGISTER_FILES, NULL, 0), 0);
	check("registered again", register_call(r.fd, 2, files, OPEN), 0);
	submit(&r, SQE(.opcode = WRITE, .flags = FIXED_FILE, .fd = OPEN - 1, .addr = ADDR(&i), .len = sizeof(i)));
	check("written", next(&r), sizeof(i));
	getrlimit(RLIMIT_NOFILE, &after);
	check("the limit stays", after.rlim_cur, SOFT);
	for (i = 0; i < OPEN; i++)
		close(files[i]);
	is_true("numbers below the limit", dup(0) < SOFT);
	end_ring(&r);
	setrlimit(RLIMIT_NOFILE, &before);
}

int main(void)
{
	struct rlimit limit = { LIMIT, LIMIT };
	struct ring r = new_ring(8);
	int first;

	open_and_registered();
	section = "a hard limit";
	first = dup(0);
	close(first);
	check("limited", setrlimit(RLIMIT_NOFILE, &limit), 0);
	check("more slots than descriptors", sparse(&r, 100000), -EMFILE);
	check("one slot more", sparse(&r, LIMIT + 1), -EMFILE);
	check("as many slots", sparse(&r, LIMIT), 0);
	fill(&r);
	read_back(&r);
	check("the program's next number", dup(0), first);
	check("gone", register_call(r.fd, UNREGISTER_FILES, NULL, 0), 0);
	for (int i = 1; i < FILES; i++)
		is_true("the numbers are the program's", dup(0) > first);
	return finish();
}
