/*
 * IORING_REGISTER_PERSONALITY: a request acts with the credentials of the thread that registered
 * them, whoever submits it and whatever it has given up since. Started by root.
 */
#define _GNU_SOURCE
#include "robust_ring.h"
#include <grp.h>
#include <sys/stat.h>

enum { HARDLINK = 8, PERSONALITY = 9, UNREGISTER = 10, OPENAT = 18, STATX = 21, UNLINKAT = 36, MKDIRAT = 37, NOBODY = 65534 };

static const char *secret = "personality-secret", *made = "personality-made";

static struct sqe open_secret(int personality)
{
	return SQE(.opcode = OPENAT, .fd = AT_FDCWD, .addr = ADDR(secret), .op_flags = O_RDONLY, .personality = personality);
}

static int opens(struct ring *r, int personality, unsigned flags)
{
	struct sqe sqe = open_secret(personality);

	sqe.flags = flags;
	int fd = run(r, sqe);

	if (fd >= 0)
		close(fd);
	return fd >= 0 ? 0 : fd;
}

static void become(uid_t uid)
{
	check("becomes another user", syscall(SYS_setresuid, -1, uid, 0), 0);
}

static void numbers(void)
{
	struct ring r = new_ring(8);

	section = "numbers";
	check("first", register_call(r.fd, PERSONALITY, 0, 0), 1);
	check("second", register_call(r.fd, PERSONALITY, 0, 0), 2);
	check("an argument", register_call(r.fd, PERSONALITY, &r, 0), -EINVAL);
	check("a count", register_call(r.fd, PERSONALITY, 0, 1), -EINVAL);
	check("removed", register_call(r.fd, UNREGISTER, 0, 1), 0);
	check("removed already", register_call(r.fd, UNREGISTER, 0, 1), -EINVAL);
	check("never there", register_call(r.fd, UNREGISTER, 0, 77), -EINVAL);
	check("with an argument", register_call(r.fd, UNREGISTER, &r, 2), -EINVAL);
	check("numbers go on", register_call(r.fd, PERSONALITY, 0, 0), 3);
	check("a request with one", run(&r, SQE(.opcode = NOP, .personality = 2)), 0);
	check("one that is removed", run(&r, SQE(.opcode = NOP, .personality = 1)), -EINVAL);
	check("one that never was", run(&r, SQE(.opcode = NOP, .personality = 500)), -EINVAL);
	for (int i = 0; i < 65532; i++)
		if (register_call(r.fd, PERSONALITY, 0, 0) < 0)
			check("as many as there are numbers", i, 65532);
	check("the one that is free", register_call(r.fd, PERSONALITY, 0, 0), 1);
	check("none is left", register_call(r.fd, PERSONALITY, 0, 0), -EBUSY);
	check("the last one", run(&r, SQE(.opcode = NOP, .personality = 65535)), 0);
	end_ring(&r);
}

/* The ring's own user gives root up: what carries the personality still has it. */
static void given_up(void)
{
	struct ring r = new_ring(8);
	int root = register_call(r.fd, PERSONALITY, 0, 0);

	section = "given up";
	check("root", opens(&r, 0, 0), 0);
	become(NOBODY);
	int nobody = register_call(r.fd, PERSONALITY, 0, 0);
	for (int flags = 0; flags <= FORCE_ASYNC; flags += FORCE_ASYNC) {
		check("without", opens(&r, 0, flags), -EACCES);
		check("as root", opens(&r, root, flags), 0);
		check("as nobody", opens(&r, nobody, flags), -EACCES);
	}
	/* In a chain each request has its own. */
	struct sqe first = open_secret(root), second = open_secret(0), third = open_secret(nobody);
	first.flags = second.flags = HARDLINK;
	push(&r, first);
	push(&r, second);
	push(&r, third);
	check("a chain", enter_call(r.fd, 3, 3, GETEVENTS, 0, 0), 3);
	int fd = next(&r);
	is_true("the first one", fd >= 0);
	close(fd);
	check("the second one", next(&r), -EACCES);
	check("the third one", next(&r), -EACCES);
	/* What is made belongs to the personality's user. */
	struct stat st = { 0 };
	check("a folder as root", run(&r, SQE(.opcode = MKDIRAT, .fd = AT_FDCWD, .addr = ADDR(made), .len = 0700, .personality = root)), 0);
	check("its owner", stat(made, &st) ? -errno : (int)st.st_uid, 0);
	check("removed by nobody", run(&r, SQE(.opcode = UNLINKAT, .fd = AT_FDCWD, .addr = ADDR(made), .op_flags = AT_REMOVEDIR)), -EACCES);
	check("removed by root", run(&r, SQE(.opcode = UNLINKAT, .fd = AT_FDCWD, .addr = ADDR(made), .op_flags = AT_REMOVEDIR, .personality = root)), 0);
	check("unregistered", register_call(r.fd, UNREGISTER, 0, root), 0);
	check("nobody has it", opens(&r, root, 0), -EINVAL);
	become(0);
	check("root again", opens(&r, 0, 0), 0);
	check("as nobody", opens(&r, nobody, 0), -EACCES);
	end_ring(&r);
}

