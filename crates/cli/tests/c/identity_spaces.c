/*
 * Namespaces entered by a process with a ring. Some of these calls are for processes of one thread.
 * The kernel has no thread for a ring until a request needs a worker; the engine has its watcher,
 * which must not stand in the way. (With a worker the kernel refuses, too, or the worker stays in
 * the former namespace.)
 */
#include "identity.h"
#include <sched.h>
#include <sys/mount.h>

static char inside[64], within[80];

static void name_files(void)
{
	snprintf(inside, sizeof(inside), "%s/inside", folder);
	snprintf(within, sizeof(within), "%s/within", inside);
}

/* Mounts something in the caller's mount namespace, with a file that nobody else sees. */
static int mount_inside(void)
{
	if (mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) || mount("none", inside, "tmpfs", 0, 0))
		return -errno;
	file_at(within, 0, 0644);
	return 0;
}

/* A ring that has completed something while the program slept: a watcher has looked after it. */
static struct ring watched_ring(void)
{
	static uint64_t ts[2] = { 0, 1000000 };
	struct ring r = new_ring(16);

	submit(&r, SQE(.opcode = TIMEOUT, .fd = -1, .addr = ADDR(ts), .len = 1, .op_flags = 1 << 5, .user_data = 3));
	while (!waiting(&r))
		sleep_ms(1);
	check("expired", next(&r), -ETIME);
	return r;
}

/* Not there. The lookup needs no worker, because the name is known. */
static void is_not_there(struct ring *r)
{
	check("a lookup", access(within, F_OK), -1);
	check("nothing there", open_inline(r, within), -ENOENT);
}

static int new_user_namespace(void)
{
	struct ring r = watched_ring();

	section = "a new user namespace";
	check("a capability outside", open_inline(&r, of_nobody), 0);
	check("alone", unshare(CLONE_NEWUSER), 0);
	check("no capability outside", open_both(&r, of_nobody), -EACCES);
	check("the owner's file", open_both(&r, secret), 0);
	queue_behind_timeout(&r, of_nobody, 1, 0);
	check("linked, unattended", result_unattended(&r), -EACCES);
	return 0;
}

/* The ring's chain waits meanwhile: it goes on, without the capability. */
static int user_namespace_with_chain(void)
{
	struct ring r = watched_ring();

	section = "a new user namespace while a chain waits";
	queue_behind_timeout(&r, of_nobody, 1, 0);
	check("alone", unshare(CLONE_NEWUSER), 0);
	check("no capability outside", result_unattended(&r), -EACCES);
	return 0;
}

static int new_mount_namespace(void)
{
	struct ring r = watched_ring();

	section = "a new mount namespace";
	is_not_there(&r);
	check("of its own", unshare(CLONE_NEWNS), 0);
	check("mounted", mount_inside(), 0);
	check("what is mounted there", open_both(&r, within), 0);
	queue_behind_timeout(&r, within, 1, 0);
	check("linked, unattended", result_unattended(&r), 0);
	return 0;
}

/* That of a child. */
static int other_mount_namespace(void)
{
	struct ring r = watched_ring();
	int ready[2], end[2], space;
	char path[64], byte;
	pid_t pid;

	section = "a mount namespace of another process";
	check("pipes", pipe(ready) | pipe(end), 0);
	pid = fork();
	if (pid == 0) {
		close(end[1]);
		byte = unshare(CLONE_NEWNS) || mount_inside();
		_exit(write(ready[1], &byte, 1) != 1 || read(end[0], &byte, 1) != 0);
	}
	check("the child is ready", read(ready[0], &byte, 1) == 1 ? byte : -1, 0);
	is_not_there(&r);
	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", pid);
	space = open(path, O_RDONLY);
	check("entered", setns(space, CLONE_NEWNS), 0);
	check("what is mounted there", open_both(&r, within), 0);
	queue_behind_timeout(&r, within, 1, 0);
	check("linked, unattended", result_unattended(&r), 0);
	close(end[1]);
	waitpid(pid, 0, 0);
	return 0;
}

int main(void)
{
	block_if_asked();
	make_files();
	name_files();
	if (mkdir(inside, 0755))
		return 1;
	failures += in_child(new_user_namespace, 5) != 0;
	failures += in_child(user_namespace_with_chain, 5) != 0;
	failures += in_child(new_mount_namespace, 5) != 0;
	failures += in_child(other_mount_namespace, 5) != 0;
	rmdir(inside);
	remove_files();
	return finish();
}
