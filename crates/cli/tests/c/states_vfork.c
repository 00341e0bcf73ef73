/*
 * Children that share their parent's memory (vfork, posix_spawn, clone() with CLONE_VM): before the
 * first ring, beside a ring, and as users of a ring.
 */
#include "robust_ring.h"
#include <sched.h>
#include <spawn.h>

static int status_of(pid_t child)
{
	int status = -1;

	waitpid(child, &status, 0);
	return status;
}

static void spawns(void)
{
	char *argv[] = { "true", 0 };
	posix_spawn_file_actions_t actions;
	pid_t child = -1;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/nowhere/at all", O_RDONLY, 0);
	check("a spawn whose open fails", posix_spawnp(&child, "true", &actions, 0, argv, (char *[]){ 0 }), ENOENT);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addclose(&actions, 0);
	posix_spawn_file_actions_adddup2(&actions, 1, 7);
	check("a spawn", posix_spawnp(&child, "true", &actions, 0, argv, environ), 0);
	check("it ends", status_of(child), 0);
	posix_spawn_file_actions_destroy(&actions);
}

static void vforks(void)
{
	pid_t child = vfork();

	if (!child) {
		/* What Python's subprocess does: opens, dups, closes everything, tries several paths. */
		open("/nowhere/at all", O_RDONLY);
		open("/dev/ublkc0", O_RDWR);
		dup2(1, 9);
		close(9);
		close_range(3, ~0u, 0);
		execve("/nowhere/program", (char *[]){ "program", 0 }, environ);
		_exit(3);
	}
	check("a vfork child", status_of(child), 3 << 8);
}

static void children(void)
{
	spawns();
	vforks();
}

/* A ring made after such children works, also where its arguments are copied. */
static void ring_works(const char *what)
{
	struct ring r = new_ring(8);
	uint64_t ts[2] = { 0, 1000000 };
	char text[4] = "";
	struct { void *base; size_t len; } part = { text, 2 };
	int p[2];

	section = what;
	children();
	works(&r);
	check("a timer", run(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1)), -ETIME);
	check("a pipe", pipe(p), 0);
	submit(&r, SQE(.opcode = READV, .fd = p[0], .addr = ADDR(&part), .len = 1));
	children();
	write(p[1], "hi", 2);
	check("READV", next(&r), 2);
	check("its bytes", strcmp(text, "hi"), 0);
	close(p[0]);
	close(p[1]);
	end_ring(&r);
}

static char stack[1 << 18] __attribute__((aligned(16)));

static pid_t vm_child(int (*f)(void *), void *arg)
{
	return clone(f, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, arg);
}

static int submits_nops(void *arg)
{
	struct ring *r = arg;

	for (int i = 0; i < 3; i++) {
		push(r, SQE(.opcode = NOP, .user_data = 50 + i));
		if (syscall(426, r->fd, 1, 0, 0, 0, 0) != 1)
			_exit(1);
	}
	_exit(0);
}

static int made = -1;

static int makes_a_ring(void *arg)
{
	struct params p = { 0 };

	/* Differs: the engine refuses with EPERM, since its state would be the parent's. */
	made = setup_call(4, &p);
	_exit(made < 0 && made != -EPERM);
}

static void as_users(void)
{
	struct ring r = new_ring(8);
	char byte = 0;
	int p[2];

	section = "a user that shares memory";
	works(&r);
	check("it submits", status_of(vm_child(submits_nops, &r)), 0);
	for (int i = 0; i < 3; i++)
		check("its CQE", next_cqe(&r).user_data, 50 + i);
	check("it makes a ring", status_of(vm_child(makes_a_ring, 0)), 0);
	works(&r);
	/* The number that the child's ring had is free here. */
	check("a pipe", pipe(p), 0);
	check("written", write(p[1], "x", 1), 1);
	check("read by the ring", run(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&byte), .len = 1)), 1);
	check("closed", close(p[0]) || close(p[1]), 0);
	children();
	works(&r);
	end_ring(&r);
}

int main(void)
{
	block_if_asked();
	section = "before the first ring";
	children();
	/* The first system call of a child about a ring, before any of the parent's. */
	check("a child's ring", status_of(vm_child(makes_a_ring, 0)), 0);
	ring_works("the first ring");
	ring_works("the second ring");
	as_users();
	return finish();
}
