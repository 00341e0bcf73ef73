/*
 * Load beside the connections of net_chaos.c: blocks that workers write to a file and read back,
 * few workers, and a thread that counts workers all the time.
 */
#include "worker_count.h"

enum { BLOCKS = 16, BLOCK = 4096, IOWQ_MAX_WORKERS = 19 };
enum { IDLE, WRITING, READING };

static int limit, disk = -1;
static struct {
	int does, round;
	char bytes[BLOCK];
} blocks[BLOCKS];
static volatile int most_workers, is_over;

static char byte_of_block(int i, int at)
{
	return blocks[i].round * 31 + i * 7 + at;
}

static void transfer(int i, int does)
{
	blocks[i].does = does;
	submit(SQE(does == WRITING ? WRITE : READ, FORCE_ASYNC, 0, disk, .off = i * BLOCK, .addr = ADDR(blocks[i].bytes), .len = BLOCK,
		   .user_data = (uint64_t)BLOCKS_DONE << 56 | i));
}

/* An idle block is written. */
static void touch_disk(void)
{
	int i = rng(&server_rng) % BLOCKS, at;

	if (!limit || blocks[i].does != IDLE)
		return;
	blocks[i].round++;
	for (at = 0; at < BLOCK; at++)
		blocks[i].bytes[at] = byte_of_block(i, at);
	transfer(i, WRITING);
}

static void block_done(int i, int res)
{
	int at, did = blocks[i].does;

	blocks[i].does = IDLE;
	/* Cancels may hit any request. */
	if (res == -ECANCELED || res == -EINTR)
		return;
	if (res != BLOCK)
		wrong("bytes of a block", res, BLOCK);
	if (did == WRITING) {
		memset(blocks[i].bytes, 0, BLOCK);
		transfer(i, READING);
		return;
	}
	for (at = 0; at < BLOCK; at++)
		if (blocks[i].bytes[at] != byte_of_block(i, at))
			wrong("byte of a block", at, i);
}

static void *count_workers(void *unused)
{
	while (!is_over) {
		int n = workers_of(2 * limit);

		most_workers = n > most_workers ? n : most_workers;
	}
	return unused;
}

static void begin_load(pthread_t *counter)
{
	unsigned limits[2] = { limit, limit };
	FILE *file = tmpfile();

	if (!limit)
		return;
	if (!file)
		wrong("a file", errno, 0);
	disk = fileno(file);
	check("limit", reg(IOWQ_MAX_WORKERS, limits, 2), 0);
	pthread_create(counter, 0, count_workers, 0);
}

static void end_load(pthread_t counter)
{
	if (!limit)
		return;
	is_over = 1;
	pthread_join(counter, 0);
	if (most_workers < 1 || most_workers > 2 * limit)
		wrong("workers", most_workers, 2 * limit);
}
