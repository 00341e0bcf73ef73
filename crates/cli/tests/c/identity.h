/*
 * What requests act as. Files that only root may open, the ways to open one by a request, and a
 * ring whose worker and watcher have been started with root's rights. Each case runs in a child of
 * its own, as root. Exit status: 77 if the environment lacks something.
 */
#pragma once
#include "robust_ring.h"
#include <dirent.h>
#include <dlfcn.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>

enum { OPENAT = 18, CLOSE = 19 };
enum { NOBODY = 65534, WAIT_MS = 40 };

static char folder[] = "/tmp/uringlet-identity-XXXXXX";
static char secret[64], open_to_all[64], of_nobody[64];

static void file_at(const char *path, int owner, int mode)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0600);

	if (fd < 0 || fchmod(fd, mode) || fchown(fd, owner, owner)) {
		perror(path);
		exit(1);
	}
	close(fd);
}

/* Runs as root: only root can give something up. */
static void make_files(void)
{
	if (geteuid() != 0) {
		printf("skipped: not root\n");
		exit(77);
	}
	if (!mkdtemp(folder) || chmod(folder, 0755)) {
		perror(folder);
		exit(1);
	}
	snprintf(secret, sizeof(secret), "%s/secret", folder);
	snprintf(open_to_all, sizeof(open_to_all), "%s/open", folder);
	snprintf(of_nobody, sizeof(of_nobody), "%s/nobody", folder);
	file_at(secret, 0, 0600);
	file_at(open_to_all, 0, 0644);
	file_at(of_nobody, NOBODY, 0600);
}

static void remove_files(void)
{
	unlink(secret);
	unlink(open_to_all);
	unlink(of_nobody);
	rmdir(folder);
}

static struct sqe open_request(const char *path, int flags)
{
	return SQE(.opcode = OPENAT, .flags = flags, .fd = AT_FDCWD, .addr = ADDR(path), .op_flags = O_RDONLY, .user_data = 1);
}

/* 0 or -errno: a descriptor is closed. */
static int opened(int result)
{
	if (result >= 0)
		close(result);
	return result < 0 ? result : 0;
}

/* By a worker. */
static int open_async(struct ring *r, const char *path)
{
	return opened(run(r, open_request(path, FORCE_ASYNC)));
}

/* By the submitter, if it need not wait. */
static int open_inline(struct ring *r, const char *path)
{
	return opened(run(r, open_request(path, 0)));
}

static int open_both(struct ring *r, const char *path)
{
	int by_submitter = open_inline(r, path), by_worker = open_async(r, path);

	check("submitter and worker agree", by_submitter, by_worker);
	return by_worker;
}

/* A timeout, submitted now, and behind it an open, linked to it or drained. */
static void queue_behind_timeout(struct ring *r, const char *path, int is_linked, int more_flags)
{
	static uint64_t ts[2] = { 0, WAIT_MS * 1000000ull };

	/* The timeout is a success when it expires: a link goes on. */
	push(r, SQE(.opcode = TIMEOUT, .flags = is_linked ? LINK : 0, .fd = -1, .addr = ADDR(ts), .len = 1, .op_flags = 1 << 5, .user_data = 2));
	push(r, open_request(path, (is_linked ? 0 : DRAIN) | more_flags));
	check("queued", enter_call(r->fd, 2, 0, 0, 0, 0), 2);
}

static int result_behind_timeout(struct ring *r)
{
	struct cqe cqe;

	do
		cqe = next_cqe(r);
	while (cqe.user_data == 2);
	return opened(cqe.res);
}

/* The same without a call: nobody but the watcher looks after the ring meanwhile. */
static int result_unattended(struct ring *r)
{
	int i;

	for (i = 0; i < 5000 && waiting(r) < 2; i++)
		sleep_ms(1);
	check("both completed", waiting(r), 2);
	return result_behind_timeout(r);
}

/* A ring whose worker and watcher exist, with the rights of now. */
static struct ring used_ring(void)
{
	static uint64_t ts[2] = { 0, 1000000 };
	struct ring r = new_ring(16);

	check("a worker opens", open_async(&r, open_to_all), 0);
	run(&r, SQE(.opcode = TIMEOUT, .fd = -1, .addr = ADDR(ts), .len = 1, .user_data = 3));
	sleep_ms(2);
	return r;
}
