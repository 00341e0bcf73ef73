/*
 * Threads with a descriptor table of their own: no request takes the number of one table for that
 * of another. Argument: the section.
 */
#include "identity_two.h"
#include <linux/close_range.h>
#include <sched.h>

static char tiny[64];

static void write_file(const char *path, char with)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);

	check("a file", fd >= 0 ? (int)write(fd, &with, 1) : -1, 1);
	close(fd);
}

/* One byte of a pipe by a request that has to wait, in the end unattended. */
static void read_late(struct ring *r, int from, int to, int flags)
{
	char byte = 0;
	int i;

	push(r, SQE(.opcode = READ, .flags = flags, .fd = from, .addr = ADDR(&byte), .len = 1, .off = -1, .user_data = 5));
	check("queued", enter_call(r->fd, 1, 0, 0, 0, 0), 1);
	sleep_ms(5);
	check("fed", write(to, "x", 1), 1);
	for (i = 0; i < 3000 && !waiting(r); i++)
		sleep_ms(1);
	check("read", next_cqe(r).res, 1);
	check("the byte", byte, 'x');
}

static int read_now(struct ring *r, int fd, int flags)
{
	char byte = 0;
	int result = run(r, SQE(.opcode = READ, .flags = flags, .fd = fd, .addr = ADDR(&byte), .len = 1, .user_data = 6));

	return result == 1 ? byte : result;
}

/* Numbers that mean something else since then, by each of the engine's threads. */
static void use_new_numbers(struct ring *r, int old)
{
	int fds[2], fd;

	close(old);
	check("the same number", open(tiny, O_RDONLY), old);
	check("by the submitter", read_now(r, old, 0), 't');
	check("by a worker", read_now(r, old, FORCE_ASYNC), 't');
	check("a pipe", pipe(fds), 0);
	read_late(r, fds[0], fds[1], 0);
	read_late(r, fds[0], fds[1], FORCE_ASYNC);
	fd = run(r, open_request(tiny, FORCE_ASYNC));
	is_true("opened by a worker", fd >= 0 && fcntl(fd, F_GETFD) >= 0);
	check("what it opened", read_now(r, fd, 0), 't');
	queue_behind_timeout(r, tiny, 1, 0);
	check("opened by a chain", result_unattended(r), 0);
	close(fd);
	close(fds[0]);
	close(fds[1]);
}

static struct ring used_ring_and_file(int *fd)
{
	struct ring r = used_ring();

	*fd = open(secret, O_RDONLY);
	check("read before", read_now(&r, *fd, FORCE_ASYNC), 's');
	return r;
}

static int by_unshare(void)
{
	int fd;
	struct ring r = used_ring_and_file(&fd);

	section = "the only thread, unshare";
	check("a table of its own", unshare(CLONE_FILES), 0);
	use_new_numbers(&r, fd);
	return 0;
}

static int by_close_range(void)
{
	int fd, pair[2];
	struct ring r = used_ring_and_file(&fd);

	section = "the only thread, close_range";
	check("a pipe", pipe(pair), 0);
	check("moved", dup2(pair[0], 200), 200);
	check("a table of its own", syscall(SYS_close_range, 200, ~0u, CLOSE_RANGE_UNSHARE), 0);
	check("closed", fcntl(200, F_GETFD), -1);
	use_new_numbers(&r, fd);
	return 0;
}

/* Before the first ring there is nothing to share. */
static int before_rings(void)
{
	struct ring r;
	int fd = open(secret, O_RDONLY);

	section = "before the first ring";
	check("a table of its own", unshare(CLONE_FILES), 0);
	r = used_ring();
	use_new_numbers(&r, fd);
	return 0;
}

static int shared_number;

static void *leaves_the_table(void *shared)
{
	struct ring *r = shared;
	struct ring own;
	int i;

	check("a table of its own", unshare(CLONE_FILES), 0);
	close(shared_number);
	check("the same number", open(tiny, O_RDONLY), shared_number);
	meet();
	/* What it does with its numbers is nothing to the other table. */
	for (i = 0; i < 200; i++) {
		int fd = dup2(shared_number, 100 + i % 50);

		close(fd);
	}
	check("no ring", try_ring(&own, 4, 0, 0), -EPERM);
	check("none of the other table", enter_call(r->fd, 0, 0, GETEVENTS, 0, 0), -EPERM);
	close(r->fd);
	meet();
	return shared;
}

/* One thread of several leaves the table of the rings: it gets none, other than in the kernel. */
static int one_of_several(void)
{
	struct ring r = used_ring_and_file(&shared_number);
	pthread_t thread;
	int fds[2], i;

	section = "one of several threads";
	check("a pipe", pipe(fds), 0);
	start(&thread, leaves_the_table, &r);
	meet();
	for (i = 0; i < 50; i++) {
		check("by the submitter", read_now(&r, shared_number, 0), 's');
		check("by a worker", read_now(&r, shared_number, FORCE_ASYNC), 's');
	}
	read_late(&r, fds[0], fds[1], 0);
	meet();
	join(thread);
	read_late(&r, fds[0], fds[1], FORCE_ASYNC);
	queue_behind_timeout(&r, tiny, 1, 0);
	check("opened by a chain", result_unattended(&r), 0);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct identity_case cases[] = {
		{ "unshare", by_unshare }, { "close-range", by_close_range }, { "before", before_rings }, { "one-of-several", one_of_several },
	};

	block_if_asked();
	make_files();
	snprintf(tiny, sizeof(tiny), "%s/tiny", folder);
	write_file(secret, 's');
	write_file(tiny, 't');
	run_cases(cases, sizeof(cases) / sizeof(*cases), argc, argv);
	unlink(tiny);
	remove_files();
	return finish();
}
