/*
 * Positions and results of writes: appended, at the file position, synchronous, with half of the
 * buffer unmapped, empty, longer than a call can take, to files that are not open for writing.
 */
#include "write_file.h"
#include <sys/uio.h>

enum { WRITEV = 2, FSYNC = 3, WRITE_FIXED = 5 };
enum { HARDLINK = 8 };
enum { DSYNC_FLAG = 2, SYNC_FLAG = 4, NOWAIT_FLAG = 8, APPEND_FLAG = 0x10, NOAPPEND_FLAG = 0x20 };
#define HERE (~0ull)
#define CLAMP 0x7ffff000

static char data[1 << 20];

static int length_of(int round, int i)
{
	return 1 + (round * 7919 + i * 104729) % 5000;
}

/* Records that were appended together: each whole, in one piece, none twice. */
static void check_records(int fd, int round, int n)
{
	static char found[32 * 5001];
	long size = pread(fd, found, sizeof(found), 0), at = 0, sum = 0;
	uint32_t seen = 0;

	for (int i = 0; i < n; i++)
		sum += length_of(round, i);
	check("size of all", size, sum);
	while (at < size) {
		int i = (unsigned char)found[at] - 32, len;

		if (i < 0 || i >= n || seen & 1u << i) {
			check("a record that nobody wrote, or twice", i, -1);
			return;
		}
		len = length_of(round, i);
		for (int k = 0; k < len; k++)
			if (at + k >= size || found[at + k] != 32 + i) {
				check("a torn record", k, len);
				return;
			}
		seen |= 1u << i;
		at += len;
	}
	check("all are there", seen == (n == 32 ? ~0u : (1u << n) - 1), 1);
}

/* `flags` of the file and of the request; offsets are to be ignored. */
static void appends_together(int file_flags, int rwf, int some_async)
{
	struct ring r = new_ring(32);
	static char records[32][5001];
	struct iovec iov[32][2];

	for (int i = 0; i < 32; i++)
		memset(records[i], 32 + i, sizeof(records[i]));
	for (int round = 0; round < 40; round++) {
		int fd = fresh("appended", file_flags), res[32];

		for (int i = 0; i < 32; i++) {
			int len = length_of(round, i), half = len / 2;
			struct sqe sqe = SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(records[i]), .len = len, .off = i * 100, .op_flags = rwf, .user_data = i);

			if (i % 3 == 1) {
				iov[i][0] = (struct iovec){ records[i], half };
				iov[i][1] = (struct iovec){ records[i] + half, len - half };
				sqe.opcode = WRITEV;
				sqe.addr = ADDR(iov[i]);
				sqe.len = 2;
			}
			if (some_async && i % 4 == round % 4)
				sqe.flags = FORCE_ASYNC;
			push(&r, sqe);
		}
		check("submitted", enter_call(r.fd, 32, 32, GETEVENTS, 0, 0), 32);
		results(&r, 32, res);
		for (int i = 0; i < 32; i++)
			check("whole", res[i], length_of(round, i));
		check_records(fd, round, 32);
		close(fd);
	}
	end_ring(&r);
}

static void appending(void)
{
	section = "O_APPEND";
	appends_together(O_APPEND, 0, 0);
	section = "O_APPEND, some by workers";
	appends_together(O_APPEND, 0, 1);
	section = "RWF_APPEND";
	appends_together(0, APPEND_FLAG, 0);
	section = "RWF_APPEND, some by workers";
	appends_together(0, APPEND_FLAG, 1);
}

