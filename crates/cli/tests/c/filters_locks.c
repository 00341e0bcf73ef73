/*
 * Record locks of fcntl(2) and a ring's references to a file: a lock goes with the program's own
 * close and unlock, never with a slot, a ring or a request that ends.
 */
#include "robust_ring.h"
#include <sys/stat.h>

enum { OPENAT = 18, CLOSE = 19, MSG_RING = 40, FIXED_FD_INSTALL = 54 };
enum { REGISTER_FILES = 2, UNREGISTER_FILES = 3, FILES_UPDATE = 6 };

static const char *path = "locked";

static int open_file(void)
{
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static struct flock a_lock(short type)
{
	return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5 };
}

static void lock(int fd, short type)
{
	struct flock l = a_lock(type);

	check("fcntl(F_SETLK)", fcntl(fd, F_SETLK, &l), 0);
}

/* Whether another process meets our lock on the file. */
static int is_locked(const char *file)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		struct flock l = a_lock(F_WRLCK);
		int fd = open(file, O_RDWR | O_NONBLOCK);

		_exit(fcntl(fd, F_GETLK, &l) ? 2 : l.l_type != F_UNLCK && l.l_pid == getppid());
	}
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

/* The numbers of this process whose file is the one at this path. */
static int numbers_of(const char *file)
{
	struct stat wanted, st;
	int n = 0;

	stat(file, &wanted);
	for (int fd = 0; fd < 4096; fd++)
		n += !fstat(fd, &st) && st.st_dev == wanted.st_dev && st.st_ino == wanted.st_ino;
	return n;
}

static int update(struct ring *r, unsigned slot, int fd)
{
	struct { uint32_t offset, resv; uint64_t fds; } arg = { slot, 0, ADDR(&fd) };

	return register_call(r->fd, FILES_UPDATE, &arg, 1);
}

static void slots(void)
{
	struct ring r = new_ring(8);
	int fd = open_file(), fds[2] = { fd, -1 };

	section = "slots";
	lock(fd, F_WRLCK);
	is_true("the lock is seen", is_locked(path));
	check("registered", register_call(r.fd, REGISTER_FILES, fds, 2), 0);
	is_true("locked with a registered file", is_locked(path));
	check("unregistered", register_call(r.fd, UNREGISTER_FILES, 0, 0), 0);
	is_true("locked after unregistering", is_locked(path));
	check("registered", register_call(r.fd, REGISTER_FILES, fds, 2), 0);
	check("slot 0 emptied", update(&r, 0, -1), 1);
	is_true("locked after an update", is_locked(path));
	check("slot 1 filled", update(&r, 1, fd), 1);
	check("slot 1 closed", run(&r, SQE(.opcode = CLOSE, .file_index = 2)), 0);
	is_true("locked after a CLOSE of the slot", is_locked(path));
	check("opened into a slot", run(&r, SQE(.opcode = OPENAT, .fd = AT_FDCWD, .addr = ADDR(path), .op_flags = O_RDWR, .file_index = 1)), 0);
	is_true("locked after an open into a slot", is_locked(path));
	end_ring(&r);
	sleep_ms(20);
	is_true("locked after the ring's end", is_locked(path));
	lock(fd, F_UNLCK);
	is_true("unlocked", !is_locked(path));
	lock(fd, F_WRLCK);
	close(fd);
	is_true("unlocked by close", !is_locked(path));
}

/* No file stays open for a lock that is gone. */
static void leftovers(void)
{
	struct ring r = new_ring(8);
	int fd = open_file(), other = dup(fd);

	section = "leftovers";
	lock(fd, F_WRLCK);
	for (int i = 0; i < 20; i++) {
		check("registered", register_call(r.fd, REGISTER_FILES, &fd, 1), 0);
		check("unregistered", register_call(r.fd, UNREGISTER_FILES, 0, 0), 0);
	}
	is_true("locked", is_locked(path));
	lock(fd, F_UNLCK);
	check("registered", register_call(r.fd, REGISTER_FILES, &fd, 1), 0);
	check("unregistered", register_call(r.fd, UNREGISTER_FILES, 0, 0), 0);
	check("numbers after an unlock", numbers_of(path), 2);
	lock(fd, F_WRLCK);
	check("registered", register_call(r.fd, REGISTER_FILES, &fd, 1), 0);
	check("unregistered", register_call(r.fd, UNREGISTER_FILES, 0, 0), 0);
	close(other);
	is_true("unlocked by the close of a duplicate", !is_locked(path));
	check("numbers after a close", numbers_of(path), 1);
	close(fd);
	end_ring(&r);
}