/* Requests in flight keep a personality that is unregistered. */
static void in_flight(void)
{
	struct ring r = new_ring(8);
	int root = register_call(r.fd, PERSONALITY, 0, 0), p[2];
	char byte;

	section = "in flight";
	check("a pipe", pipe(p), 0);
	become(NOBODY);
	struct sqe late = open_secret(root);
	push(&r, SQE(.opcode = READ, .flags = LINK, .fd = p[0], .addr = ADDR(&byte), .len = 1));
	push(&r, late);
	check("submitted", enter_call(r.fd, 2, 0, 0, 0, 0), 2);
	check("unregistered", register_call(r.fd, UNREGISTER, 0, root), 0);
	check("a byte", write(p[1], "x", 1), 1);
	check("read", next(&r), 1);
	int fd = next(&r);
	is_true("opened", fd >= 0);
	close(fd);
	become(0);
	end_ring(&r);
	close(p[0]);
	close(p[1]);
}

struct other {
	struct ring *r;
	int root, results[3];
};

static void *other_thread(void *arg)
{
	struct other *o = arg;

	syscall(SYS_setresuid, -1, NOBODY, 0);
	o->results[0] = opens(o->r, 0, 0);
	o->results[1] = opens(o->r, o->root, 0);
	o->results[2] = opens(o->r, o->root, FORCE_ASYNC);
	return 0;
}

/* A thread that is another user uses the first one's. */
static void two_threads(void)
{
	struct ring r = new_ring(8);
	struct other o = { &r, register_call(r.fd, PERSONALITY, 0, 0) };
	pthread_t thread;

	section = "two threads";
	pthread_create(&thread, 0, other_thread, &o);
	pthread_join(thread, 0);
	check("the other thread", o.results[0], -EACCES);
	check("as the first one", o.results[1], 0);
	check("by a worker", o.results[2], 0);
	check("the first thread", opens(&r, 0, 0), 0);
	end_ring(&r);
}

/* Many at once, of two users, from a third. */
static void many(void)
{
	enum { ROUNDS = 50, BATCH = 8 };
	struct ring r = new_ring(2 * BATCH);
	int ids[2], wrong = 0;

	section = "many";
	ids[0] = register_call(r.fd, PERSONALITY, 0, 0);
	become(NOBODY);
	ids[1] = register_call(r.fd, PERSONALITY, 0, 0);
	become(0);
	become(1);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < BATCH; i++) {
			struct sqe sqe = open_secret(ids[i & 1]);

			sqe.user_data = i;
			sqe.flags = i & 2 ? FORCE_ASYNC : 0;
			push(&r, sqe);
		}
		check("a batch", enter_call(r.fd, BATCH, 0, 0, 0, 0), BATCH);
		for (int i = 0; i < BATCH; i++) {
			struct cqe cqe = next_cqe(&r);

			if (cqe.res >= 0)
				close(cqe.res);
			wrong += cqe.user_data & 1 ? cqe.res != -EACCES : cqe.res < 0;
		}
	}
	check("each with its own", wrong, 0);
	become(0);
	end_ring(&r);
}

/* A forked child that has the same credentials uses its parent's. */
static void a_fork(void)
{
	struct ring r = new_ring(8);
	int root = register_call(r.fd, PERSONALITY, 0, 0), status = -1;

	section = "a fork";
	pid_t child = fork();
	if (!child) {
		failures = 0;
		check("as its parent", opens(&r, root, 0), 0);
		become(NOBODY);
		check("without", opens(&r, 0, 0), -EACCES);
		check("as its parent was", opens(&r, root, 0), 0);
		_exit(failures != 0);
	}
	waitpid(child, &status, 0);
	check("the child", status, 0);
	end_ring(&r);
}

int main(void)
{
	block_if_asked();
	if (getuid()) {
		puts("skipped: only root can have two users");
		return 0;
	}
	close(open(secret, O_CREAT | O_WRONLY, 0600));
	chmod(secret, 0600);
	chmod(".", 0755);
	numbers();
	given_up();
	in_flight();
	two_threads();
	many();
	a_fork();
	return finish();
}
