/* IORING_REGISTER_RESTRICTIONS: what a ring may be used for, from the moment it is enabled. */
#define _GNU_SOURCE
#include "robust_ring.h"

enum { R_DISABLED = 64, SUBMIT_ALL = 128, RESTRICTIONS = 11, ENABLE = 12, PROBE = 8, FILES = 2, UNREGISTER_FILES = 3, EVENTFD = 4, RING_FDS = 20, UNREGISTER_RING_FDS = 21 };
enum { REGISTER_OP, SQE_OP, FLAGS_ALLOWED, FLAGS_REQUIRED };
enum { CQE_SKIP = 64, HARDLINK = 8, OPS = 58 };

struct restriction {
	uint16_t opcode;
	uint8_t value, resv;
	uint32_t resv2[3];
};

static struct ring disabled(unsigned flags)
{
	return new_ring_with(16, R_DISABLED | flags, 0);
}

static int restrict_to(struct ring *r, struct restriction *list, unsigned n)
{
	return register_call(r->fd, RESTRICTIONS, list, n);
}

static int enable(struct ring *r)
{
	return register_call(r->fd, ENABLE, 0, 0);
}

static void refused(void)
{
	struct restriction good[] = { { SQE_OP, NOP } }, bad = { 4 }, opcode = { SQE_OP, 250 }, reg = { REGISTER_OP, 250 };
	struct restriction resv = { SQE_OP, NOP, .resv = 1, .resv2 = { 1, 2, 3 } }, many[300] = { 0 };
	struct ring r = new_ring(4), d = disabled(0);

	section = "refused";
	check("an enabled ring", restrict_to(&r, good, 1), -EBADFD);
	check("no list", restrict_to(&d, 0, 1), -EINVAL);
	check("unknown kind", restrict_to(&d, &bad, 1), -EINVAL);
	check("unknown opcode", restrict_to(&d, &opcode, 1), -EINVAL);
	check("unknown register operation", restrict_to(&d, &reg, 1), -EINVAL);
	check("a bad address", register_call(d.fd, RESTRICTIONS, (void *)8, 1), -EFAULT);
	check("too many", restrict_to(&d, many, 300), -EINVAL);
	check("reserved fields are not looked at", restrict_to(&d, &resv, 1), 0);
	check("twice", restrict_to(&d, good, 1), -EBUSY);
	check("enabled", enable(&d), 0);
	check("the one that is allowed", run(&d, SQE(.opcode = NOP)), 0);
	check("another", run(&d, SQE(.opcode = TIMEOUT)), -EACCES);
	end_ring(&r);
	end_ring(&d);
	d = disabled(0);
	check("an empty list", restrict_to(&d, good, 0), 0);
	check("enabled", enable(&d), 0);
	check("nothing is allowed", run(&d, SQE(.opcode = NOP)), -EACCES);
	end_ring(&d);
}

static void opcodes(void)
{
	struct restriction list[] = { { SQE_OP, WRITE }, { SQE_OP, POLL_ADD }, { FLAGS_ALLOWED, LINK | FORCE_ASYNC } };
	struct ring r = disabled(0);
	int p[2], out[2];
	char byte = 'x';

	section = "opcodes";
	check("a pipe", pipe(p), 0);
	check("restricted", restrict_to(&r, list, 3), 0);
	check("not before it is enabled", enter_call(r.fd, 0, 0, 0, 0, 0), -EBADFD);
	check("registers before", register_call(r.fd, FILES, p, 2), 0);
	check("enabled", enable(&r), 0);
	check("a write", run(&r, SQE(.opcode = WRITE, .fd = p[1], .addr = ADDR(&byte), .len = 1)), 1);
	check("a write by a worker", run(&r, SQE(.opcode = WRITE, .flags = FORCE_ASYNC, .fd = p[1], .addr = ADDR(&byte), .len = 1)), 1);
	check("a poll", run(&r, SQE(.opcode = POLL_ADD, .fd = p[0], .op_flags = POLLIN)), POLLIN);
	check("a read", run(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&byte), .len = 1)), -EACCES);
	check("a NOP", run(&r, SQE(.opcode = NOP)), -EACCES);
	check("no such opcode", run(&r, SQE(.opcode = 200)), -EINVAL);
	check("no such flag", run(&r, SQE(.opcode = READ, .flags = 128)), -EINVAL);
	check("buffer select", run(&r, SQE(.opcode = WRITE, .flags = BUFFER_SELECT)), -EOPNOTSUPP);
	check("a registered file", run(&r, SQE(.opcode = WRITE, .flags = FIXED_FILE, .fd = 1, .addr = ADDR(&byte), .len = 1)), -EACCES);
	check("no priority for a NOP", run(&r, SQE(.opcode = NOP, .ioprio = 1)), -EACCES);
	/* A refused request ends its submission, and breaks its chain. */
	push(&r, SQE(.opcode = NOP, .user_data = 1));
	push(&r, SQE(.opcode = WRITE, .fd = p[1], .addr = ADDR(&byte), .len = 1, .user_data = 2));
	check("only the first", enter_call(r.fd, 2, 0, 0, 0, 0), 1);
	check("refused", next(&r), -EACCES);
	check("the second", enter_call(r.fd, 1, 0, 0, 0, 0), 1);
	check("written", next(&r), 1);
	push(&r, SQE(.opcode = WRITE, .flags = LINK, .fd = p[1], .addr = ADDR(&byte), .len = 1, .user_data = 3));
	push(&r, SQE(.opcode = NOP, .flags = LINK, .user_data = 4));
	push(&r, SQE(.opcode = WRITE, .fd = p[1], .addr = ADDR(&byte), .len = 1, .user_data = 5));
	out[0] = enter_call(r.fd, 3, 0, 0, 0, 0);
	check("a chain", out[0], 3);
	int res[6] = { 0 };
	for (int i = 0; i < 3; i++) {
		struct cqe cqe = next_cqe(&r);

		res[cqe.user_data % 6] = cqe.res;
	}
	check("head", res[3], -ECANCELED);
	check("refused", res[4], -EACCES);
	check("tail", res[5], -ECANCELED);
	check("registers after", register_call(r.fd, UNREGISTER_FILES, 0, 0), -EACCES);
	check("no such operation", register_call(r.fd, 99, 0, 0), -EINVAL);
	end_ring(&r);
	close(p[0]);
	close(p[1]);
}