/* Overlayfs, for one, appends all the same. */
static int has_noappend(void)
{
	int fd = open("noappend", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
	struct iovec v = { "ab", 2 };

	pwritev2(fd, &v, 1, 0, 0);
	pwritev2(fd, &v, 1, 0, NOAPPEND_FLAG);
	int size = size_of(fd);
	close(fd);
	return size == 2;
}

/* The position after appending, and RWF_NOAPPEND on a file that appends. */
static void positions_of_appends(void)
{
	struct ring r = new_ring(8);
	int fd = fresh("positions", 0), append = open("positions", O_RDWR | O_APPEND);
	char back[8] = "";

	section = "positions of appends";
	check("a start", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR("abcdef"), .len = 6)), 6);
	check("still there", lseek(fd, 0, SEEK_CUR), 0);
	check("RWF_APPEND at an offset", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR("gh"), .len = 2, .off = 1, .op_flags = APPEND_FLAG)), 2);
	check("position", lseek(fd, 0, SEEK_CUR), 0);
	check("RWF_APPEND here", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR("ij"), .len = 2, .off = HERE, .op_flags = APPEND_FLAG)), 2);
	check("position", lseek(fd, 0, SEEK_CUR), 10);
	check("O_APPEND here", run(&r, SQE(.opcode = WRITE, .fd = append, .addr = ADDR("kl"), .len = 2, .off = HERE)), 2);
	check("position", lseek(append, 0, SEEK_CUR), 12);
	check("O_APPEND at an offset", run(&r, SQE(.opcode = WRITE, .fd = append, .addr = ADDR("mn"), .len = 2, .off = 3)), 2);
	check("position", lseek(append, 0, SEEK_CUR), 12);
	if (!has_noappend()) {
		printf("RWF_NOAPPEND: this filesystem does not know it\n");
		goto out;
	}
	check("RWF_NOAPPEND", run(&r, SQE(.opcode = WRITE, .fd = append, .addr = ADDR("XY"), .len = 2, .off = 3, .op_flags = NOAPPEND_FLAG)), 2);
	check("both", run(&r, SQE(.opcode = WRITE, .fd = append, .addr = ADDR("op"), .len = 2, .op_flags = APPEND_FLAG)), 2);
	check("size", size_of(fd), 16);
	pread(fd, back, 8, 0);
	is_true("RWF_NOAPPEND went to its place", !memcmp(back, "abcXYfgh", 8));
	pread(fd, back, 8, 8);
	is_true("the others to the end", !memcmp(back, "ijklmnop", 8));
out:
	end_ring(&r);
	close(fd);
	close(append);
}

/* At the position, one after the other and in a chain. */
static void here(void)
{
	struct ring r = new_ring(16);
	int fd = fresh("here", 0), twin = dup(fd);
	char text[101] = "", back[4];

	section = "the file position";
	check("first", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR("abc"), .len = 3, .off = HERE)), 3);
	check("by its twin", run(&r, SQE(.opcode = WRITE, .fd = twin, .addr = ADDR("def"), .len = 3, .off = HERE)), 3);
	check("by a worker", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR("ghi"), .len = 3, .off = HERE, .flags = FORCE_ASYNC)), 3);
	check("position", lseek(fd, 0, SEEK_CUR), 9);
	lseek(fd, 3, SEEK_SET);
	check("read", run(&r, SQE(.opcode = READ, .fd = fd, .addr = ADDR(back), .len = 3, .off = HERE)), 3);
	is_true("found", !memcmp(back, "def", 3));
	check("elsewhere", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR("A"), .len = 1, .off = 0)), 1);
	check("position", lseek(twin, 0, SEEK_CUR), 6);
	for (int round = 0; round < 20; round++) {
		lseek(fd, 0, SEEK_SET);
		for (int i = 0; i < 10; i++) {
			struct sqe sqe = SQE(.opcode = WRITE, .fd = i % 2 ? fd : twin, .addr = ADDR("0123456789" + i), .len = 1, .off = HERE, .flags = i < 9 ? LINK : 0);

			if (i % 5 == round % 5)
				sqe.flags |= FORCE_ASYNC;
			push(&r, sqe);
		}
		check("a chain", enter_call(r.fd, 10, 10, GETEVENTS, 0, 0), 10);
		for (int i = 0; i < 10; i++)
			check("of it", next(&r), 1);
		check("position", lseek(fd, 0, SEEK_CUR), 10);
		pread(fd, text, 10, 0);
		is_true("in its order", !memcmp(text, "0123456789", 10));
		ftruncate(fd, 0);
	}
	end_ring(&r);
	close(fd);
	close(twin);
}

static void synchronous(void)
{
	int flags[] = { O_DSYNC, O_SYNC, 0, 0, 0 }, rwf[] = { 0, 0, DSYNC_FLAG, SYNC_FLAG, DSYNC_FLAG | SYNC_FLAG | APPEND_FLAG };
	struct ring r = new_ring(8);
	char back[3000];

	section = "synchronous";
	for (int i = 0; i < 5; i++) {
		int fd = fresh("synchronous", flags[i]);

		for (int async = 0; async <= FORCE_ASYNC; async += FORCE_ASYNC)
			for (int k = 0; k < 3; k++) {
				memset(data, 'a' + k, 1000);
				check("written", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 1000, .off = k * 1000, .op_flags = rwf[i], .flags = async)), 1000);
			}
		check("read", pread(fd, back, 3000, 0), 3000);
		is_true("as written", back[0] == 'a' && back[999] == 'a' && back[1000] == 'b' && back[2999] == 'c');
		close(fd);
	}
	check("no such flag", run(&r, SQE(.opcode = WRITE, .fd = fresh("flags", 0), .addr = ADDR(data), .len = 1, .op_flags = 1 << 20)), -EOPNOTSUPP);
	end_ring(&r);
}

