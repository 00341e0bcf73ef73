/*
 * Writes numbered records until it is killed, and reports through a pipe what is submitted,
 * answered and on the disk. write_kill FILE PIPE GENERATION DEPTH MODE RECORDS MODE: 0 plain, 1
 * some by workers, 2 SQPOLL. A message is a kind and a number: 'U' all records below may have been
 * submitted; 'A' this record is answered as whole; 'S' all records below are answered as whole and
 * synced. After RECORDS it waits to be killed.
 */
#include "robust_ring.h"
#include <sys/uio.h>

enum { WRITEV = 2, FSYNC = 3, WRITE_FIXED = 5 };
enum { RECORD = 700, WORDS = RECORD / 4, SLOTS = 32, SYNC = 1 << 30 };

struct message { uint32_t kind, number; };

static uint32_t records[SLOTS][WORDS];
static struct iovec vectors[SLOTS][2];
static int taken[SLOTS], out;
static uint32_t generation, submitted, answered;
static char *is_answered;
static uint32_t syncing;

static void tell(int kind, uint32_t number)
{
	struct message message = { kind, number };

	if (write(out, &message, sizeof(message)) != sizeof(message))
		exit(3);
}

/* The number, the generation, then words that follow from both; the reader computes the same. */
static void fill(uint32_t *record, uint32_t number)
{
	record[0] = number;
	record[1] = generation;
	for (int i = 2; i < WORDS; i++)
		record[i] = number * 2654435761u + generation * 40503u + i;
}

static struct sqe record_sqe(int fd, uint32_t number, int slot, int mode)
{
	uint64_t off = (uint64_t)number * RECORD;

	fill(records[slot], number);
	vectors[slot][0] = (struct iovec){ records[slot], 100 };
	vectors[slot][1] = (struct iovec){ (char *)records[slot] + 100, RECORD - 100 };
	struct sqe sqe = SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(records[slot]), .len = RECORD, .off = off, .user_data = (uint64_t)slot << 32 | number);
	if (number % 3 == 1)
		sqe.opcode = WRITEV, sqe.addr = ADDR(vectors[slot]), sqe.len = 2;
	if (number % 3 == 2)
		sqe.opcode = WRITE_FIXED;
	if (mode == 1 && number % 4 == 0)
		sqe.flags = FORCE_ASYNC;
	return sqe;
}

static void take_all(struct ring *r, uint32_t *in_flight)
{
	while (waiting(r)) {
		struct cqe cqe = take(r);

		--*in_flight;
		if (cqe.user_data == SYNC) {
			if (cqe.res)
				exit(4);
			tell('S', syncing);
			syncing = 0;
			continue;
		}
		if (cqe.res != RECORD)
			exit(5);
		taken[cqe.user_data >> 32] = 0;
		is_answered[(uint32_t)cqe.user_data] = 1;
		tell('A', cqe.user_data);
		while (is_answered[answered])
			answered++;
	}
}

static void enter_with(struct ring *r, unsigned n, unsigned wait, int mode)
{
	int flags = GETEVENTS | (mode == 2 ? 2 : 0), done = enter_call(r->fd, n, wait, flags, 0, 0);

	if (done < 0 && done != -EINTR)
		exit(6);
}

int main(int argc, char **argv)
{
	int fd = open(argv[1], O_RDWR | O_CREAT, 0600), depth = atoi(argv[4]), mode = atoi(argv[5]);
	uint32_t all = atoi(argv[6]), in_flight = 0;
	struct iovec registered = { records, sizeof(records) };

	block_if_asked();
	out = atoi(argv[2]);
	generation = atoi(argv[3]);
	is_answered = calloc(all + 1, 1);
	struct ring r = new_ring_with(64, mode == 2 ? SETUP_SQPOLL : 0, 0);
	if (fd < 0 || register_call(r.fd, 0, &registered, 1))
		return 2;
	while (answered < all) {
		unsigned n = 0;

		tell('U', submitted + depth < all ? submitted + depth : all);
		for (int slot = 0; slot < depth && submitted < all; slot++)
			if (!taken[slot]) {
				taken[slot] = 1;
				push(&r, record_sqe(fd, submitted++, slot, mode));
				n++;
			}
		if (!syncing && answered / 400 > (answered - n) / 400) {
			/* The sync covers the records that are answered when it is submitted. */
			syncing = answered;
			push(&r, SQE(.opcode = FSYNC, .fd = fd, .user_data = SYNC));
			n++;
		}
		in_flight += n;
		enter_with(&r, n, in_flight > 0, mode);
		take_all(&r, &in_flight);
	}
	for (;;)
		pause();
}
