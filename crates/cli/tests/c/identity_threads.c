/*
 * Threads of one process that act as different users, or stand in different folders: each request
 * is its submitter's, whoever started the workers. Argument: the section.
 */
#include "identity_two.h"
#include <sched.h>

enum { ROUNDS = 200 };

/* Each on a ring of its own. */
static void *of_nobody_thread(void *arg)
{
	struct ring r = used_ring();
	int i;

	check("nobody alone", become_nobody(), 0);
	meet();
	for (i = 0; i < ROUNDS; i++)
		check("root's file, as nobody", open_async(&r, secret), -EACCES);
	check("nobody's file, as nobody", open_both(&r, of_nobody), 0);
	queue_behind_timeout(&r, secret, 1, 0);
	check("root's file behind a timeout, as nobody", result_behind_timeout(&r), -EACCES);
	meet();
	return arg;
}

static int own_rings(void)
{
	struct ring r = used_ring();
	pthread_t thread;
	int i;

	section = "two users, two rings";
	start(&thread, of_nobody_thread, 0);
	meet();
	for (i = 0; i < ROUNDS; i++)
		check("root's file, as root", open_async(&r, secret), 0);
	queue_behind_timeout(&r, secret, 1, 0);
	check("root's file behind a timeout, as root", result_behind_timeout(&r), 0);
	meet();
	join(thread);
	return 0;
}

/* Both on one ring, by turns. */
static void *turns_of_nobody(void *shared)
{
	struct ring *r = shared;
	int i;

	check("nobody alone", become_nobody(), 0);
	for (i = 0; i < ROUNDS; i++) {
		meet();
		check("root's file, as nobody", open_async(r, secret), -EACCES);
		meet();
	}
	meet();
	queue_behind_timeout(r, secret, 1, 0);
	meet();
	meet();
	return shared;
}

static int one_ring(void)
{
	struct ring r = used_ring();
	pthread_t thread;
	int i;

	section = "two users, one ring";
	start(&thread, turns_of_nobody, &r);
	for (i = 0; i < ROUNDS; i++) {
		check("root's file, as root", open_async(&r, secret), 0);
		meet();
		meet();
	}
	meet();
	meet();
	/* Root waits for it: it is nobody's all the same. */
	check("root's file behind nobody's timeout", result_behind_timeout(&r), -EACCES);
	meet();
	join(thread);
	return 0;
}

/* libc changes both threads; the other one has a chain that waits. */
static void *whole_process(void *arg)
{
	struct ring r = used_ring();

	queue_behind_timeout(&r, secret, 1, 0);
	meet();
	meet();
	check("root's file behind a timeout", result_behind_timeout(&r), -EACCES);
	check("root's file", open_both(&r, secret), -EACCES);
	return arg;
}

static int libc_changes_all(void)
{
	struct ring r = used_ring();
	pthread_t thread;

	section = "libc's setresuid changes all threads";
	start(&thread, whole_process, 0);
	meet();
	check("nobody", setresuid(NOBODY, NOBODY, NOBODY), 0);
	meet();
	check("root's file", open_both(&r, secret), -EACCES);
	join(thread);
	return 0;
}

static char folders[2][80];

static void make_folders(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		char path[96];

		snprintf(folders[i], sizeof(folders[i]), "%s/%d", folder, i);
		check("a folder", mkdir(folders[i], 0755), 0);
		snprintf(path, sizeof(path), "%s/here%d", folders[i], i);
		file_at(path, 0, 0644);
	}
}

static void remove_folders(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		char path[96];

		snprintf(path, sizeof(path), "%s/here%d", folders[i], i);
		unlink(path);
		rmdir(folders[i]);
	}
}

static void opens_in(struct ring *r, int mine)
{
	static const char *const names[] = { "here0", "here1" };
	int i;

	for (i = 0; i < 2; i++) {
		check("by the submitter", open_inline(r, names[i]), i == mine ? 0 : -ENOENT);
		check("by a worker", open_async(r, names[i]), i == mine ? 0 : -ENOENT);
		queue_behind_timeout(r, names[i], 1, 0);
		check("behind a timeout", result_behind_timeout(r), i == mine ? 0 : -ENOENT);
	}
}

static void *in_other_folder(void *arg)
{
	struct ring r;

	check("a file system context of its own", unshare(CLONE_FS), 0);
	check("to the other folder", chdir(folders[1]), 0);
	r = new_ring(16);
	meet();
	opens_in(&r, 1);
	meet();
	opens_in(&r, 1);
	return arg;
}

static int own_folder(void)
{
	struct ring r;
	pthread_t thread;

	section = "two folders";
	check("to a folder", chdir(folders[0]), 0);
	r = used_ring();
	start(&thread, in_other_folder, 0);
	meet();
	opens_in(&r, 0);
	meet();
	opens_in(&r, 0);
	join(thread);
	return 0;
}

/* Threads that share it: a change of one is that of all, workers too. */
static int shared_folder(void)
{
	struct ring r = used_ring();

	section = "a folder that workers share";
	check("to a folder", chdir(folders[0]), 0);
	opens_in(&r, 0);
	check("to the other folder", chdir(folders[1]), 0);
	opens_in(&r, 1);
	return 0;
}

/* It shares the memory of its parent, not its rights. */
static int vfork_child(void)
{
	struct ring r = used_ring();
	int status = -1;
	pid_t pid;

	section = "a vfork child";
	pid = vfork();
	if (pid == 0)
		_exit(setresuid(NOBODY, NOBODY, NOBODY) || become_nobody());
	check("a child", waitpid(pid, &status, 0), pid);
	check("its status", status, 0);
	check("root's file", open_both(&r, secret), 0);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct identity_case cases[] = {
		{ "own-rings", own_rings }, { "one-ring", one_ring }, { "libc-changes-all", libc_changes_all },
		{ "own-folder", own_folder }, { "shared-folder", shared_folder },
		{ "vfork-child", vfork_child },
	};

	block_if_asked();
	make_files();
	make_folders();
	run_cases(cases, sizeof(cases) / sizeof(*cases), argc, argv);
	remove_folders();
	remove_files();
	return finish();
}
