/*
 * The CQEs of chains that succeed, fail and are broken off, among other requests of the same
 * submission and of a later one, in order.
 */
#include "order_ring.h"

enum { HARDLINK = 8, CQE_SKIP = 64, POLL_REMOVE = 7, TIMEOUT_REMOVE = 12 };

static uint64_t later[2] = { 3600, 0 };
static char byte[64];
static int quiet[2], full[2], end;

/* One letter a request: what the programs below are made of. */
static struct sqe request(char c, int nth)
{
	struct sqe sqe = { .user_data = c };

	switch (c) {
	case 'n':
		sqe.opcode = NOP;
		break;
	case 'f': /* fails when it is issued */
		sqe = SQE(.opcode = READ, .fd = 9999, .addr = ADDR(byte), .len = 1, .user_data = c);
		break;
	case 'm': /* malformed */
		sqe = SQE(.opcode = NOP, .op_flags = 0x80000000, .user_data = c);
		break;
	case 's': /* shorter than asked for */
		sqe = SQE(.opcode = READ, .fd = end, .off = 0, .addr = ADDR(byte), .len = 1, .user_data = c);
		break;
	case 'r': /* ready */
		sqe = SQE(.opcode = POLL_ADD, .fd = full[0], .op_flags = POLLIN, .user_data = c);
		break;
	case 'p': /* never ready */
		sqe = SQE(.opcode = POLL_ADD, .fd = quiet[0], .op_flags = POLLIN, .user_data = c);
		break;
	case 't':
		sqe = SQE(.opcode = TIMEOUT, .addr = ADDR(later), .len = 1, .user_data = c);
		break;
	case 'c': /* counts one CQE */
		sqe = SQE(.opcode = TIMEOUT, .addr = ADDR(later), .len = 1, .off = 1, .user_data = c);
		break;
	case 'L':
		sqe = SQE(.opcode = LINK_TIMEOUT, .addr = ADDR(later), .len = 1, .user_data = c);
		break;
	case 'P': /* removes the poll */
		sqe = SQE(.opcode = POLL_REMOVE, .addr = 'p', .user_data = c);
		break;
	case 'T':
		sqe = SQE(.opcode = TIMEOUT_REMOVE, .addr = 't', .user_data = c);
		break;
	case 'A':
		sqe = SQE(.opcode = ASYNC_CANCEL, .op_flags = CANCEL_ANY, .user_data = c);
		break;
	}
	return sqe;
}

/* A program: requests; '-' links the one before it, '=' hard; '/' begins another submission. */
static void does(int which, const char *program)
{
	struct ring r = new_ring_with(32, ring_kinds[which].setup, 0);
	struct sqe sqe = { 0 };
	int n = 0;

	printf("%s, %s:", ring_kinds[which].name, program);
	for (const char *c = program; *c; c++) {
		switch (*c) {
		case '-':
			r.sqes[(*r.sq_tail - 1) & 31].flags |= LINK;
			break;
		case '=':
			r.sqes[(*r.sq_tail - 1) & 31].flags |= HARDLINK;
			break;
		case '/':
			submit_all(&r);
			break;
		case ' ':
			break;
		default:
			sqe = request(*c, n++);
			push(&r, sqe);
		}
	}
	submit_all(&r);
	print_cqes(&r);
	end_ring(&r);
}

static const char *const programs[] = {
	"n n n", "n-n n", "n-n-n n-n n", "f-n n", "f-n-n n", "f=n n", "s-n n", "s=n n", "f-L n", "n-L n", "n-L-n n", "n-n f-n n-n", "f-n f-n n",
	"m n", "n-m n", "m-n n", "n-m-n n", "n n-m n", "n-L-n-n n", "f-L-n n", "f=L=n n",
	"r n", "r-n n", "n-r n", "n-r-n n", "r-L n", "r-L-n n", "f-r n",
	"p n P n", "p-n P n", "p=n P n", "p-L P n", "p-L-n P n", "p/P n", "p-n/P n", "p=n/P n", "p-L/P n", "p-L-n/P n", "p/n P-n n", "p/P=n n", "p/n-P n",
	"t n T n", "t-n T n", "t=n T n", "t-L T n", "t/T n", "t-n/T n", "t=n/T n", "t-L/T n", "t-L-n/T n", "t/n T-n n", "t/T=n n", "t/n-T n",
	"p t A n", "p t/A n", "t p/A n", "p-n t-n/A n", "p=n t=n/A n", "p t p t/A-n n", "p p p/A n", "t t t/A n", "t/A A n", "p/P P n", "t/T T n", "p t/P T n", "p t/T P n", "p t/P A n", "p p/P P n", "t t/T T n",
	"c n", "c n n", "c/n n", "n c n", "c-n n", "c c n n", "c/f-n n", "c p/P n", "c/n-n",
	"p p-n/P n/P n",
};

int main(int argc, char **argv)
{
	block_if_asked();
	pipe(quiet);
	pipe(full);
	write(full[1], "x", 1);
	end = open("/dev/null", O_RDONLY);
	if (argc > 1) {
		for (int which = 0; which < RING_KINDS; which++)
			does(which, argv[1]);
		return 0;
	}
	for (int which = 0; which < RING_KINDS; which++)
		for (unsigned i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
			does(which, programs[i]);
	return failures > 0;
}
