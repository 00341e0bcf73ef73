/*
 * What the engine's threads do with an identity: which of them runs what, and which of them stay.
 * Argument: the section.
 */
#include "identity_two.h"
#include <linux/filter.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { CONNECT = 16 };
enum { FLIPS = 100, QUEUED = 20 };

/* Refuses to open files, in the calling thread only. */
static void refuse_opens(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };

	check("no new privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	check("a filter", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter), 0);
}

/* Not on the kernel's ring, whose requests no filter sees. */
static int filter_of_the_only_thread(void)
{
	struct ring r = used_ring();

	section = "a filter";
	refuse_opens();
	check("opened", open_both(&r, open_to_all), -EPERM);
	queue_behind_timeout(&r, open_to_all, 1, 0);
	check("opened behind a timeout", result_unattended(&r), -EPERM);
	return 0;
}

static void *with_filter(void *shared)
{
	struct ring *r = shared;

	refuse_opens();
	check("opened with the filter", open_both(r, open_to_all), -EPERM);
	queue_behind_timeout(r, open_to_all, 1, 0);
	meet();
	/* It lives on: a request's submitter does. */
	meet();
	return shared;
}

static int filter_of_one_thread(void)
{
	struct ring r = used_ring();
	pthread_t thread;

	section = "a filter of one thread";
	start(&thread, with_filter, &r);
	meet();
	check("opened behind a timeout, with the filter", result_unattended(&r), -EPERM);
	check("opened without the filter", open_both(&r, open_to_all), 0);
	queue_behind_timeout(&r, open_to_all, 1, 0);
	check("opened behind a timeout, without the filter", result_unattended(&r), 0);
	meet();
	join(thread);
	return 0;
}

static void *unattended_nobody(void *shared)
{
	struct ring r = used_ring();

	check("nobody alone", become_nobody(), 0);
	meet();
	queue_behind_timeout(&r, secret, 1, 0);
	check("as nobody", result_unattended(&r), -EACCES);
	queue_behind_timeout(&r, of_nobody, 1, 0);
	check("nobody's file", result_unattended(&r), 0);
	meet();
	return shared;
}

/* Two users, each with a chain that goes on while no thread is inside its ring. */
static int unattended_chains(void)
{
	struct ring r = used_ring();
	pthread_t thread;

	section = "chains of two users, unattended";
	start(&thread, unattended_nobody, 0);
	meet();
	queue_behind_timeout(&r, secret, 1, 0);
	check("as root", result_unattended(&r), 0);
	/* The worker that stays for such chains has been idle. */
	sleep_ms(50);
	queue_behind_timeout(&r, secret, 1, FORCE_ASYNC);
	check("as root, by a worker", result_unattended(&r), 0);
	meet();
	join(thread);
	return 0;
}

/* A worker with the former rights is at work meanwhile: it opens a FIFO. */
static int busy_worker(void)
{
	struct ring r = used_ring();
	char fifo[80];
	int i, writer;

	section = "a worker at work";
	snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
	check("a FIFO", mkfifo(fifo, 0600) || chmod(fifo, 0666), 0);
	push(&r, SQE(.opcode = OPENAT, .flags = FORCE_ASYNC, .fd = AT_FDCWD, .addr = ADDR(fifo), .op_flags = O_RDONLY, .user_data = 7));
	check("queued", enter_call(r.fd, 1, 0, 0, 0, 0), 1);
	sleep_ms(20);
	check("nobody", become_nobody(), 0);
	for (i = 0; i < QUEUED; i++)
		check("beside it", open_async(&r, secret), -EACCES);
	writer = open(fifo, O_WRONLY);
	is_true("the FIFO is open", writer >= 0);
	check("it has opened", opened(next_cqe(&r).res), 0);
	for (i = 0; i < QUEUED; i++)
		check("after it", open_async(&r, secret), -EACCES);
	close(writer);
	unlink(fifo);
	return 0;
}

/* How many threads of the process have this effective user. */
static int threads_of(unsigned user)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	int count = 0;

	while ((task = readdir(tasks))) {
		char path[300], line[200];
		unsigned real, effective;
		FILE *status;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
		status = task->d_name[0] == '.' ? 0 : fopen(path, "r");
		while (status && fgets(line, sizeof(line), status))
			if (sscanf(line, "Uid: %u %u", &real, &effective) == 2)
				count += effective == user;
		if (status)
			fclose(status);
	}
	closedir(tasks);
	return count;
}

/* The rights of before end with the requests that were queued with them. */
static int threads_that_stay(void)
{
	struct ring r = used_ring();
	int i;

	section = "threads that stay";
	for (i = 0; i < FLIPS; i++) {
		check("nobody", seteuid(NOBODY), 0);
		check("as nobody", open_async(&r, secret), -EACCES);
		check("root", seteuid(0), 0);
		check("as root", open_async(&r, secret), 0);
	}
	check("nobody", seteuid(NOBODY), 0);
	check("as nobody", open_async(&r, secret), -EACCES);
	for (i = 0; i < 2000 && threads_of(0) > 0; i++)
		sleep_ms(1);
	check("threads of root", threads_of(0), 0);
	is_true("few threads", threads_of(NOBODY) <= 4);
	return 0;
}

/* The peer of a connection is told the user. */
static int connects(void)
{
	struct ring r = used_ring();
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	static uint64_t ts[2] = { 0, WAIT_MS * 1000000ull };
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0), peer;
	struct ucred credentials;
	socklen_t length = sizeof(credentials);

	section = "a connect";
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", folder);
	check("bound", bind(listener, (void *)&address, sizeof(address)), 0);
	check("for all", chmod(address.sun_path, 0777), 0);
	check("listens", listen(listener, 1), 0);
	push(&r, SQE(.opcode = TIMEOUT, .flags = LINK, .fd = -1, .addr = ADDR(ts), .len = 1, .op_flags = 1 << 5, .user_data = 2));
	push(&r, SQE(.opcode = CONNECT, .fd = client, .addr = ADDR(&address), .off = sizeof(address), .user_data = 1));
	check("queued", enter_call(r.fd, 2, 0, 0, 0, 0), 2);
	check("nobody", become_nobody(), 0);
	check("connected", result_unattended(&r), 0);
	peer = accept(listener, 0, 0);
	check("its credentials", getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &credentials, &length), 0);
	check("its user", credentials.uid, NOBODY);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct identity_case cases[] = {
		{ "filter", filter_of_the_only_thread }, { "filter-of-one", filter_of_one_thread }, { "unattended", unattended_chains },
		{ "busy", busy_worker }, { "stay", threads_that_stay }, { "connect", connects },
	};
	char left[80];

	block_if_asked();
	make_files();
	run_cases(cases, sizeof(cases) / sizeof(*cases), argc, argv);
	snprintf(left, sizeof(left), "%s/socket", folder);
	unlink(left);
	snprintf(left, sizeof(left), "%s/fifo", folder);
	unlink(left);
	remove_files();
	return finish();
}
