/* Runs a program under a filter for the io_uring calls: backend_filter ACTION PROGRAM [ARGS].
 * ACTION: eperm, enosys, kill; enter: only io_uring_enter is denied; none. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	const char *action = argc > 2 ? argv[1] : "";
	unsigned answer = !strcmp(action, "kill") ? SECCOMP_RET_KILL_PROCESS :
			  SECCOMP_RET_ERRNO | (!strcmp(action, "enosys") ? ENOSYS : EPERM);
	unsigned first = !strcmp(action, "enter") ? 426 : 425;
	unsigned last = !strcmp(action, "enter") ? 426 : 427;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, answer),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(*code), code };

	if (argc < 3)
		return 2;
	if (strcmp(action, "none")) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
			perror("filter");
			return 2;
		}
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 2;
}
