/*
 * Waits on a few futexes, submitted and cancelled at random, while another thread wakes one at a
 * time and changes values: each completes once.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include "net_ring.h"

enum { RING_WAIT = 51, RING_WAITV = 53, U32 = 2, ROUNDS = 5000, MOST = 20, CANCEL = 1 };

static uint32_t words[4];
static int is_over, submitted, in_flight, cancelled, said_cancelled;

static void *wakes(void *unused)
{
	unsigned seed = 1;

	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
		syscall(SYS_futex, words + rand_r(&seed) % 4, FUTEX_WAKE, 1, 0, 0, 0);
		if (rand_r(&seed) % 8 == 0)
			__atomic_fetch_xor(words + rand_r(&seed) % 4, 1, __ATOMIC_RELAXED);
	}
	return unused;
}

static uint32_t now(int i)
{
	return __atomic_load_n(words + i, __ATOMIC_RELAXED);
}

static void begin(void)
{
	struct { uint64_t value, address; uint32_t flags, reserved; } vector[4];
	int i = rand() % 4;

	submitted++;
	in_flight++;
	if (rand() % 3) {
		submit(SQE(RING_WAIT, .fd = U32, .addr = ADDR(words + i), .off = now(i), .addr3 = 0xffffffff, .user_data = 1000 + submitted));
		return;
	}
	for (i = 0; i < 4; i++) {
		vector[i].value = now(i);
		vector[i].address = ADDR(words + i);
		vector[i].flags = U32;
		vector[i].reserved = 0;
	}
	submit(SQE(RING_WAITV, .addr = ADDR(vector), .len = 4, .user_data = 1000 + submitted));
}

static void end(void)
{
	int res = next(), is_cancel = cqes[(*cq_head - 1) & *cq_mask].user_data == CANCEL;

	in_flight--;
	if (is_cancel) {
		said_cancelled += res == 1;
		check("a cancel", res == 1 || res == -ENOENT || res == -EALREADY, 1);
	} else {
		cancelled += res == -ECANCELED;
		check("a wait", (res >= 0 && res < 4) || res == -EAGAIN || res == -ECANCELED, 1);
	}
	if (failures)
		exit(1);
}

int main(void)
{
	pthread_t thread;
	int i, round;

	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	new_ring("load");
	pthread_create(&thread, 0, wakes, 0);
	for (round = 0; round < ROUNDS; round++) {
		if (rand() % 2) {
			begin();
		} else if (in_flight) {
			submit(SQE(ASYNC_CANCEL, .addr = 1000 + submitted - rand() % MOST, .user_data = CANCEL));
			in_flight++;
		}
		while (in_flight > MOST || (in_flight && comes(0)))
			end();
	}
	/* From here on no value changes: these wakes end every wait. */
	__atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
	pthread_join(thread, 0);
	for (i = 0; i < 4; i++)
		syscall(SYS_futex, words + i, FUTEX_WAKE, 99, 0, 0, 0);
	while (in_flight)
		end();
	check("cancels and cancelled", cancelled, said_cancelled);
	nothing_comes("no more");
	check("nobody waits", syscall(SYS_futex, words, FUTEX_WAKE, 99, 0, 0, 0), 0);
	return failures > 0;
}
