/* What a program registers for its waits, and messages from a thread without a ring. */
#include <signal.h>
#include <time.h>
#include "net_ring.h"

enum { R_DISABLED = 1 << 6, MSG_RING = 40, ENABLE_RINGS = 12, CLOCK = 29, SEND_MSG_RING = 31, MEM_REGION = 34 };
enum { GETEVENTS = 1, EXT_ARG = 8, ABS_TIMER = 32, EXT_ARG_REG = 64, NO_IOWAIT = 128, FEAT_NO_IOWAIT = 1 << 17 };
enum { TYPE_USER = 1, WAIT_ARG = 1, WAIT_TS = 1 };
#define PARAM_REGION 0x20000000
#define PAGE 4096

struct region {
	uint64_t addr, size;
	uint32_t flags, id;
	uint64_t offset, resv[4];
};

struct reg_wait {
	int64_t sec, nsec;
	uint32_t min_wait_us, flags;
	uint64_t sigmask;
	uint32_t sigmask_size, pad[3];
	uint64_t pad2[2];
};

static uint32_t features;

static void ring(const char *name, unsigned flags)
{
	uint32_t params[30] = { [2] = flags };

	if (ring_fd >= 0)
		close(ring_fd);
	open_ring(name, params);
	features = params[5];
}

static int region(void *desc, uint64_t flags)
{
	struct { uint64_t at, flags, resv[2]; } spec = { ADDR(desc), flags };

	return reg(MEM_REGION, &spec, 1);
}

static int wait_for(unsigned n, unsigned flags, uint64_t offset, unsigned len)
{
	int got = syscall(426, ring_fd, 0, n, GETEVENTS | flags, offset, len);

	return got < 0 ? -errno : got;
}

