/*
 * Cancels by descriptor: of requests on the same file by another number or slot, and of requests
 * whose number is another file's by now. T: the requests, named by how they name their file; C: the
 * cancel.
 */
#include "order_ring.h"

enum { READ_OP = 22, POLL_ADD_OP = 6, CANCEL_OP = 14 };
enum { BY_ALL = 1, BY_FD = 2, BY_FD_FIXED = 8, BY_USERDATA = 16 };
enum { REGISTER_FILES = 2, SYNC_CANCEL = 24, FIXED = 1 };
enum { NUMBER, DUPLICATE, SLOT, OTHER_SLOT, OTHER_FILE, NAMES };

static const char *const names[] = { "number", "duplicate", "slot", "second slot", "other file" };
static int numbers[NAMES];
static char byte[8];

static struct sqe request(int opcode, int name)
{
	struct sqe sqe = { .opcode = opcode, .fd = numbers[name], .user_data = 'T' };

	if (name == SLOT || name == OTHER_SLOT)
		sqe.flags = FIXED;
	if (opcode == READ_OP)
		sqe.addr = ADDR(byte), sqe.len = 1, sqe.off = -1;
	else
		sqe.op_flags = POLLIN;
	return sqe;
}

static void cancel(struct ring *r, int name, unsigned flags, int sync)
{
	struct { uint64_t addr; int32_t fd; uint32_t flags; int64_t timeout[2]; uint8_t opcode, pad[7]; uint64_t pad2[3]; } reg = {
		.addr = 'T', .fd = numbers[name], .flags = flags | BY_FD, .timeout = { 1, 0 },
	};

	if (name == SLOT || name == OTHER_SLOT)
		reg.flags |= BY_FD_FIXED;
	if (sync) {
		printf(" =%ld", (long)register_call(r->fd, SYNC_CANCEL, &reg, 1));
		return;
	}
	push(r, SQE(.opcode = CANCEL_OP, .addr = 'T', .fd = reg.fd, .op_flags = reg.flags, .user_data = 'C'));
	submit_all(r);
}

static void one(int opcode, int of, int by, unsigned flags, int sync)
{
	int pipes[2][2], slots[2];
	struct ring r = new_ring_with(32, SETUP_CQSIZE, 128);

	pipe(pipes[0]), pipe(pipes[1]);
	numbers[NUMBER] = pipes[0][0];
	numbers[DUPLICATE] = dup(pipes[0][0]);
	numbers[SLOT] = 0;
	numbers[OTHER_SLOT] = 1;
	numbers[OTHER_FILE] = pipes[1][0];
	slots[0] = slots[1] = pipes[0][0];
	check("registered files", register_call(r.fd, REGISTER_FILES, slots, 2), 0);
	printf("%d on a %s, and one by number: by %s, flags %u%s:", opcode, names[of], names[by], flags, sync ? ", sync" : "");
	push(&r, request(opcode, of));
	submit_all(&r);
	push(&r, request(opcode, NUMBER));
	submit_all(&r);
	cancel(&r, by, flags, sync);
	print_cqes(&r);
	end_ring(&r);
	for (int i = 0; i < 4; i++)
		close(pipes[i / 2][i % 2]);
	close(numbers[DUPLICATE]);
}

/* The number of an armed request is another file's. */
static void reused(int opcode, unsigned flags)
{
	int pipes[2][2], kept;
	struct ring r = new_ring_with(32, SETUP_CQSIZE, 128);

	pipe(pipes[0]), pipe(pipes[1]);
	numbers[NUMBER] = pipes[0][0];
	kept = dup(pipes[0][0]);
	push(&r, request(opcode, NUMBER));
	submit_all(&r);
	dup2(pipes[1][0], pipes[0][0]);
	printf("%d on a replaced number, flags %u:", opcode, flags);
	cancel(&r, NUMBER, flags, 0);
	settle(&r);
	printf(" (then by the duplicate)");
	numbers[DUPLICATE] = kept;
	cancel(&r, DUPLICATE, flags, 0);
	print_cqes(&r);
	end_ring(&r);
	for (int i = 0; i < 4; i++)
		close(pipes[i / 2][i % 2]);
	close(kept);
}

int main(void)
{
	static const int opcodes[] = { READ_OP, POLL_ADD_OP };
	static const unsigned ways[] = { 0, BY_ALL, BY_USERDATA, BY_ALL | BY_USERDATA };

	for (int o = 0; o < 2; o++)
		for (int w = 0; w < 4; w++) {
			for (int of = 0; of < NAMES; of++)
				for (int by = 0; by < NAMES; by++)
					for (int sync = 0; sync < 2; sync++)
						one(opcodes[o], of, by, ways[w], sync);
			reused(opcodes[o], ways[w]);
		}
	return failures != 0;
}
