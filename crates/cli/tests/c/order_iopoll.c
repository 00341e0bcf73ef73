/*
 * What rings with IORING_SETUP_IOPOLL answer: each opcode on each kind of file, with and without
 * flags, on a file of the current folder's file system with O_DIRECT and without.
 */
#include "order_ring.h"

enum { SETUP_IOPOLL = 1, REGISTER_BUFFERS = 0, REGISTER_FILES = 2 };
enum { OPCODES = 64, SIZE = 4096, FILES = 6 };

static const char *const file_names[FILES] = { "direct", "buffered", "pipe", "socket", "null", "bad" };
static int fds[FILES];
static char *buffer;
static struct iovec vector;

static void open_files(void)
{
	int pair[2];

	fds[0] = open("iopoll.direct", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	if (fds[0] < 0) {
		printf("no O_DIRECT here\n");
		exit(77);
	}
	if (write(fds[0], buffer, SIZE) != SIZE)
		exit(77);
	fds[1] = open("iopoll.buffered", O_RDWR | O_CREAT | O_TRUNC, 0600);
	write(fds[1], buffer, SIZE);
	pipe(pair);
	fds[2] = pair[1];
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	fds[3] = pair[0];
	fds[4] = open("/dev/null", O_RDWR);
	fds[5] = 9999;
}

static struct ring ring_of(unsigned setup)
{
	struct ring r = new_ring_with(8, setup, 0);

	check("registered buffer", register_call(r.fd, REGISTER_BUFFERS, &vector, 1), 0);
	check("registered files", register_call(r.fd, REGISTER_FILES, fds, FILES - 1), 0);
	return r;
}

static struct sqe request(int opcode, int file, unsigned rw_flags)
{
	struct sqe sqe = { .opcode = opcode, .fd = fds[file], .addr = ADDR(buffer), .len = SIZE, .user_data = 'R', .op_flags = rw_flags };

	/* READV, WRITEV and their registered forms */
	if (opcode == 1 || opcode == 2 || opcode == 60 || opcode == 61) {
		sqe.addr = ADDR(&vector);
		sqe.len = 1;
	}
	if (opcode == NOP)
		sqe.op_flags = 0;
	return sqe;
}

/*
 * The result: of the CQE, which a polled ring has to be entered for. A device without poll queues
 * answers EOPNOTSUPP (EAGAIN to a read that may not wait) where one that has them transfers, so
 * these count as equal on the file whose transfers may be polled.
 */
static void answers(struct ring *r, struct sqe sqe, int may_poll)
{
	int submitted, res;

	push(r, sqe);
	submitted = enter_call(r->fd, 1, 0, 0, 0, 0);
	for (uint64_t end = now_us() + 20000000; submitted == 1 && !waiting(r) && now_us() < end;)
		enter_call(r->fd, 0, 1, GETEVENTS, 0, 0);
	printf(" %d", submitted);
	res = waiting(r) ? take(r).res : NO_CQE;
	if (may_poll && (res >= 0 || res == -EOPNOTSUPP || res == -EAGAIN))
		printf(":accepted");
	else
		printf(":%d", res);
}

static int is_transfer(int opcode)
{
	return opcode == 1 || opcode == 2 || opcode == 4 || opcode == 5 || opcode == READ || opcode == WRITE || opcode == 60 || opcode == 61;
}

/* What makes no file or changes none but the two above, and does not wait for another request. */
static int is_asked(int opcode, int file)
{
	/* Close would take the descriptor away, and a read of a pipe or a socket would wait. */
	if (opcode == 19 || opcode == 46)
		return 0;
	return file < 2 || file == 4 || file == 5 || !is_transfer(opcode) || opcode == 2 || opcode == WRITE || opcode == 5 || opcode == 61;
}

int main(void)
{
	static const unsigned setups[] = { 0, DEFER, 2 };

	block_if_asked();
	buffer = aligned_alloc(SIZE, SIZE);
	memset(buffer, 'b', SIZE);
	vector = (struct iovec){ buffer, SIZE };
	open_files();
	for (int s = 0; s < 2; s++) {
		struct ring r = ring_of(SETUP_IOPOLL | setups[s]);

		for (int opcode = 0; opcode < OPCODES; opcode++)
			for (int file = 0; file < FILES; file++) {
				if (!is_asked(opcode, file))
					continue;
				printf("setup %x, opcode %d, %s:", setups[s], opcode, file_names[file]);
				answers(&r, request(opcode, file, 0), file == 0 && is_transfer(opcode));
				if (is_transfer(opcode)) {
					struct sqe sqe = request(opcode, file, 0);

					sqe.flags = FORCE_ASYNC;
					answers(&r, sqe, file == 0);
					sqe.flags = FIXED_FILE;
					sqe.fd = file;
					answers(&r, sqe, file == 0);
					/* RWF_HIPRI, DSYNC, SYNC, NOWAIT, APPEND, an unknown one */
					for (unsigned flag = 1; flag <= 64; flag *= 2)
						if (flag != 16 || opcode != WRITE)
							answers(&r, request(opcode, file, flag), file == 0);
					sqe = request(opcode, file, 0);
					sqe.off = -1;
					answers(&r, sqe, file == 0);
					sqe.off = 512;
					sqe.len = sqe.len == 1 ? 1 : 512;
					answers(&r, sqe, file == 0);
					sqe.off = 100;
					answers(&r, sqe, file == 0);
				}
				printf("\n");
				fflush(stdout);
			}
		end_ring(&r);
	}
	unlink("iopoll.direct");
	unlink("iopoll.buffered");
	return failures > 0;
}