/* Another process has locks on the same file. */
static void locks_of_others(void)
{
	struct ring r = new_ring(8);
	int fd = open_file(), to_child[2], to_parent[2];
	char c;
	pid_t pid;

	section = "locks of others";
	pipe(to_child);
	pipe(to_parent);
	pid = fork();
	if (pid == 0) {
		struct flock all = { .l_type = F_RDLCK, .l_whence = SEEK_SET };

		fcntl(open(path, O_RDWR), F_SETLK, &all);
		write(to_parent[1], "", 1);
		read(to_child[0], &c, 1);
		_exit(0);
	}
	read(to_parent[0], &c, 1);
	for (int is_ours = 0; is_ours < 2; is_ours++) {
		lock(fd, is_ours ? F_RDLCK : F_UNLCK);
		check("registered", register_call(r.fd, REGISTER_FILES, &fd, 1), 0);
		check("unregistered", register_call(r.fd, UNREGISTER_FILES, 0, 0), 0);
		if (!is_ours)
			check("numbers if only another process has a lock", numbers_of(path), 1);
	}
	write(to_child[1], "", 1);
	waitpid(pid, 0, 0);
	is_true("our lock beside another's stays", is_locked(path));
	close(fd);
	end_ring(&r);
}

/* A request outlives the program's number; a lock that is taken meanwhile outlives the request. */
static void armed(void)
{
	struct ring r = new_ring(8);
	int fd, other;
	char c = 0;

	section = "armed";
	mkfifo("fifo", 0600);
	fd = open("fifo", O_RDWR | O_NONBLOCK);
	other = open("fifo", O_RDWR | O_NONBLOCK);
	/* READ of a non-blocking FIFO answers EAGAIN; a poll waits. */
	submit(&r, SQE(.opcode = POLL_ADD, .fd = fd, .op_flags = POLLIN));
	close(fd);
	lock(other, F_WRLCK);
	is_true("locked", is_locked("fifo"));
	write(other, "x", 1);
	check("the poll", next(&r) & POLLIN, POLLIN);
	enter_call(r.fd, 0, 0, GETEVENTS, 0, 0);
	is_true("locked after the request's end", is_locked("fifo"));
	read(other, &c, 1);
	fd = open("fifo", O_RDWR);
	lock(other, F_WRLCK);
	submit(&r, SQE(.opcode = READ, .fd = fd, .addr = ADDR(&c), .len = 1, .flags = FORCE_ASYNC));
	/* Its worker looks the number up. */
	sleep_ms(100);
	close(fd);
	lock(other, F_WRLCK);
	write(other, "y", 1);
	check("the read", next(&r), 1);
	is_true("locked after the read", is_locked("fifo"));
	end_ring(&r);
	is_true("locked after the ring's end", is_locked("fifo"));
	close(other);
	unlink("fifo");
}

/* A registered file is given away, and becomes a number of the program's again. */
static void handed_on(void)
{
	struct ring from = new_ring(8), to = new_ring(8);
	int fd = open_file(), none = -1, number;

	section = "handed on";
	lock(fd, F_WRLCK);
	check("registered", register_call(from.fd, REGISTER_FILES, &fd, 1), 0);
	check("an empty slot", register_call(to.fd, REGISTER_FILES, &none, 1), 0);
	check("sent", run(&from, SQE(.opcode = MSG_RING, .fd = to.fd, .addr = 1, .addr3 = 0, .file_index = 1)), 0);
	is_true("locked after a file was sent", is_locked(path));
	number = run(&from, SQE(.opcode = FIXED_FD_INSTALL, .fd = 0, .flags = FIXED_FILE));
	is_true("installed", number >= 0);
	is_true("locked after the installation", is_locked(path));
	end_ring(&from);
	end_ring(&to);
	sleep_ms(20);
	is_true("locked after the end of both rings", is_locked(path));
	close(number);
	is_true("unlocked by the close of the number", !is_locked(path));
	close(fd);
}

int main(void)
{
	block_if_asked();
	slots();
	leftovers();
	locks_of_others();
	armed();
	handed_on();
	unlink(path);
	return finish();
}
