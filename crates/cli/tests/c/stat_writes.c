/*
 * A program for `uringlet stat`. It prints "ready"; for each line of standard input it writes
 * WRITES blocks to the file in argv[1] through its ring, one at a time, and prints "done". It ends
 * with its input.
 */
#include "net_ring.h"

enum { WRITE = 23, WRITES = 200, BLOCK = 4096 };

/* Maps the file as a reader of symbols does, not as the loader does. */
static void map_file(const char *path)
{
	int fd = open(path, O_RDONLY);

	if (fd < 0 || mmap(0, lseek(fd, 0, SEEK_END), PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED) {
		perror(path);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static char block[BLOCK];
	char line[64];
	int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (fd < 0) {
		perror(argv[1]);
		return 1;
	}
	if (argc > 2)
		map_file(argv[2]);
	new_ring("writes");
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (int i = 0; i < WRITES; i++)
			does("write", (struct sqe){ .opcode = WRITE, .fd = fd, .addr = ADDR(block), .len = BLOCK, .off = (uint64_t)i * BLOCK }, BLOCK, 0);
		puts(failures ? "failed" : "done");
		fflush(stdout);
	}
	return failures != 0;
}
