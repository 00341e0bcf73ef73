/*
 * A library that is loaded and unloaded while the program runs: liblater.so, named by the first
 * argument, issues its own io_uring_setup.
 */
#include "blocked.h"
#include <dlfcn.h>
#include <pthread.h>

static const char *library;

static void *load(void *unused)
{
	for (int i = 0; i < 20; i++) {
		void *handle = dlopen(library, RTLD_NOW);
		long (*setup)(unsigned, void *) = handle ? (long (*)(unsigned, void *))dlsym(handle, "raw_setup") : NULL;

		if (!setup)
			return (void *)dlerror();
		if (setup(1, NULL) == -EPERM)
			return "kernel";
		dlclose(handle);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];
	void *complaint;

	block_io_uring();
	library = argv[1];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, load, NULL);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &complaint);
		if (complaint)
			return puts(complaint), 1;
	}
	puts("engine");
	return 0;
}
