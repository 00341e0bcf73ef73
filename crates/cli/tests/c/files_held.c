/*
 * A request keeps the registered file and the registered buffer that it was issued with: a slot
 * that changes under it neither moves it nor stops it, and the tag of what left the slot is posted
 * after the last request that uses it.
 */
#include "files_cqe.h"

enum { UNREGISTER_BUFFERS = 1, UNREGISTER_FILES = 3, FILES2 = 13, FILES_UPDATE2 = 14, BUFFERS2 = 15, BUFFERS_UPDATE = 16 };
enum { CLOSE = 19, FILES_UPDATE = 20, WRITE_FIXED = 5, SPLICE = 30 };
#define SPLICE_FD_IN_FIXED (1u << 31)
#define TAG(n) (0x7a600 + (n))

struct registration {
	uint32_t n, flags;
	uint64_t resv2, data, tags;
};
struct update {
	uint32_t offset, resv;
	uint64_t data, tags;
	uint32_t n, resv2;
};

static int register_with_tags(struct ring *r, unsigned op, void *data, uint64_t *tags, unsigned n)
{
	struct registration reg = { .n = n, .data = ADDR(data), .tags = ADDR(tags) };

	return register_call(r->fd, op, &reg, sizeof(reg));
}

static int update_slot(struct ring *r, unsigned op, unsigned slot, void *data, uint64_t tag)
{
	struct update update = { .offset = slot, .data = ADDR(data), .tags = ADDR(&tag), .n = 1 };

	return register_call(r->fd, op, &update, sizeof(update));
}

static struct ring ring_with_files(int *fds, unsigned n)
{
	struct ring r = new_ring(8);
	uint64_t tags[] = { TAG(0), TAG(1), TAG(2), TAG(3) };

	check("registered", register_with_tags(&r, FILES2, fds, tags, n), 0);
	return r;
}

/* How a request waits: armed for poll, or on a worker that sleeps in it. */
static const int WAYS[] = { 0, FORCE_ASYNC };

static void a_file_that_leaves_its_slot(void)
{
	for (int way = 0; way < 2; way++) {
		section = way ? "file updated under a worker" : "file updated under an armed request";
		char a[4] = "", b[4] = "";
		int old[2], new[2];

		pipe(old);
		pipe(new);
		struct ring r = ring_with_files(old, 1);
		submit(&r, SQE(.opcode = READ, .flags = FIXED_FILE | WAYS[way], .fd = 0, .addr = ADDR(a), .len = 1, .user_data = 1));
		submit(&r, SQE(.opcode = READ, .flags = FIXED_FILE | WAYS[way], .fd = 0, .addr = ADDR(b), .len = 1, .user_data = 2));
		no_cqe(&r);
		check("update", update_slot(&r, FILES_UPDATE2, 0, new, TAG(9)), 1);
		close(old[0]);
		no_cqe(&r);
		write(new[1], "n", 1);
		no_cqe(&r);
		write(old[1], "o", 1);
		struct cqe first = next_cqe(&r);
		check("one byte", first.res, 1);
		no_cqe(&r);
		write(old[1], "p", 1);
		a_cqe(&r, 3 - first.user_data, 1);
		a_cqe(&r, TAG(0), 0);
		check("both bytes", a[0] + b[0], 'o' + 'p');
		submit(&r, SQE(.opcode = READ, .flags = FIXED_FILE, .fd = 0, .addr = ADDR(a), .len = 1, .user_data = 3));
		a_cqe(&r, 3, 1);
		check("the slot's new file", a[0], 'n');
		check("update again", update_slot(&r, FILES_UPDATE2, 0, &(int){ -1 }, 0), 1);
		a_cqe(&r, TAG(9), 0);
		end_ring(&r);
		close(old[1]);
		close(new[0]);
		close(new[1]);
	}
}

