/*
 * Futex waits and wakes through a ring, beside those of futex(2): counts, masks, vectors, cancels,
 * malformed requests.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include "net_ring.h"

enum { LINK_TIMEOUT = 15, RING_WAIT = 51, RING_WAKE = 52, RING_WAITV = 53, U32 = 2, PRIVATE = 128, UNMAPPED = 0x10000 };
#define ANY 0xffffffffu
#define ON(address, value, mask, flags) SQE(RING_WAIT, .fd = flags, .addr = ADDR(address), .off = value, .addr3 = mask)
#define WAKE(address, n, mask, flags) SQE(RING_WAKE, .fd = flags, .addr = ADDR(address), .off = n, .addr3 = mask)
#define VECTOR(n) SQE(RING_WAITV, .addr = ADDR(vector), .len = n)

struct waiter {
	uint64_t value, address;
	uint32_t flags, reserved;
};

static uint32_t word[8], *shared;
static struct waiter vector[130];

static long wake(uint32_t *address, int n)
{
	return syscall(SYS_futex, address, FUTEX_WAKE, n, 0, 0, 0);
}

static void fill(uint64_t value)
{
	for (int i = 0; i < 130; i++)
		vector[i] = (struct waiter){ value, ADDR(word + i % 8), U32, 0 };
}

static void malformed_one(void)
{
	struct sqe ops[] = { ON(word, 1, ANY, U32), WAKE(word, 1, ANY, U32) }, bad;
	int i, flags, answer;
	char *read_only;

	for (i = 0; i < 2; i++) {
		new_ring(i ? "malformed wake" : "malformed wait");
		answer = i ? 0 : -EAGAIN;
		does("good", ops[i], answer, 0);
		for (flags = 0; flags < 512; flags++) {
			bad = ops[i];
			bad.fd = flags;
			/* NUMA and MPOL are 4 and 8; some kernels support them. */
			if (!(flags & 12))
				does("flags", bad, flags == U32 || flags == (U32 | PRIVATE) ? answer : -EINVAL, 0);
		}
		bad = ops[i], bad.len = 1;
		does("len", bad, -EINVAL, 0);
		bad = ops[i], bad.op_flags = 1;
		does("flag word", bad, -EINVAL, 0);
		bad = ops[i], bad.buf_index = 1;
		does("buf_index", bad, -EINVAL, 0);
		bad = ops[i], bad.file_index = 1;
		does("file_index", bad, -EINVAL, 0);
		bad = ops[i], bad.ioprio = 1;
		does("ioprio", bad, -EINVAL, 0);
		bad = ops[i], bad.off = 1ull << 32;
		does("big value", bad, -EINVAL, 0);
		bad = ops[i], bad.addr3 = 1ull << 32;
		does("big mask", bad, -EINVAL, 0);
		bad = ops[i], bad.addr3 = 0;
		does("no mask", bad, -EINVAL, 0);
		bad = ops[i], bad.addr++;
		does("not aligned", bad, -EINVAL, 0);
		bad = ops[i], bad.addr = BAD_ADDRESS;
		does("the kernel's", bad, -EFAULT, 0);
		bad = ops[i], bad.addr = UNMAPPED;
		does("nothing there", bad, -EFAULT, 0);
		bad = ops[i], bad.pad2 = 1, bad.flags = FIXED_FILE;
		does("not looked at", bad, answer, 0);
		bad = ops[i], bad.flags = BUFFER_SELECT;
		does("buffer select", bad, -EOPNOTSUPP, 0);
	}
	does("a private one need not be there", WAKE(UNMAPPED, 1, ANY, U32 | PRIVATE), 0, 0);
	does("to wait on it must", ON(UNMAPPED, 1, ANY, U32 | PRIVATE), -EFAULT, 0);
	does("nobody, no mask", WAKE(word, 0, 0, U32), -EINVAL, 0);
	does("nobody, not aligned", WAKE((char *)word + 1, 0, ANY, U32), -EINVAL, 0);
	does("nobody, the kernel's", WAKE(BAD_ADDRESS, 0, ANY, U32), -EFAULT, 0);
	does("nobody, nothing there", WAKE(UNMAPPED, 0, ANY, U32), -EFAULT, 0);
	does("nobody, a private one", WAKE(UNMAPPED, 0, ANY, U32 | PRIVATE), 0, 0);
	/* A page of this process alone that it may not write can be no futex. */
	read_only = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	does("nobody, not to be written", WAKE(read_only, 0, ANY, U32), -EFAULT, 0);
	does("somebody, not to be written", WAKE(read_only, 1, ANY, U32), -EFAULT, 0);
	does("not to be written", ON(read_only, 0, ANY, U32), -EFAULT, 0);
	does("not to be written, another value", ON(read_only, 1, ANY, U32), -EFAULT, 0);
	vector[0] = (struct waiter){ 0, ADDR(read_only), U32, 0 };
	vector[1] = (struct waiter){ 7, ADDR(word), U32, 0 };
	does("one of two", VECTOR(2), -EFAULT, 0);
}

