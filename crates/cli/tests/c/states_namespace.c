/* A library in a namespace of its own (dlmopen), with a libc of its own, uses rings. */
#include "robust_ring.h"
#include <dlfcn.h>

int main(int argc, char **argv)
{
	block_if_asked();
	for (int i = 0; i < 2; i++) {
		void *handle = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
		int (*use_ring)(void) = handle ? (int (*)(void))dlsym(handle, "use_ring") : 0;

		if (!use_ring) {
			printf("%s\n", dlerror());
			return 1;
		}
		/* Beside a ring of the program itself, the second time. */
		check("failures there", use_ring(), 0);
		struct ring r = new_ring(8);

		works(&r);
		check("failures there", use_ring(), 0);
		works(&r);
		end_ring(&r);
		dlclose(handle);
	}
	return finish();
}