static void flags(void)
{
	struct restriction list[] = { { SQE_OP, WRITE }, { SQE_OP, NOP }, { FLAGS_REQUIRED, FIXED_FILE }, { FLAGS_ALLOWED, FORCE_ASYNC } };
	struct ring r = disabled(SUBMIT_ALL);
	int p[2];
	char byte = 'x';

	section = "flags";
	check("a pipe", pipe(p), 0);
	check("files", register_call(r.fd, FILES, p, 2), 0);
	check("restricted", restrict_to(&r, list, 4), 0);
	check("enabled", enable(&r), 0);
	check("a registered file", run(&r, SQE(.opcode = WRITE, .flags = FIXED_FILE, .fd = 1, .addr = ADDR(&byte), .len = 1)), 1);
	check("a plain one", run(&r, SQE(.opcode = WRITE, .fd = p[1], .addr = ADDR(&byte), .len = 1)), -EACCES);
	check("as well asynchronous", run(&r, SQE(.opcode = WRITE, .flags = FIXED_FILE | FORCE_ASYNC, .fd = 1, .addr = ADDR(&byte), .len = 1)), 1);
	check("linked", run(&r, SQE(.opcode = WRITE, .flags = FIXED_FILE | HARDLINK, .fd = 1, .addr = ADDR(&byte), .len = 1)), -EACCES);
	check("drained", run(&r, SQE(.opcode = WRITE, .flags = FIXED_FILE | DRAIN, .fd = 1, .addr = ADDR(&byte), .len = 1)), -EACCES);
	/* With SUBMIT_ALL the others are submitted. */
	push(&r, SQE(.opcode = NOP));
	push(&r, SQE(.opcode = NOP, .flags = FIXED_FILE));
	check("both", enter_call(r.fd, 2, 0, 0, 0, 0), 2);
	check("refused", next(&r), -EACCES);
	check("done", next(&r), 0);
	end_ring(&r);
}

static void operations(void)
{
	struct restriction list[] = { { REGISTER_OP, UNREGISTER_FILES }, { REGISTER_OP, FILES }, { REGISTER_OP, UNREGISTER_RING_FDS }, { SQE_OP, NOP } };
	struct { uint32_t offset, resv; uint64_t data; } fd = { -1u, 0, 0 };
	struct ring r = disabled(0);
	int p[2];

	section = "register operations";
	check("a pipe", pipe(p), 0);
	check("restricted", restrict_to(&r, list, 4), 0);
	check("enabled", enable(&r), 0);
	check("files", register_call(r.fd, FILES, p, 2), 0);
	check("and back", register_call(r.fd, UNREGISTER_FILES, 0, 0), 0);
	check("an eventfd", register_call(r.fd, EVENTFD, &p[0], 1), -EACCES);
	check("a probe", register_call(r.fd, PROBE, 0, 0), -EACCES);
	fd.data = r.fd;
	check("its own number", register_call(r.fd, RING_FDS, &fd, 1), -EACCES);
	check("restrictions again", restrict_to(&r, list, 4), -EACCES);
	check("enabled again", enable(&r), -EACCES);
	check("a NOP", run(&r, SQE(.opcode = NOP)), 0);
	end_ring(&r);
}

int main(void)
{
	block_if_asked();
	refused();
	opcodes();
	flags();
	operations();
	return finish();
}