static void leave_by(const char *how, int leave(struct ring *))
{
	char byte = 0;
	int p[2];

	section = how;
	pipe(p);
	struct ring r = ring_with_files(p, 1);
	submit(&r, SQE(.opcode = READ, .flags = FIXED_FILE, .fd = 0, .addr = ADDR(&byte), .len = 1, .user_data = 1));
	no_cqe(&r);
	check("left", leave(&r), 0);
	close(p[0]);
	no_cqe(&r);
	write(p[1], "x", 1);
	a_cqe(&r, 1, 1);
	a_cqe(&r, TAG(0), 0);
	check("the byte", byte, 'x');
	no_cqe(&r);
	end_ring(&r);
	close(p[1]);
}

static int unregister(struct ring *r)
{
	return register_call(r->fd, UNREGISTER_FILES, 0, 0);
}

static int close_slot(struct ring *r)
{
	return run(r, SQE(.opcode = CLOSE, .file_index = 1));
}

static int update_by_sqe(struct ring *r)
{
	int none = -1;

	return run(r, SQE(.opcode = FILES_UPDATE, .addr = ADDR(&none), .len = 1)) - 1;
}

static void a_poll_holds_its_file(void)
{
	section = "poll";
	int p[2];

	pipe(p);
	struct ring r = ring_with_files(p, 2);
	submit(&r, SQE(.opcode = POLL_ADD, .flags = FIXED_FILE, .fd = 0, .len = POLL_MULTISHOT, .op_flags = POLLIN, .user_data = 1));
	no_cqe(&r);
	check("update", update_slot(&r, FILES_UPDATE2, 0, &(int){ -1 }, 0), 1);
	no_cqe(&r);
	write(p[1], "x", 1);
	struct cqe cqe = next_cqe(&r);
	check("ready", cqe.res, POLLIN);
	check("and more to come", cqe.flags, F_MORE);
	no_cqe(&r);
	/* As a second file, so that it is polled while it has data. */
	check("update", update_slot(&r, FILES_UPDATE2, 0, p, 0), 1);
	submit(&r, SQE(.opcode = POLL_ADD, .flags = FIXED_FILE, .fd = 0, .len = POLL_MULTISHOT, .op_flags = POLLIN, .user_data = 3));
	a_cqe(&r, 3, POLLIN);
	check("update", update_slot(&r, FILES_UPDATE2, 0, &(int){ -1 }, 0), 1);
	check("cancelled", run(&r, SQE(.opcode = ASYNC_CANCEL, .addr = 3)) + next(&r), -ECANCELED);
	no_cqe(&r);
	/* Unread data is no event when the slot changes, nor when the file is closed. */
	check("its second slot", update_slot(&r, FILES_UPDATE2, 1, &(int){ -1 }, 0), 1);
	a_cqe(&r, TAG(1), 0);
	no_cqe(&r);
	submit(&r, SQE(.opcode = ASYNC_CANCEL, .addr = 1, .user_data = 2));
	int polled = -1, tag = -1;
	for (int i = 0; i < 3; i++) {
		uint64_t data = next_cqe(&r).user_data;

		polled = data == 1 ? i : polled;
		tag = data == TAG(0) ? i : tag;
	}
	is_true("the poll ends, then its file", polled >= 0 && polled < tag);
	end_ring(&r);
	close(p[0]);
	close(p[1]);
}

static void a_slot_without_requests(void)
{
	section = "nothing uses it";
	static char page[4096];
	struct iovec { void *base; size_t len; } iovec = { page, sizeof(page) }, none = { 0 };
	uint64_t tag = TAG(5);
	int p[2];

	pipe(p);
	struct ring r = ring_with_files(p, 2);
	check("buffers", register_with_tags(&r, BUFFERS2, &iovec, &tag, 1), 0);
	check("update", update_slot(&r, FILES_UPDATE2, 0, &(int){ -1 }, 0), 1);
	check("at once", waiting(&r), 1);
	a_cqe(&r, TAG(0), 0);
	check("unregister", unregister(&r), 0);
	check("at once", waiting(&r), 1);
	a_cqe(&r, TAG(1), 0);
	check("update", update_slot(&r, BUFFERS_UPDATE, 0, &none, 0), 1);
	check("at once", waiting(&r), 1);
	a_cqe(&r, TAG(5), 0);
	end_ring(&r);
	close(p[0]);
	close(p[1]);
}

