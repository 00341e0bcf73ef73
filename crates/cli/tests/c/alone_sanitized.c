/*
 * Threads that share a ring under a lock, in a program with a sanitizer's runtime. Also a signal
 * handler, a fork and an exec, which such a runtime intercepts.
 */
#include "robust_ring.h"
#include <spawn.h>

enum { THREADS = 4, ROUNDS = 50 };

extern char **environ;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ring ring;
static volatile sig_atomic_t handled;

static void count(int signal)
{
	handled++;
}

static void *work(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&lock);
		works(&ring);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static int idle(void)
{
	return 0;
}

int main(int number_of_arguments, char **arguments)
{
	pthread_t threads[THREADS];
	int ends[2], status = -1;
	char *buffer, *again[] = { arguments[0], "again", NULL };
	pid_t pid;

	if (number_of_arguments > 1)
		return 0;
	block_if_asked();
	buffer = malloc(8);
	section = "a ring in a sanitized program";
	signal(SIGUSR1, count);
	ring = new_ring(8);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	is_true("a pipe", !pipe(ends));
	submit(&ring, SQE(.opcode = READ, .flags = FORCE_ASYNC, .fd = ends[0], .addr = ADDR(buffer), .len = 8, .user_data = 7));
	is_true("a write to it", write(ends[1], "12345678", 8) == 8);
	check("a read by a worker", next(&ring), 8);
	is_true("the bytes", !memcmp(buffer, "12345678", 8));
	kill(getpid(), SIGUSR1);
	check("a signal is handled", handled, 1);
	check("a forked child", in_child(idle, 10), 0);
	check("a child is started", posix_spawn(&pid, "/proc/self/exe", NULL, NULL, again, environ), 0);
	is_true("it ends", waitpid(pid, &status, 0) == pid && status == 0);
	end_ring(&ring);
	free(buffer);
	return finish();
}