static double now(int clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void regions(void)
{
	char *page = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct region desc = { ADDR(page), PAGE, TYPE_USER }, bad;
	struct { uint64_t at, flags, resv[2]; } spec = { ADDR(&desc), WAIT_ARG };

	ring("regions", R_DISABLED);
	check("no argument", reg(MEM_REGION, 0, 1), -EINVAL);
	check("two", reg(MEM_REGION, &spec, 2), -EINVAL);
	check("bad address", reg(MEM_REGION, (void *)8, 1), -EFAULT);
	check("bad description", region((void *)8, 0), -EFAULT);
	spec.resv[1] = 1;
	check("reserved", reg(MEM_REGION, &spec, 1), -EINVAL);
	check("unknown flag", region(&desc, 2), -EINVAL);
	bad = desc, bad.flags = 2;
	check("unknown type", region(&bad, 0), -EINVAL);
	bad = desc, bad.addr = 0;
	check("no address", region(&bad, 0), -EFAULT);
	bad = desc, bad.flags = 0;
	check("an address of its own", region(&bad, 0), -EFAULT);
	bad = desc, bad.size = 0;
	check("no size", region(&bad, 0), -EINVAL);
	bad = desc, bad.size = 100;
	check("half a page", region(&bad, 0), -EINVAL);
	bad = desc, bad.addr += 8;
	check("beside a page", region(&bad, 0), -EINVAL);
	bad = desc, bad.id = 1;
	check("a number", region(&bad, 0), -EINVAL);
	bad = desc, bad.offset = PAGE;
	check("an offset", region(&bad, 0), -EINVAL);
	bad = desc, bad.resv[3] = 1;
	check("reserved field", region(&bad, 0), -EINVAL);
	bad = desc, bad.addr = -PAGE & ~(uint64_t)(PAGE - 1), bad.size = 2 * PAGE;
	check("around the end", region(&bad, 0), -EOVERFLOW);
	bad = desc, bad.addr = 1 << 16;
	check("nothing there", region(&bad, 0), -EFAULT);
	check("nothing to map", mmap(0, PAGE, PROT_READ, MAP_SHARED, ring_fd, PARAM_REGION) == MAP_FAILED ? errno : 0, ENOMEM);
	check("registered", region(&desc, WAIT_ARG), 0);
	check("again", region(&desc, WAIT_ARG), -EBUSY);
	check("its own memory", mmap(0, PAGE, PROT_READ, MAP_SHARED, ring_fd, PARAM_REGION) == MAP_FAILED ? errno : 0, ENOMEM);
	ring("enabled", 0);
	check("for waits", region(&desc, WAIT_ARG), -EINVAL);
	check("for nothing", region(&desc, 0), 0);
	check("not for waits", wait_for(1, EXT_ARG | EXT_ARG_REG, 0, 64), -EFAULT);
}

static void registered_waits(int is_user)
{
	char *page = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct region desc = { is_user ? ADDR(page) : 0, PAGE, is_user ? TYPE_USER : 0 };
	uint64_t mask = 0;
	struct reg_wait *waits;
	double start;

	ring(is_user ? "waits, own memory" : "waits", R_DISABLED);
	check("registered", region(&desc, WAIT_ARG), 0);
	check("enabled", reg(ENABLE_RINGS, 0, 0), 0);
	check("where it is mapped", desc.offset, is_user ? 0 : PARAM_REGION);
	waits = is_user ? (void *)page : mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd, desc.offset);
	check("mapped", waits != MAP_FAILED, 1);
	waits[1] = (struct reg_wait){ 0, 20000000, .flags = WAIT_TS };
	start = now(CLOCK_MONOTONIC);
	check("a time-out", wait_for(1, EXT_ARG | EXT_ARG_REG, 64, 64), -ETIME);
	check("its time", now(CLOCK_MONOTONIC) - start >= 0.02, 1);
	waits[2] = (struct reg_wait){ 0, 20000000, .flags = WAIT_TS, .sigmask = ADDR(&mask), .sigmask_size = 8 };
	check("with a mask", wait_for(1, EXT_ARG | EXT_ARG_REG, 128, 64), -ETIME);
	waits[2].sigmask_size = 4;
	check("a short mask", wait_for(1, EXT_ARG | EXT_ARG_REG, 128, 64), -EINVAL);
	waits[3] = (struct reg_wait){ .flags = 2 };
	check("unknown flag", wait_for(1, EXT_ARG | EXT_ARG_REG, 192, 64), -EINVAL);
	check("another size", wait_for(1, EXT_ARG | EXT_ARG_REG, 64, 24), -EINVAL);
	check("beside a word", wait_for(1, EXT_ARG | EXT_ARG_REG, 68, 64), -EFAULT);
	check("beyond the end", wait_for(1, EXT_ARG | EXT_ARG_REG, PAGE - 56, 64), -EFAULT);
	check("far beyond", wait_for(1, EXT_ARG | EXT_ARG_REG, -64, 64), -EFAULT);
	/* Linux 6.18 takes the first ones for the last ones. */
	waits[0] = waits[63] = waits[1];
	check("the last", wait_for(1, EXT_ARG | EXT_ARG_REG, 63 * 64, 64), -ETIME);
	waits[4] = (struct reg_wait){ .min_wait_us = 20000 };
	start = now(CLOCK_MONOTONIC);
	check("a minimal wait", wait_for(1, EXT_ARG | EXT_ARG_REG, 256, 64), -ETIME);
	check("its length", now(CLOCK_MONOTONIC) - start >= 0.02, 1);
	push(SQE(NOP));
	check("with a submission", syscall(426, ring_fd, 1, 1, GETEVENTS | EXT_ARG | EXT_ARG_REG, 64, 64), 1);
	check("completes", next(), 0);
	check("two flags", wait_for(0, EXT_ARG_REG, 0, 0), 0);
}

static void no_region(void)
{
	ring("no region", 0);
	check("no arguments", wait_for(1, EXT_ARG | EXT_ARG_REG, 0, 64), -EFAULT);
	check("a feature", !!(features & FEAT_NO_IOWAIT), 1);
	push(SQE(NOP));
	check("without I/O wait", syscall(426, ring_fd, 1, 1, GETEVENTS | NO_IOWAIT, 0, 0), 1);
	check("completes", next(), 0);
}

static int set_clock(uint32_t clock)
{
	uint32_t spec[4] = { clock };

	return reg(CLOCK, spec, 0);
}