static void malformed_vector(void)
{
	struct sqe bad;

	new_ring("malformed vector");
	fill(1);
	does("good", VECTOR(128), -EAGAIN, 0);
	does("none", VECTOR(0), -EINVAL, 0);
	does("too many", VECTOR(129), -EINVAL, 0);
	bad = VECTOR(1), bad.addr = BAD_ADDRESS;
	does("no vector", bad, -EFAULT, 0);
	bad = VECTOR(1), bad.fd = 1;
	does("fd", bad, -EINVAL, 0);
	bad = VECTOR(1), bad.off = 1;
	does("off", bad, -EINVAL, 0);
	bad = VECTOR(1), bad.addr3 = 1;
	does("addr3", bad, -EINVAL, 0);
	bad = VECTOR(1), bad.op_flags = 1;
	does("flag word", bad, -EINVAL, 0);
	bad = VECTOR(1), bad.buf_index = 1;
	does("buf_index", bad, -EINVAL, 0);
	bad = VECTOR(1), bad.file_index = 1;
	does("file_index", bad, -EINVAL, 0);
	vector[0].reserved = 1;
	does("reserved", VECTOR(1), -EINVAL, 0);
	vector[0].reserved = 0, vector[0].flags = 3;
	does("64 bits", VECTOR(1), -EINVAL, 0);
	vector[0].flags = U32 | 0x10;
	does("flags", VECTOR(1), -EINVAL, 0);
	vector[0].flags = U32, vector[0].value = 1ull << 32;
	does("big value", VECTOR(1), -EINVAL, 0);
	vector[0].value = 1, vector[0].address++;
	does("not aligned", VECTOR(1), -EINVAL, 0);
	vector[0].address = BAD_ADDRESS;
	does("the kernel's", VECTOR(1), -EFAULT, 0);
	vector[0].address = UNMAPPED;
	does("nothing there", VECTOR(1), -EFAULT, 0);
	fill(0);
	vector[3].value = 1;
	does("one differs", VECTOR(4), -EAGAIN, 0);
	vector[3].value = 0, vector[3].address = BAD_ADDRESS;
	does("one is bad", VECTOR(4), -EFAULT, 0);
}

/* A wait can be woken as soon as it is submitted, by any kind of wake, though no value changes. */
static void wakes(const char *name, uint32_t *word, int flags)
{
	int i;

	new_ring(name);
	does("nobody waits", WAKE(word, 1, ANY, flags), 0, 0);
	submit(ON(word, 0, ANY, flags));
	nothing_comes("waits");
	submit(WAKE(word, 9, ANY, flags));
	check("both", next() + next(), 1);
	submit_linked(ON(word, 0, ANY, flags), WAKE(word, 1, ANY, flags));
	check("in one submission", next() + next(), 1);
	submit(SQE(RING_WAIT, FORCE_ASYNC, .fd = flags, .addr = ADDR(word), .addr3 = ANY));
	nothing_comes("asynchronous");
	check("wakes it", run(WAKE(word, 1, ANY, flags)) + next(), 1);
	for (i = 0; i < 4; i++)
		submit(ON(word, 0, 1 << i, flags));
	does("no such bit", WAKE(word, 9, 16, flags), 0, 0);
	does("none at all", WAKE(word, 0, ANY, flags), 0, 0);
	check("two bits", run(WAKE(word, 9, 6, flags)) + next() + next(), 2);
	check("one of two", run(WAKE(word, 1, ANY, flags)) + next(), 1);
	nothing_comes("one is left");
	check("a negative number is one", run(WAKE(word, 0x80000000u, ANY, flags)) + next(), 1);
}

