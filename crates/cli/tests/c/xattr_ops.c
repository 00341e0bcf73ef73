/* Extended attributes by name and by descriptor, and malformed requests for them. */
#define _GNU_SOURCE
#include <sys/xattr.h>
#include "net_ring.h"

enum { FSETXATTR = 41, SETXATTR = 42, FGETXATTR = 43, GETXATTR = 44 };

static char path[4096], value[100], long_name[300];
static int fd;

static struct sqe set(const char *name, const char *value, int len)
{
	return SQE(SETXATTR, .addr = ADDR(name), .off = ADDR(value), .len = len, .addr3 = ADDR(path));
}

static struct sqe get(const char *name, int room)
{
	return SQE(GETXATTR, .addr = ADDR(name), .off = ADDR(value), .len = room, .addr3 = ADDR(path));
}

/* The same, by descriptor. */
static struct sqe by_fd(struct sqe sqe)
{
	sqe.opcode -= 1;
	sqe.fd = fd;
	sqe.addr3 = 0;
	return sqe;
}

static void values(void)
{
	new_ring("values");
	does("by name", set("user.a", "first", 5), 0, 0);
	check("is there", getxattr(path, "user.a", value, sizeof(value)) == 5 && !memcmp(value, "first", 5), 1);
	does("read by name", get("user.a", sizeof(value)), 5, 0);
	check("as it was written", memcmp(value, "first", 5), 0);
	does("only its size", get("user.a", 0), 5, 0);
	does("no room", get("user.a", 4), -ERANGE, 0);
	does("by descriptor", by_fd(set("user.b", "other", 3)), 0, 0);
	does("read by descriptor", by_fd(get("user.b", sizeof(value))), 3, 0);
	check("as it was written", memcmp(value, "oth", 3), 0);
	does("none", get("user.none", 10), -ENODATA, 0);
	does("none by descriptor", by_fd(get("user.none", 10)), -ENODATA, 0);
	does("empty", set("user.c", 0, 0), 0, 0);
	does("empty, read", get("user.c", 10), 0, 0);
	does("class", set("nothing.a", "x", 1), -EOPNOTSUPP, 0);
	does("asynchronous", SQE(GETXATTR, FORCE_ASYNC, .addr = ADDR("user.a"), .off = ADDR(value), .len = 10, .addr3 = ADDR(path)), 5, 0);
}

static void flags(void)
{
	struct sqe create = set("user.d", "x", 1), replace = set("user.d", "yy", 2), both = set("user.d", "yy", 2), bad = set("user.d", "x", 1);

	new_ring("flags");
	create.op_flags = XATTR_CREATE;
	replace.op_flags = XATTR_REPLACE;
	both.op_flags = XATTR_CREATE | XATTR_REPLACE;
	bad.op_flags = 4;
	does("nothing to replace", replace, -ENODATA, 0);
	does("create", create, 0, 0);
	does("there already", create, -EEXIST, 0);
	does("there already, by descriptor", by_fd(create), -EEXIST, 0);
	does("replace", by_fd(replace), 0, 0);
	does("both", both, -EEXIST, 0);
	does("unknown", bad, -EINVAL, 0);
	does("unknown by descriptor", by_fd(bad), -EINVAL, 0);
	bad = get("user.d", 10);
	bad.op_flags = 1;
	does("of a get", bad, -EINVAL, 0);
	does("of a get by descriptor", by_fd(bad), -EINVAL, 0);
}

/* Of the unused fields only the priority is checked, and the file flag where there is a name. */
static void ignores(const char *what, struct sqe good)
{
	struct sqe sqe = good;
	int answer = run(good);

	section = what;
	sqe.buf_index = sqe.file_index = sqe.pad2 = 1;
	if (good.addr3)
		sqe.fd = 999;
	else
		sqe.addr3 = 1;
	does("ignored fields", sqe, answer, 0);
	sqe.ioprio = 1;
	does("priority", sqe, -EINVAL, 0);
}