/* Waits until 20 ms from now on a clock. */
static void wait_until(int clock)
{
	double until = now(clock) + 0.02;
	int64_t ts[2] = { until, (until - (int64_t)until) * 1e9 };
	uint64_t arg[3] = { 0, 8, ADDR(ts) };

	check("a deadline", wait_for(1, EXT_ARG | ABS_TIMER, ADDR(arg), sizeof(arg)), -ETIME);
	check("is not early", now(clock) >= until - 0.0001, 1);
	check("and not an hour late", now(clock) < until + 3600, 1);
}

static void clocks(void)
{
	uint32_t reserved[4] = { CLOCK_BOOTTIME, 0, 0, 1 };

	ring("clocks", 0);
	check("no argument", reg(CLOCK, 0, 0), -EINVAL);
	check("a number", reg(CLOCK, reserved, 1), -EINVAL);
	check("bad address", reg(CLOCK, (void *)8, 0), -EFAULT);
	check("reserved", reg(CLOCK, reserved, 0), -EINVAL);
	check("real time", set_clock(CLOCK_REALTIME), -EINVAL);
	check("none", set_clock(99), -EINVAL);
	wait_until(CLOCK_MONOTONIC);
	check("boot time", set_clock(CLOCK_BOOTTIME), 0);
	wait_until(CLOCK_BOOTTIME);
	check("and back", set_clock(CLOCK_MONOTONIC), 0);
	wait_until(CLOCK_MONOTONIC);
}

static int message(int fd, unsigned op, struct sqe sqe, unsigned n)
{
	int got = syscall(427, fd, op, &sqe, n);

	return got < 0 ? -errno : got;
}

static void messages(void)
{
	uint32_t params[30] = { [2] = R_DISABLED };
	int disabled = syscall(425, 4, params), pipes[2];
	struct sqe sqe = { MSG_RING, .off = 42, .len = 7 };

	ring("messages", 0);
	check("pipes", pipe(pipes), 0);
	sqe.fd = ring_fd;
	check("sent", message(-1, SEND_MSG_RING, sqe, 1), 0);
	check("comes", comes(60000), 1);
	check("its user_data", cqes[*cq_head & *cq_mask].user_data, 42);
	check("its result", next(), 7);
	check("on a ring", message(ring_fd, SEND_MSG_RING, sqe, 1), -EINVAL);
	check("two", message(-1, SEND_MSG_RING, sqe, 2), -EINVAL);
	check("none", syscall(427, -1, SEND_MSG_RING, 0, 1) < 0 ? errno : 0, EINVAL);
	check("bad address", syscall(427, -1, SEND_MSG_RING, 8, 1) < 0 ? errno : 0, EFAULT);
	sqe.flags = 4;
	check("a flag", message(-1, SEND_MSG_RING, sqe, 1), -EINVAL);
	sqe.flags = 0;
	sqe.opcode = NOP;
	check("another request", message(-1, SEND_MSG_RING, sqe, 1), -EINVAL);
	sqe.opcode = MSG_RING;
	sqe.addr = 1;
	check("a file", message(-1, SEND_MSG_RING, sqe, 1), -EINVAL);
	sqe.addr = 0;
	sqe.buf_index = 1;
	check("buf_index", message(-1, SEND_MSG_RING, sqe, 1), -EINVAL);
	sqe.buf_index = 0;
	sqe.op_flags = 4;
	check("unknown flag", message(-1, SEND_MSG_RING, sqe, 1), -EINVAL);
	sqe.op_flags = 0;
	sqe.fd = 999;
	check("no descriptor", message(-1, SEND_MSG_RING, sqe, 1), -EBADF);
	sqe.fd = pipes[0];
	check("no ring", message(-1, SEND_MSG_RING, sqe, 1), -EBADFD);
	sqe.fd = disabled;
	check("disabled", message(-1, SEND_MSG_RING, sqe, 1), -EBADFD);
	nothing_comes("of these");
	close(disabled);
}

int main(void)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	regions();
	no_region();
	registered_waits(0);
	registered_waits(1);
	clocks();
	messages();
	return failures != 0;
}
