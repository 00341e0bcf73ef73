/* Two threads of one process that act as different users, step by step. */
#pragma once
#include "identity.h"

static pthread_barrier_t both_ready;

static void meet(void)
{
	pthread_barrier_wait(&both_ready);
}

static void start(pthread_t *thread, void *(*main_of)(void *), void *arg)
{
	pthread_barrier_init(&both_ready, 0, 2);
	check("a thread", pthread_create(thread, 0, main_of, arg), 0);
}

static void join(pthread_t thread)
{
	check("joined", pthread_join(thread, 0), 0);
}

/* Only the calling thread. */
static int become_nobody(void)
{
	return syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY);
}

struct identity_case {
	const char *name;
	int (*run)(void);
};

/* Each case in a child of its own, or the one that the argument names. */
static void run_cases(const struct identity_case *cases, size_t count, int argc, char **argv)
{
	for (size_t i = 0; i < count; i++)
		if (argc < 2 || !strcmp(argv[1], cases[i].name))
			failures += in_child(cases[i].run, 5) != 0;
}