static void not_for_writing(void)
{
	struct ring r = new_ring(8);
	int fd = fresh("read-only", 0), ro = open("read-only", O_RDONLY), wo = open("read-only", O_WRONLY), path = open("read-only", O_PATH), dir = open(".", O_RDONLY);
	struct iovec iov = { data, 10 };

	section = "not open for it";
	check("read-only", run(&r, SQE(.opcode = WRITE, .fd = ro, .addr = ADDR(data), .len = 10)), -EBADF);
	check("again", run(&r, SQE(.opcode = WRITE, .fd = ro, .addr = ADDR(data), .len = 10)), -EBADF);
	check("by iovec", run(&r, SQE(.opcode = WRITEV, .fd = ro, .addr = ADDR(&iov), .len = 1)), -EBADF);
	check("nothing", run(&r, SQE(.opcode = WRITE, .fd = ro)), -EBADF);
	check("here", run(&r, SQE(.opcode = WRITE, .fd = ro, .addr = ADDR(data), .len = 10, .off = HERE)), -EBADF);
	check("by a worker", run(&r, SQE(.opcode = WRITE, .fd = ro, .addr = ADDR(data), .len = 10, .flags = FORCE_ASYNC)), -EBADF);
	check("a directory", run(&r, SQE(.opcode = WRITE, .fd = dir, .addr = ADDR(data), .len = 10)), -EBADF);
	check("O_PATH", run(&r, SQE(.opcode = WRITE, .fd = path, .addr = ADDR(data), .len = 10)), -EBADF);
	check("write-only", run(&r, SQE(.opcode = WRITE, .fd = wo, .addr = ADDR(data), .len = 10)), 10);
	check("a read of it", run(&r, SQE(.opcode = READ, .fd = wo, .addr = ADDR(data), .len = 10)), -EBADF);
	check("size", size_of(fd), 10);
	int sealed = syscall(SYS_memfd_create, "sealed", 2);
	ftruncate(sealed, 5000);
	fcntl(sealed, F_ADD_SEALS, F_SEAL_GROW);
	check("sealed, inside", run(&r, SQE(.opcode = WRITE, .fd = sealed, .addr = ADDR(data), .len = 1000)), 1000);
	check("sealed, across", run(&r, SQE(.opcode = WRITE, .fd = sealed, .addr = ADDR(data), .len = 10000)), 4096);
	check("sealed, beyond", run(&r, SQE(.opcode = WRITE, .fd = sealed, .addr = ADDR(data), .len = 1000, .off = 5000)), -EPERM);
	end_ring(&r);
	close(fd), close(ro), close(wo), close(path), close(dir), close(sealed);
}

/* An empty write succeeds and changes nothing. */
static void nothing(void)
{
	struct ring r = new_ring(8);
	int fd = fresh("nothing", 0), res[2];
	struct iovec iov[3] = { { data, 0 }, { 0, 0 }, { data, 0 } };

	section = "nothing";
	check("at 0", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data))), 0);
	check("at 5000", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .off = 5000)), 0);
	check("no buffer", run(&r, SQE(.opcode = WRITE, .fd = fd, .off = 5000)), 0);
	check("here", run(&r, SQE(.opcode = WRITE, .fd = fd, .off = HERE)), 0);
	check("empty iovecs", run(&r, SQE(.opcode = WRITEV, .fd = fd, .addr = ADDR(iov), .len = 3, .off = 10)), 0);
	check("no iovecs", run(&r, SQE(.opcode = WRITEV, .fd = fd, .addr = ADDR(iov), .off = 10)), 0);
	check("by a worker", run(&r, SQE(.opcode = WRITE, .fd = fd, .off = 5000, .flags = FORCE_ASYNC)), 0);
	check("size", size_of(fd), 0);
	push(&r, SQE(.opcode = WRITE, .fd = fd, .off = 10, .flags = LINK));
	push(&r, SQE(.opcode = NOP, .user_data = 1));
	enter_call(r.fd, 2, 2, GETEVENTS, 0, 0);
	results(&r, 2, res);
	check("in a chain", res[0], 0);
	check("behind it", res[1], 0);
	end_ring(&r);
	close(fd);
}

