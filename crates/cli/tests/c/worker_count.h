/* Counting io-wq's workers from inside their process. */
#include <dirent.h>

/* Workers by their name, and the last one's thread id. */
static int workers(int *last)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	char want[32], path[300], name[32];
	int n = 0;

	snprintf(want, sizeof(want), "iou-wrk-%d\n", getpid());
	while ((entry = readdir(dir))) {
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		file = fopen(path, "r");
		if (file && fgets(name, sizeof(name), file) && !strcmp(name, want)) {
			n++;
			if (last)
				*last = atoi(entry->d_name);
		}
		if (file)
			fclose(file);
	}
	closedir(dir);
	return n;
}
