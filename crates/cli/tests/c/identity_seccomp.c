/*
 * A filter that refuses openat, installed by one thread for itself while a worker and a watcher
 * exist. The kernel's ring does not ask filters. The engine opens by a system call, which the
 * submitter's filter refuses, whoever executes it. Argument: what opens are answered with, 0 or
 * -EPERM.
 */
#include "identity_two.h"

static int refused;

static int install(unsigned flags)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return flags ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter) : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

static void opens(struct ring *r, int expected)
{
	check("by a worker", open_async(r, open_to_all), expected);
	check("by the submitter", open_inline(r, open_to_all), expected);
	queue_behind_timeout(r, open_to_all, 1, 0);
	check("linked to a timeout", result_behind_timeout(r), expected);
	queue_behind_timeout(r, open_to_all, 1, 0);
	check("linked to a timeout, unattended", result_unattended(r), expected);
}

static int one_thread(void)
{
	struct ring r = used_ring();

	section = "one thread";
	queue_behind_timeout(&r, open_to_all, 1, 0);
	check("installed", install(0), 0);
	check("linked before", result_unattended(&r), refused);
	opens(&r, refused);
	return 0;
}

static void *filtered(void *arg)
{
	struct ring r = used_ring();

	check("installed", install(0), 0);
	meet();
	opens(&r, refused);
	meet();
	return arg;
}

static int one_of_two(void)
{
	struct ring r = used_ring();
	pthread_t thread;

	section = "one thread of two";
	start(&thread, filtered, 0);
	meet();
	opens(&r, 0);
	meet();
	join(thread);
	return 0;
}

static void *synchronizes(void *arg)
{
	struct ring r = used_ring();

	check("installed for all", install(SECCOMP_FILTER_FLAG_TSYNC), 0);
	meet();
	opens(&r, refused);
	return arg;
}

static int all_threads(void)
{
	struct ring r = used_ring();
	pthread_t thread;

	section = "all threads";
	start(&thread, synchronizes, 0);
	meet();
	opens(&r, refused);
	join(thread);
	return 0;
}

/* Kills at calls that a process needs no more; the engine makes none of them on its own. */
static int strict(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 7, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 6, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 5, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_statx, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_geteuid, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getegid, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };
	struct ring r = used_ring();
	int fds[2];
	char byte;

	section = "a strict filter";
	check("a pipe", pipe(fds), 0);
	check("no new privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	check("installed", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
	works(&r);
	check("fed", write(fds[1], "x", 1), 1);
	check("read", run(&r, SQE(.opcode = READ, .fd = fds[0], .addr = ADDR(&byte), .len = 1, .off = -1)), 1);
	end_ring(&r);
	return 0;
}

int main(int argc, char **argv)
{
	refused = argc > 1 ? atoi(argv[1]) : 0;
	block_if_asked();
	make_files();
	failures += in_child(one_thread, 5) != 0;
	failures += in_child(one_of_two, 5) != 0;
	failures += in_child(all_threads, 5) != 0;
	failures += in_child(strict, 5) != 0;
	remove_files();
	return finish();
}
