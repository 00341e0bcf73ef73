/* Nothing of this program's can be mapped between the engine's segments: argv[1] is its file. */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	char line[4400];
	unsigned long start, end, reached = 0, gap = 0, gaps = 0, segments = 0;
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps && fgets(line, sizeof(line), maps)) {
		sscanf(line, "%lx-%lx", &start, &end);
		if (segments && start != reached)
			gap = 1;
		if (strstr(line, argv[1])) {
			segments++;
			gaps += gap;
			gap = 0;
		}
		reached = end;
	}
	printf("%s, %lu gaps\n", segments > 2 ? "loaded" : "not there", gaps);
	return argc != 2;
}
