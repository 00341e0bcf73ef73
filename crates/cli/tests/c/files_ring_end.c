/*
 * Workers that still run requests of a closed ring: what they write goes to that ring's registered
 * file, never to the file that the next ring has in the same slot.
 */
#include "robust_ring.h"

enum { FILES = 2, ROUNDS = 200 };

static int file(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);

	unlink(name);
	return fd;
}

static long foreign_bytes(int fd, char own)
{
	static char data[16 * 4096];
	long n = pread(fd, data, sizeof(data), 0), foreign = 0;

	for (long i = 0; i < n; i++)
		foreign += data[i] && data[i] != own;
	return foreign;
}

/* Each ring has one of two files in slot 0, and ends while its workers write. */
static void queued_writes(void)
{
	section = "queued writes";
	static char text[2][4096];
	int fds[2] = { file("ring-end-a"), file("ring-end-b") };

	for (int i = 0; i < 2; i++)
		memset(text[i], 'a' + i, 4096);
	for (int round = 0; round < ROUNDS; round++) {
		int which = round & 1;
		struct ring r = new_ring(16);

		check("registered", register_call(r.fd, FILES, &fds[which], 1), 0);
		for (int i = 0; i < 16; i++)
			push(&r, SQE(.opcode = WRITE, .flags = FIXED_FILE | FORCE_ASYNC, .addr = ADDR(text[which]), .len = 4096, .off = i * 4096));
		check("submitted", enter_call(r.fd, 16, round % 3, GETEVENTS, 0, 0), 16);
		end_ring(&r);
	}
	sleep_ms(50);
	check("bytes of b in a", foreign_bytes(fds[0], 'a'), 0);
	check("bytes of a in b", foreign_bytes(fds[1], 'b'), 0);
}

int main(void)
{
	block_if_asked();
	queued_writes();
	return finish();
}
