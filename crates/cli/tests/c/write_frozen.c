/*
 * Writes to a filesystem that is frozen (FIFREEZE) block until it is thawed: a file that is slow
 * for exactly as long as the program wants. Runs in the root of its own filesystem; "../other" is
 * on another one. In the default mode the first blocked write costs its submitter one call; later
 * writes cost nothing, and in the other modes none does. Blocked writes delay only writes of their
 * own file.
 */
#include "robust_ring.h"
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

enum { BLOCK = 1024 };
static int top, slow, other;
static char text[BLOCK];
/* The filesystem was thawed because a step hung. */
static volatile int gave_up;
static volatile int is_frozen;

static void freeze(void)
{
	is_true("freeze", ioctl(top, FIFREEZE, 0) == 0);
	is_frozen = 1;
}

static void thaw(void)
{
	if (__sync_lock_test_and_set(&is_frozen, 0))
		is_true("thaw", ioctl(top, FITHAW, 0) == 0);
}

static void *thaws_soon(void *arg)
{
	sleep_ms((long)arg);
	thaw();
	return 0;
}

/* No process may hang for ever on a frozen filesystem. */
static void *rescues(void *arg)
{
	for (;;) {
		sleep_ms(1000);
		static int frozen_for;
		frozen_for = is_frozen ? frozen_for + 1 : 0;
		if (frozen_for > 60) {
			gave_up = 1;
			thaw();
		}
	}
	return 0;
}

static struct sqe a_write(int fd, uint64_t off, uint64_t user_data)
{
	return SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(text), .len = BLOCK, .off = off, .user_data = user_data);
}

static void nothing_hangs(struct ring *r)
{
	submit(r, a_write(other, 0, 100));
	struct cqe cqe = next_cqe(r);

	check("a write to another file", cqe.user_data, 100);
	check("is whole", cqe.res, BLOCK);
	submit(r, SQE(.opcode = NOP, .user_data = 101));
	check("a NOP", next_cqe(r).user_data, 101);
	is_true("while the file is frozen", is_frozen && !gave_up);
}

/* The first blocked write. */
static void first(int costs_a_call)
{
	section = "the first write that blocks";
	struct ring r = new_ring(8);
	pthread_t thread;

	submit(&r, a_write(slow, 0, 1));
	check("a quick one", next_cqe(&r).res, BLOCK);
	freeze();
	if (costs_a_call)
		pthread_create(&thread, 0, thaws_soon, (void *)200);
	submit(&r, a_write(slow, BLOCK, 2));
	if (costs_a_call)
		pthread_join(thread, 0);
	else
		nothing_hangs(&r);
	thaw();
	check("it is whole", next_cqe(&r).res, BLOCK);
	end_ring(&r);
}

/* The later ones: only threads that wait for them are delayed. */
static void later(void)
{
	section = "later writes";
	struct ring r = new_ring(16);
	int got = 0;

	freeze();
	for (int i = 0; i < 4; i++)
		submit(&r, a_write(slow, i * BLOCK, 10 + i));
	nothing_hangs(&r);
	is_true("they take few threads", count_dir("task") <= 2 + 5);
	submit(&r, SQE(.opcode = ASYNC_CANCEL, .addr = 13, .user_data = 20));
	check("none is done", waiting(&r) <= 2, 1);
	thaw();
	for (int i = 0; i < 5; i++) {
		struct cqe cqe = next_cqe(&r);

		got |= 1 << (cqe.user_data - 10);
		if (cqe.user_data < 13)
			check("a write is whole", cqe.res, BLOCK);
		else if (cqe.user_data == 13)
			is_true("the cancelled one is, or is not", cqe.res == BLOCK || cqe.res == -ECANCELED);
		else
			is_true("the cancel", cqe.res == 0 || cqe.res == -EALREADY || cqe.res == -ENOENT);
	}
	check("each once", got, 15 | 1 << 10);
	check("and no more", comes(&r, 20), 0);
	end_ring(&r);
}

/* The ring is closed while a write is blocked. */
static void goes(void)
{
	section = "the ring goes";
	struct ring r = new_ring(8), another = new_ring(8);
	char back[BLOCK];

	memset(text, 'z', BLOCK);
	struct sqe sqe = a_write(slow, 64 * BLOCK, 1);

	/* By a worker in any mode: the file's last writes were slow. */
	sqe.flags = FORCE_ASYNC;
	freeze();
	submit(&r, sqe);
	end_ring(&r);
	nothing_hangs(&another);
	thaw();
	for (int i = 0; i < 100 && (pread(slow, back, BLOCK, 64 * BLOCK) != BLOCK || back[0] != 'z'); i++)
		sleep_ms(10);
	is_true("the write is done, or not begun", pread(slow, back, BLOCK, 64 * BLOCK) <= 0 || !memcmp(back, text, BLOCK));
	end_ring(&another);
}

/* Once it no longer blocks, its writes are as fast as any. */
static void recovers(void)
{
	section = "it recovers";
	struct ring r = new_ring(8);

	for (int i = 0; i < 3000; i++) {
		push(&r, a_write(slow, i % 32 * BLOCK, i));
		if (enter_call(r.fd, 1, 1, GETEVENTS, 0, 0) != 1)
			check("it is submitted", 0, 1);
		struct cqe cqe = next_cqe(&r);

		if (cqe.user_data != i || cqe.res != BLOCK)
			check("a write", cqe.res, BLOCK);
	}
	end_ring(&r);
}

int main(void)
{
	const char *mode = getenv("URINGLET_MODE");
	/* The kernel hands buffered writes of this filesystem to io-wq. */
	int costs_a_call = getenv("BLOCK_IO_URING") && !mode;
	pthread_t thread;

	block_if_asked();
	top = open(".", O_RDONLY | O_DIRECTORY);
	slow = open("slow", O_RDWR | O_CREAT, 0600);
	other = open("../other", O_RDWR | O_CREAT, 0600);
	struct stat here, there;
	fstat(slow, &here);
	fstat(other, &there);
	if (here.st_dev == there.st_dev) {
		printf("the folder is no filesystem of its own\n");
		return 1;
	}
	memset(text, 'x', BLOCK);
	pthread_create(&thread, 0, rescues, 0);
	first(costs_a_call);
	later();
	goes();
	recovers();
	return finish();
}