static void fields(void)
{
	struct sqe bad;

	new_ring("fields");
	ignores("set", set("user.e", "x", 1));
	ignores("get", get("user.e", 10));
	ignores("fset", by_fd(set("user.e", "x", 1)));
	ignores("fget", by_fd(get("user.e", 10)));
	new_ring("names and addresses");
	does("no name", set("", "x", 1), -ERANGE, 0);
	does("no name to get", get("", 10), -ERANGE, 0);
	does("long name", set(long_name, "x", 1), -ERANGE, 0);
	does("long name to get", by_fd(get(long_name, 10)), -ERANGE, 0);
	does("name's address", set((char *)BAD_ADDRESS, "x", 1), -EFAULT, 0);
	does("name's address to get", get((char *)BAD_ADDRESS, 10), -EFAULT, 0);
	does("value's address", set("user.e", (char *)BAD_ADDRESS, 1), -EFAULT, 0);
	does("much", set("user.e", value, 65537), -E2BIG, 0);
	does("much at a bad address", set("user.e", (char *)BAD_ADDRESS, 65537), -E2BIG, 0);
	bad = set("user.e", value, 65537);
	bad.op_flags = 4;
	does("much with a bad flag", bad, -EINVAL, 0);
	bad = get("user.e", 10);
	bad.off = BAD_ADDRESS;
	does("value's address to get", bad, -EFAULT, 0);
	bad = get("user.e", 10);
	bad.addr3 = BAD_ADDRESS;
	does("path's address", bad, -EFAULT, 0);
	bad.addr3 = ADDR("");
	does("empty path", bad, -ENOENT, 0);
	bad.addr3 = ADDR("/nowhere/to/be/found");
	does("no such path", bad, -ENOENT, 0);
	bad.addr3 = 0;
	does("no path", bad, -EFAULT, 0);
	bad = by_fd(get("user.e", 10));
	bad.fd = 999;
	does("no such file", bad, -EBADF, 0);
	bad.fd = -1;
	does("negative file", bad, -EBADF, 0);
	bad.addr = ADDR("");
	does("nor a name", bad, -ERANGE, 0);
	bad = by_fd(set("user.e", value, 65537));
	bad.fd = -1;
	does("negative file and too much", bad, -E2BIG, 0);
	bad = set("user.e", "x", 1);
	bad.flags = BUFFER_SELECT;
	does("buffer select", bad, -EOPNOTSUPP, 0);
}

static void files(void)
{
	int slots[2] = { fd, -1 }, o_path = open(path, O_PATH), out = open(path, O_WRONLY);
	struct sqe sqe;

	new_ring("files");
	check("registered", reg(REGISTER_FILES, slots, 2), 0);
	sqe = by_fd(set("user.f", "slot", 4));
	sqe.flags = FIXED_FILE;
	sqe.fd = 0;
	does("of a slot", sqe, 0, 0);
	sqe = by_fd(get("user.f", 10));
	sqe.flags = FIXED_FILE;
	sqe.fd = 0;
	does("read from a slot", sqe, 4, 0);
	sqe.fd = 1;
	does("empty slot", sqe, -EBADF, 0);
	sqe = set("user.f", "x", 1);
	sqe.flags = FIXED_FILE;
	does("name with a slot", sqe, -EBADF, 0);
	sqe.op_flags = 4;
	does("that before the flags", sqe, -EBADF, 0);
	sqe = get("user.f", 10);
	sqe.flags = FIXED_FILE;
	does("name to get with a slot", sqe, -EBADF, 0);
	sqe = by_fd(get("user.f", 10));
	sqe.fd = o_path;
	does("a path", sqe, -EBADF, 0);
	sqe.fd = out;
	does("only for writing", sqe, 4, 0);
	sqe = by_fd(set("user.f", "x", 1));
	sqe.fd = open(path, O_RDONLY);
	does("only for reading", sqe, 0, 0);
}

/* A missing attribute breaks no link; a malformed request fails its chain. */
static void links(void)
{
	struct sqe sqe = get("user.none", 10);
	char name[16] = "user.g", text[16] = "before";

	new_ring("links");
	sqe.flags = LINK;
	submit_linked(sqe, SQE(NOP, .user_data = 2));
	check("not there", next(), -ENODATA);
	check("what follows", next(), 0);
	sqe = get("", 10);
	sqe.flags = LINK;
	push(sqe);
	push(SQE(NOP));
	syscall(426, ring_fd, 2, 0, 0, 0, 0);
	check("malformed", next(), -ERANGE);
	check("what follows that", next(), -ECANCELED);
	/* Names and values are read at submission. */
	sqe = set(name, text, 6);
	sqe.flags = FORCE_ASYNC;
	submit(sqe);
	memset(name, 'x', 6);
	memset(text, 'x', 6);
	expect("reused", 0, 0);
	does("as it was", get("user.g", 10), 6, 0);
	check("before", memcmp(value, "before", 6), 0);
	nothing_comes("no more");
}

int main(int argc, char **argv)
{
	snprintf(path, sizeof(path), "%s.file", argv[0]);
	unlink(path);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fsetxattr(fd, "user.test", "x", 1, 0)) {
		printf("this filesystem has no user attributes: not asked\n");
		return 0;
	}
	memset(long_name, 'a', 299);
	memcpy(long_name, "user.", 5);
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	values();
	flags();
	fields();
	files();
	links();
	unlink(path);
	return failures > 0;
}
