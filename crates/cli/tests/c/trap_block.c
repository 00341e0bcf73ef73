/*
 * Runs a program as a container does: the kernel answers its io_uring calls with EPERM, and those
 * of its children. With "text" as the first argument nothing may become code either, and text stays
 * as it is (systemd's MemoryDenyWriteExecute, without its gaps).
 */
#include "blocked.h"
#include <sys/mman.h>

static void deny(int nr, int argument, unsigned bits)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[argument])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("seccomp");
		exit(99);
	}
}

int main(int argc, char **argv)
{
	int text = argc > 1 && strcmp(argv[1], "text") == 0;

	block_io_uring();
	if (text) {
		deny(SYS_mprotect, 2, PROT_EXEC);
		/* Any name has an address. */
		deny(SYS_memfd_create, 0, 0xfffffff0);
	}
	execvp(argv[1 + text], argv + 1 + text);
	perror(argv[1 + text]);
	return 98;
}