static void plain_wakes(void)
{
	int i;

	new_ring("futex(2)");
	for (i = 0; i < 100; i++) {
		submit(ON(word, 0, ANY, U32));
		check("woken", wake(word, 1), 1);
		expect("and told", 0, 0);
	}
	submit(ON(word, 0, ANY, U32 | PRIVATE));
	check("others are not", wake(word, 1), 0);
	check("the private are", syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, 0, 0), 1);
	expect("and told", 0, 0);
	submit(ON(shared, 0, ANY, U32));
	if (!fork())
		_exit(wake(shared, 1) != 1);
	expect("by another process", 0, 0);
}

static void vectors(void)
{
	int i;

	new_ring("vectors");
	for (i = 0; i < 8; i++) {
		fill(0);
		submit(VECTOR(8));
		memset(vector, 0xff, sizeof(vector));
		check("woken", wake(word + i, 1), 1);
		expect("which", i, 0);
	}
	fill(0);
	submit(VECTOR(128));
	nothing_comes("all there may be");
	check("many times the same", wake(word + 5, 9) >= 1, 1);
	check("one of them", next() % 8, 5);
}

/*
 * A cancel counts what it ends, even a single request; so does a time limit. The order of the two
 * CQEs is open.
 */
static void cancels(void)
{
	struct sqe waits[] = { ON(word, 0, ANY, U32), VECTOR(8) }, linked;
	uint64_t soon[2] = { 0, 20000000 };
	int i;

	new_ring("cancels");
	fill(0);
	for (i = 0; i < 2; i++) {
		waits[i].user_data = 5;
		submit(waits[i]);
		submit(SQE(ASYNC_CANCEL, .addr = 5));
		check("cancelled", next() + next(), 1 - ECANCELED);
		check("nobody waits", wake(word, 1), 0);
		linked = waits[i];
		linked.flags = LINK;
		submit_linked(linked, SQE(LINK_TIMEOUT, .addr = ADDR(soon), .len = 1));
		check("late", next() + next(), 1 - ECANCELED);
	}
	linked = ON(word, 1, ANY, U32);
	linked.flags = LINK;
	submit_linked(linked, SQE(NOP));
	check("another value fails", next(), -EAGAIN);
	check("its link", next(), -ECANCELED);
	submit(waits[0]);
	submit(waits[1]);
	new_ring("after that");
	for (i = 0; i < 1000 && wake(word, 1); i++)
		usleep(1000);
	check("nobody waits when the ring is gone", wake(word, 9), 0);
}

enum { PASSES = 2000 };

/* Takes turns with the ring: a lost wake is a turn that never ends. */
static void *partner(void *unused)
{
	for (uint32_t turn = 1; turn < 2 * PASSES; turn += 2) {
		uint32_t now;

		while ((now = __atomic_load_n(word, __ATOMIC_ACQUIRE)) != turn)
			syscall(SYS_futex, word, FUTEX_WAIT, now, 0, 0, 0);
		__atomic_store_n(word, turn + 1, __ATOMIC_RELEASE);
		wake(word, 9);
	}
	return unused;
}

static void turns(void)
{
	pthread_t thread;
	uint32_t turn, now;

	new_ring("turns");
	pthread_create(&thread, 0, partner, 0);
	for (turn = 0; turn < 2 * PASSES; turn += 2) {
		while ((now = __atomic_load_n(word, __ATOMIC_ACQUIRE)) != turn) {
			int res = run(ON(word, now, ANY, U32));

			check("woken, or late", res == 0 || res == -EAGAIN, 1);
			if (failures)
				exit(1);
		}
		__atomic_store_n(word, turn + 1, __ATOMIC_RELEASE);
		check("wakes one or none", run(WAKE(word, 9, ANY, U32)) <= 1, 1);
	}
	pthread_join(thread, 0);
	*word = 0;
}

int main(void)
{
	shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	malformed_one();
	malformed_vector();
	wakes("wakes", word, U32);
	wakes("private", word, U32 | PRIVATE);
	wakes("shared", shared, U32);
	plain_wakes();
	vectors();
	cancels();
	turns();
	return failures > 0;
}
