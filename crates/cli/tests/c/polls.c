/* Settings of polling that are checked and told, and have no effect here: NAPI, HYBRID_IOPOLL. */
#include "net_ring.h"

enum { REGISTER_NAPI = 27, UNREGISTER_NAPI = 28, IOPOLL = 1, SQPOLL = 2, HYBRID = 1 << 17, WRITE = 23 };
enum { REGISTER_OP, ADD_ID, DEL_ID };
enum { DYNAMIC = 0, STATIC = 1, INACTIVE = 255 };

struct napi {
	uint32_t busy;
	uint8_t prefer, opcode, pad[2];
	uint32_t op_param, resv;
};

static struct napi napi;

static void ring(const char *name, unsigned flags)
{
	uint32_t params[30] = { [2] = flags };

	if (ring_fd >= 0)
		close(ring_fd);
	open_ring(name, params);
}

/* The answer, and what is told of the former settings. */
static void tells(const char *what, unsigned op, struct napi asked, int result, uint32_t busy, int prefer, uint32_t tracking)
{
	napi = asked;
	check(what, reg(op, &napi, 1), result);
	check(what, napi.busy, busy);
	check(what, napi.prefer, prefer);
	check(what, napi.op_param, tracking);
	check(what, napi.opcode, 0);
}

/* An answer that comes before anything is told. */
static void refuses(const char *what, struct napi asked)
{
	napi = asked;
	check(what, reg(REGISTER_NAPI, &napi, 1), -EINVAL);
	check("nothing is told", memcmp(&napi, &asked, sizeof(napi)), 0);
}

static void device_polling(const char *name, unsigned flags)
{
	struct napi none = { 0 };

	ring(name, flags);
	check("no argument", reg(REGISTER_NAPI, 0, 1), -EINVAL);
	check("two", reg(REGISTER_NAPI, &none, 2), -EINVAL);
	check("bad address", reg(REGISTER_NAPI, (void *)8, 1), -EFAULT);
	refuses("reserved", (struct napi){ .resv = 1 });
	refuses("padding", (struct napi){ .pad = { 0, 1 } });
	tells("first", REGISTER_NAPI, (struct napi){ .busy = 50, .prefer = 1 }, 0, 0, 0, INACTIVE);
	tells("again", REGISTER_NAPI, (struct napi){ .busy = 60, .prefer = 2 }, 0, 50, 1, DYNAMIC);
	tells("an id", REGISTER_NAPI, (struct napi){ .opcode = ADD_ID, .op_param = 1000000 }, -EINVAL, 60, 1, DYNAMIC);
	tells("to be removed", REGISTER_NAPI, (struct napi){ .opcode = DEL_ID, .op_param = 1000000 }, -EINVAL, 60, 1, DYNAMIC);
	tells("unknown operation", REGISTER_NAPI, (struct napi){ .opcode = 3 }, -EINVAL, 60, 1, DYNAMIC);
	tells("unknown tracking", REGISTER_NAPI, (struct napi){ .op_param = 2 }, -EINVAL, 60, 1, DYNAMIC);
	tells("inactive", REGISTER_NAPI, (struct napi){ .op_param = INACTIVE }, -EINVAL, 60, 1, DYNAMIC);
	tells("static", REGISTER_NAPI, (struct napi){ .busy = -1, .op_param = STATIC }, 0, 60, 1, DYNAMIC);
	tells("no id", REGISTER_NAPI, (struct napi){ .opcode = ADD_ID, .op_param = 1 }, -EINVAL, 10000, 0, STATIC);
	tells("an id", REGISTER_NAPI, (struct napi){ .opcode = ADD_ID, .op_param = 1000000 }, 0, 10000, 0, STATIC);
	tells("again", REGISTER_NAPI, (struct napi){ .opcode = ADD_ID, .op_param = 1000000 }, -EEXIST, 10000, 0, STATIC);
	tells("removed", REGISTER_NAPI, (struct napi){ .opcode = DEL_ID, .op_param = 1000000 }, 0, 10000, 0, STATIC);
	tells("twice", REGISTER_NAPI, (struct napi){ .opcode = DEL_ID, .op_param = 1000000 }, -ENOENT, 10000, 0, STATIC);
	tells("an id", REGISTER_NAPI, (struct napi){ .opcode = ADD_ID, .op_param = 1000000 }, 0, 10000, 0, STATIC);
	tells("static again", REGISTER_NAPI, (struct napi){ .busy = 7, .op_param = STATIC }, 0, 10000, 0, STATIC);
	tells("no ids", REGISTER_NAPI, (struct napi){ .opcode = DEL_ID, .op_param = 1000000 }, -ENOENT, 7, 0, STATIC);
	does("requests go on", SQE(NOP), 0, 0);
	check("unregistered by none", reg(UNREGISTER_NAPI, &none, 0), -EINVAL);
	check("by two", reg(UNREGISTER_NAPI, &none, 2), -EINVAL);
	check("bad address", reg(UNREGISTER_NAPI, (void *)8, 1), -EFAULT);
	tells("the last", UNREGISTER_NAPI, (struct napi){ .pad = { 1 }, .resv = 5, .opcode = 9 }, 0, 7, 0, 0);
	tells("nothing", UNREGISTER_NAPI, (struct napi){ 0 }, 0, 0, 0, 0);
	tells("inactive", REGISTER_NAPI, (struct napi){ .busy = 5 }, 0, 0, 0, INACTIVE);
	check("without an argument", reg(UNREGISTER_NAPI, 0, 1), 0);
	tells("inactive", REGISTER_NAPI, (struct napi){ .busy = 5 }, 0, 0, 0, INACTIVE);
}

static void polled_files(void)
{
	struct napi none = { 0 };
	int fd = open("polls.direct", O_RDWR | O_CREAT | O_TRUNC, 0600);
	static char byte;

	ring("polled files", IOPOLL);
	check("no devices", reg(REGISTER_NAPI, (void *)8, 1), -EINVAL);
	check("none", reg(REGISTER_NAPI, &none, 1), -EINVAL);
	check("not registered", reg(UNREGISTER_NAPI, &none, 1), 0);
	ring("hybrid polling", IOPOLL | HYBRID);
	does("a request", SQE(NOP), 0, 0);
	does("a buffered file", SQE(READ, .fd = fd, .addr = ADDR(&byte), .len = 1), -EOPNOTSUPP, 0);
	close(fd);
}

static int setup(unsigned flags)
{
	uint32_t params[30] = { [2] = flags };
	int fd = syscall(425, 4, params);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

int main(void)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	device_polling("devices", 0);
	device_polling("devices, deferred", 3 << 12);
	polled_files();
	section = "setup";
	check("hybrid", setup(HYBRID), -EINVAL);
	check("hybrid without polling", setup(HYBRID | SQPOLL), -EINVAL);
	check("hybrid with a thread", setup(HYBRID | IOPOLL | SQPOLL), 0);
	check("hybrid, deferred", setup(HYBRID | IOPOLL | 3 << 12), 0);
	return failures != 0;
}
