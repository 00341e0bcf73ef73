/*
 * Those who watch a file (inotify, fanotify) are told of a ring's reads and writes, O_DIRECT ones
 * too, as of the program's own. The events are there when the CQE is. Transfers of nothing are not
 * compared: the kernel's ring reports them, read(2) and write(2) do not.
 */
#include "robust_ring.h"
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { WRITEV = 2, WRITE_FIXED = 5 };
enum { REGISTER_BUFFERS = 0, REGISTER_FILES = 2 };

static char *buffer;
static int inotify, fanotify;

/* The events since the last call: those of inotify, and of fanotify where that is allowed. */
static uint32_t events(void)
{
	char bytes[4096] __attribute__((aligned(8)));
	uint32_t mask = 0;
	uint64_t other = 0;
	ssize_t n = read(inotify, bytes, sizeof(bytes));

	for (ssize_t at = 0; at < n;) {
		struct inotify_event *e = (void *)(bytes + at);

		mask |= e->mask;
		at += sizeof(*e) + e->len;
	}
	if (fanotify < 0)
		return mask;
	while ((n = read(fanotify, bytes, sizeof(bytes))) > 0)
		for (struct fanotify_event_metadata *e = (void *)bytes; FAN_EVENT_OK(e, n); e = FAN_EVENT_NEXT(e, n))
			other |= e->mask;
	check("fanotify agrees with inotify", other, mask);
	return mask;
}

static void each_op(struct ring *r, int fd, uint8_t flags)
{
	struct iovec iov[2] = { { buffer, 4096 }, { buffer + 4096, 4096 } };

	events();
	check("written", run(r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(buffer), .len = 4096, .flags = flags)), 4096);
	check("events of a WRITE", events(), IN_MODIFY);
	check("written", run(r, SQE(.opcode = WRITEV, .fd = fd, .addr = ADDR(iov), .len = 2, .off = 4096, .flags = flags)), 8192);
	check("events of a WRITEV", events(), IN_MODIFY);
	check("read", run(r, SQE(.opcode = READ, .fd = fd, .addr = ADDR(buffer), .len = 4096, .flags = flags)), 4096);
	check("events of a READ", events(), IN_ACCESS);
	check("read", run(r, SQE(.opcode = READV, .fd = fd, .addr = ADDR(iov), .len = 2, .flags = flags)), 8192);
	check("events of a READV", events(), IN_ACCESS);
	check("written", run(r, SQE(.opcode = WRITE_FIXED, .fd = fd, .addr = ADDR(buffer), .len = 4096, .flags = flags)), 4096);
	check("events of a WRITE_FIXED", events(), IN_MODIFY);
	check("not written", run(r, SQE(.opcode = WRITE, .fd = fd, .addr = 8 * 4096, .len = 4096, .flags = flags)), -EFAULT);
	events();
}

/* Many at once: each kind of event comes, however many are merged. */
static void batch(struct ring *r, int fd)
{
	for (int i = 0; i < 16; i++)
		push(r, SQE(.opcode = i % 2 ? READ : WRITE, .fd = fd, .addr = ADDR(buffer + i * 4096), .len = 4096, .off = i / 2 * 4096));
	check("submitted", enter_call(r->fd, 16, 16, GETEVENTS, 0, 0), 16);
	for (int i = 0; i < 16; i++)
		check("a transfer", next(r), 4096);
	check("events of a batch", events(), IN_ACCESS | IN_MODIFY);
}

/* Several files in turns: each of them is reported. */
static void in_turns(struct ring *r, int flags)
{
	int watch = inotify_init1(IN_NONBLOCK), fds[3], reported = 0;
	char bytes[4096] __attribute__((aligned(8))), name[16];
	ssize_t n;

	for (int i = 0; i < 3; i++) {
		sprintf(name, "turn%d", i);
		fds[i] = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0600);
		check("filled", write(fds[i], buffer, 1 << 16), 1 << 16);
		check("watched", inotify_add_watch(watch, name, IN_MODIFY), i + 1);
	}
	for (int i = 0; i < 15; i++)
		push(r, SQE(.opcode = WRITE, .fd = fds[i % 3], .addr = ADDR(buffer + i * 4096), .len = 4096, .off = i * 4096));
	check("submitted", enter_call(r->fd, 15, 15, GETEVENTS, 0, 0), 15);
	for (int i = 0; i < 15; i++)
		check("a write", next(r), 4096);
	n = read(watch, bytes, sizeof(bytes));
	for (ssize_t at = 0; at < n;) {
		struct inotify_event *e = (void *)(bytes + at);

		reported |= 1 << e->wd;
		at += sizeof(*e) + e->len;
	}
	check("files that are reported", reported, 1 << 1 | 1 << 2 | 1 << 3);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	close(watch);
}

/* A write sets the times that it always sets, and no other. */
static void times(struct ring *r, int fd)
{
	const struct timespec old[2] = { { 1000, 0 }, { 2000, 0 } };
	struct stat st;

	check("old times", futimens(fd, old), 0);
	check("written", run(r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(buffer), .len = 4096)), 4096);
	fstat(fd, &st);
	is_true("the time of the change", st.st_mtime > 2000);
	check("the time of access", st.st_atime, 1000);
	events();
}

static void on(const char *what, int flags)
{
	struct ring r = new_ring(16);
	struct iovec iov = { buffer, 1 << 20 };
	int fd = open("watched", O_RDWR | flags);

	section = what;
	if (fd < 0 && errno == EINVAL) {
		end_ring(&r);
		return;
	}
	check("buffers", register_call(r.fd, REGISTER_BUFFERS, &iov, 1), 0);
	check("files", register_call(r.fd, REGISTER_FILES, &fd, 1), 0);
	each_op(&r, fd, 0);
	each_op(&r, 0, FIXED_FILE);
	each_op(&r, fd, FORCE_ASYNC);
	batch(&r, fd);
	in_turns(&r, flags);
	times(&r, fd);
	close(fd);
	end_ring(&r);
}

int main(void)
{
	int fd;

	block_if_asked();
	buffer = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fd = open("watched", O_RDWR | O_CREAT | O_TRUNC, 0600);
	write(fd, buffer, 1 << 16);
	fsync(fd);
	close(fd);
	inotify = inotify_init1(IN_NONBLOCK);
	inotify_add_watch(inotify, "watched", IN_ACCESS | IN_MODIFY);
	fanotify = fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK | FAN_REPORT_FID, O_RDONLY);
	if (fanotify >= 0 && fanotify_mark(fanotify, FAN_MARK_ADD, FAN_ACCESS | FAN_MODIFY, AT_FDCWD, "watched"))
		close(fanotify), fanotify = -1;
	on("buffered", 0);
	on("direct", O_DIRECT);
	unlink("watched");
	return finish();
}
