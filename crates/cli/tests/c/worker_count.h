/* Counts io-wq's workers from inside their process. */
#include <dirent.h>

enum { MOST_THREADS = 4096 };

/* The name of a thread of this process; empty if it has ended. */
static const char *name_of(int tid)
{
	static __thread char name[32];
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
	file = fopen(path, "r");
	if (!file || !fgets(name, sizeof(name), file))
		name[0] = 0;
	if (file)
		fclose(file);
	return name;
}

static const char *worker_name(void)
{
	static __thread char name[32];

	snprintf(name, sizeof(name), "iou-wrk-%d\n", getpid());
	return name;
}

static int find_workers(int *tids)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	int n = 0;

	while ((entry = readdir(dir)) && n < MOST_THREADS)
		if (!strcmp(name_of(atoi(entry->d_name)), worker_name()))
			tids[n++] = atoi(entry->d_name);
	closedir(dir);
	return n;
}

/* The number of workers, and the last one's thread id. */
static int workers(int *last)
{
	static __thread int tids[MOST_THREADS];
	int n = find_workers(tids);

	if (last && n)
		*last = tids[n - 1];
	return n;
}

/*
 * The number of workers, if `limit` are allowed. A thread that a worker has just started has the
 * worker's name until it runs: if there seem to be too many, a thread with another name a moment
 * later was none.
 */
static int workers_of(int allowed)
{
	static __thread int tids[MOST_THREADS];
	int i, seen = find_workers(tids), n = seen;

	if (seen <= allowed)
		return seen;
	usleep(100000);
	for (i = 0; i < seen; i++) {
		const char *name = name_of(tids[i]);

		n -= name[0] && strcmp(name, worker_name());
	}
	return n;
}
