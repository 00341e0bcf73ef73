/* Threads with small stacks, all of them in the engine at once. */
#include "blocked.h"
#include <pthread.h>

enum { THREADS = 32, ROUNDS = 20000 };

static int refused;

static void *work(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		errno = 0;
		syscall(425, 1, NULL);
		if (errno == EPERM)
			__atomic_store_n(&refused, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	pthread_attr_t small;

	block_io_uring();
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 16384);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], i % 2 ? NULL : &small, work, NULL))
			return perror("pthread_create"), 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	puts(refused ? "kernel" : "engine");
	return 0;
}