/* Two pages, the second unmapped: the bytes before it are written. */
static void half_a_buffer(void)
{
	struct ring r = new_ring(8);
	char *pages = mmap(0, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = fresh("half", 0), res[2];

	section = "half a buffer";
	memset(pages, 'h', 3 * 4096);
	mprotect(pages + 4096, 4096, PROT_NONE);
	for (int async = 0; async <= FORCE_ASYNC; async += FORCE_ASYNC) {
		check("a page", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(pages), .len = 8192, .flags = async)), 4096);
		check("size", size_of(fd), 4096);
		check("in place", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(pages), .len = 8192, .flags = async)), 4096);
		check("none", run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(pages + 4096), .len = 100, .off = 4096, .flags = async)), -EFAULT);
		check("size", size_of(fd), 4096);
		struct iovec iov[3] = { { pages, 4096 }, { pages + 4096, 4096 }, { pages + 8192, 4096 } };
		check("iovecs", run(&r, SQE(.opcode = WRITEV, .fd = fd, .addr = ADDR(iov), .len = 3, .flags = async)), 4096);
		check("no list", run(&r, SQE(.opcode = WRITEV, .fd = fd, .addr = ADDR(pages + 4096), .len = 2, .flags = async)), -EFAULT);
		check("too long a list", run(&r, SQE(.opcode = WRITEV, .fd = fd, .addr = ADDR(data), .len = 1025, .flags = async)), -EINVAL);
		iov[1].iov_len = -1;
		check("a negative length", run(&r, SQE(.opcode = WRITEV, .fd = fd, .addr = ADDR(iov), .len = 3, .flags = async)), -EINVAL);
		push(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(pages), .len = 8192, .flags = LINK | async));
		push(&r, SQE(.opcode = NOP, .user_data = 1));
		enter_call(r.fd, 2, 2, GETEVENTS, 0, 0);
		results(&r, 2, res);
		check("in a chain", res[0], 4096);
		check("behind it", res[1], -ECANCELED);
		ftruncate(fd, 0);
	}
	end_ring(&r);
	close(fd);
	munmap(pages, 3 * 4096);
}

/*
 * Overlapping, in one batch: no order is promised, but without IOSQE_ASYNC the kernel's writes keep
 * it, and programs rely on that.
 */
static void overlapping(void)
{
	static char blocks[16][20000], back[20000];
	struct ring r = new_ring(16);
	int fd = fresh("overlapping", 0);

	section = "overlapping";
	for (int i = 0; i < 16; i++)
		memset(blocks[i], 'A' + i, sizeof(blocks[i]));
	check("its blocks", pwrite(fd, blocks[0], sizeof(blocks[0]), 0), sizeof(blocks[0]));
	for (int round = 0; round < 300; round++) {
		int n = 2 + round % 15, cold = round % 10 == 0, len = 19999;

		if (cold) {
			fdatasync(fd);
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		}
		for (int i = 0; i < n; i++)
			push(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(blocks[i]), .len = len, .off = 1));
		check("a batch", enter_call(r.fd, n, n, GETEVENTS, 0, 0), n);
		for (int i = 0; i < n; i++)
			check("of it", next(&r), len);
		check("read", pread(fd, back, len, 1), len);
		is_true("the last one stays", !memcmp(back, blocks[n - 1], len));
	}
	end_ring(&r);
	close(fd);
}

/* No call takes 2 GiB or more. */
static void very_much(void)
{
	struct ring r = new_ring(8);
	int null = open("/dev/null", O_RDWR), res[2];
	char *much = mmap(0, 4ul << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct iovec iov[3] = { { much, 1 << 30 }, { much, 1 << 30 }, { much, 1 << 30 } };

	section = "very much";
	is_true("addresses", much != MAP_FAILED);
	check("write", run(&r, SQE(.opcode = WRITE, .fd = null, .addr = ADDR(much), .len = 0xffffffff)), CLAMP);
	check("here", run(&r, SQE(.opcode = WRITE, .fd = null, .addr = ADDR(much), .len = 0x80000000, .off = HERE)), CLAMP);
	check("iovecs", run(&r, SQE(.opcode = WRITEV, .fd = null, .addr = ADDR(iov), .len = 3)), CLAMP);
	check("by a worker", run(&r, SQE(.opcode = WRITE, .fd = null, .addr = ADDR(much), .len = 0xffffffff, .flags = FORCE_ASYNC)), CLAMP);
	push(&r, SQE(.opcode = WRITE, .fd = null, .addr = ADDR(much), .len = 0xffffffff, .flags = LINK));
	push(&r, SQE(.opcode = NOP, .user_data = 1));
	enter_call(r.fd, 2, 2, GETEVENTS, 0, 0);
	results(&r, 2, res);
	check("in a chain", res[0], CLAMP);
	check("behind it", res[1], 0);
	end_ring(&r);
	close(null);
	munmap(much, 4ul << 30);
}

int main(void)
{
	block_if_asked();
	appending();
	positions_of_appends();
	here();
	synchronous();
	not_for_writing();
	nothing();
	half_a_buffer();
	overlapping();
	very_much();
	return finish();
}