static void a_buffer_that_leaves_its_slot(void)
{
	static char pages[2][4096];
	struct iovec { void *base; size_t len; } iovec = { pages[0], 4096 }, other = { pages[1], 4096 };
	uint64_t tag = TAG(0);

	for (int how = 0; how < 4; how++) {
		section = how & 1 ? "buffers unregistered" : "buffer updated";
		int p[2], way = WAYS[how >> 1];

		pipe(p);
		memset(pages, 0, sizeof(pages));
		struct ring r = new_ring(8);
		check("registered", register_with_tags(&r, BUFFERS2, &iovec, &tag, 1), 0);
		submit(&r, SQE(.opcode = READ_FIXED, .flags = way, .fd = p[0], .addr = ADDR(pages[0]), .len = 1, .user_data = 1));
		no_cqe(&r);
		if (how & 1)
			check("unregister", register_call(r.fd, UNREGISTER_BUFFERS, 0, 0), 0);
		else
			check("update", update_slot(&r, BUFFERS_UPDATE, 0, &other, TAG(9)), 1);
		no_cqe(&r);
		write(p[1], "x", 1);
		a_cqe(&r, 1, 1);
		a_cqe(&r, TAG(0), 0);
		check("the old buffer has it", pages[0][0], 'x');
		int outside = run(&r, SQE(.opcode = READ_FIXED, .fd = p[0], .addr = ADDR(pages[0]), .len = 1));
		check("a new request may not", outside, -EFAULT);
		end_ring(&r);
		close(p[0]);
		close(p[1]);
	}
}

/* A write on a full pipe, and a splice from a registered input. */
static void other_requests(void)
{
	section = "write";
	static char page[4096];
	struct iovec { void *base; size_t len; } iovec = { page, sizeof(page) }, none = { 0 };
	uint64_t tag = TAG(5);
	int p[2], q[2], n = 0;

	pipe(p);
	fcntl(p[1], F_SETFL, O_NONBLOCK);
	while (write(p[1], page, sizeof(page)) == sizeof(page))
		n++;
	fcntl(p[1], F_SETFL, 0);
	struct ring r = ring_with_files(p, 2);
	check("buffers", register_with_tags(&r, BUFFERS2, &iovec, &tag, 1), 0);
	submit(&r, SQE(.opcode = WRITE_FIXED, .flags = FIXED_FILE, .fd = 1, .addr = ADDR(page), .len = 4096, .user_data = 1));
	no_cqe(&r);
	check("file", update_slot(&r, FILES_UPDATE2, 1, &(int){ -1 }, 0), 1);
	check("buffer", update_slot(&r, BUFFERS_UPDATE, 0, &none, 0), 1);
	no_cqe(&r);
	for (int i = 0; i < n; i++)
		read(p[0], page, sizeof(page));
	a_cqe(&r, 1, 4096);
	uint64_t seen = next_cqe(&r).user_data + next_cqe(&r).user_data;
	check("both tags", seen, TAG(1) + TAG(5));
	end_ring(&r);
	close(p[0]);
	close(p[1]);

	section = "splice";
	pipe(p);
	pipe(q);
	r = ring_with_files(p, 2);
	submit(&r, SQE(.opcode = SPLICE, .fd = q[1], .fd_in = 0, .addr = -1ull, .off = -1ull, .len = 1, .op_flags = SPLICE_FD_IN_FIXED, .user_data = 1));
	no_cqe(&r);
	check("file", update_slot(&r, FILES_UPDATE2, 0, &(int){ -1 }, 0), 1);
	no_cqe(&r);
	write(p[1], "x", 1);
	a_cqe(&r, 1, 1);
	a_cqe(&r, TAG(0), 0);
	end_ring(&r);
	for (int i = 0; i < 2; i++) {
		close(p[i]);
		close(q[i]);
	}
}

int main(void)
{
	block_if_asked();
	a_file_that_leaves_its_slot();
	leave_by("unregistered", unregister);
	leave_by("slot closed", close_slot);
	leave_by("updated by an SQE", update_by_sqe);
	a_poll_holds_its_file();
	a_slot_without_requests();
	a_buffer_that_leaves_its_slot();
	other_requests();
	return finish();
}
