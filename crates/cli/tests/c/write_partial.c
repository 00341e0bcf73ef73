/*
 * Writes that can be done at once in part only: the page cache lacks a page that must be read
 * first, or a part of the buffer is unmapped. One CQE each, with the whole count or the count up to
 * the error, and the bytes at their position. It matters where the filesystem supports RWF_NOWAIT
 * for buffered writes (xfs, btrfs) and the file is known to block: a first part is written at once,
 * and a worker does the rest.
 */
#include "robust_ring.h"
#include <sys/stat.h>
#include <sys/uio.h>

enum { WRITEV = 2 };
enum { DSYNC_FLAG = 2, NOWAIT_FLAG = 8, APPEND_FLAG = 0x10 };
enum { SIZE = 1 << 20 };
#define HERE (~0ull)

static char before[SIZE], data[SIZE], expected[2 * SIZE], found[2 * SIZE];
static unsigned shorts, refusals, wholes;
static uint64_t seed = 1;

static unsigned below(unsigned n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 33) % n;
}

/*
 * Drops pages of the file from the cache, then reads those below `cached` again, without their
 * neighbours.
 */
static void make_cold(int fd, long cached)
{
	static char page[4096];

	fdatasync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	for (long at = 0; at < cached; at += 4096)
		pread(fd, page, 1, at);
}

/* A file of known bytes, of which only the first `cached` are in the cache. */
static int cold_file(const char *name, int flags, long size, long cached)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0600);

	is_true("the file opens", fd >= 0);
	check("its content", pwrite(fd, before, size, 0), size);
	make_cold(fd, cached);
	memcpy(expected, before, size);
	return fd;
}

static void check_content(int fd, long size)
{
	check("size", lseek(fd, 0, SEEK_END), size);
	check("read", pread(fd, found, sizeof(found), 0), size);
	for (long i = 0; i < size; i++)
		if (found[i] != expected[i]) {
			check("the first byte that differs", i, -1);
			return;
		}
}

/*
 * A write that changes nothing: the next one needs no new time stamp, for which xfs refuses
 * RWF_NOWAIT.
 */
static void touch(int fd)
{
	check("touched", pwrite(fd, before, 1, 0), 1);
}

/*
 * A write whose 64 bytes must be read from the disk one by one: it is slow, whatever the page cache
 * of its file holds.
 */
static void write_slowly(struct ring *r, int fd)
{
	static int from = -1;
	struct iovec iov[64];
	char *pages;

	if (from < 0) {
		from = open("slow", O_RDWR | O_CREAT | O_TRUNC, 0600);
		for (int i = 0; i < 64; i++)
			pwrite(from, before + i, 1, i * 8192);
	}
	fdatasync(from);
	posix_fadvise(from, 0, 0, POSIX_FADV_DONTNEED);
	pages = mmap(0, 64 * 8192, PROT_READ, MAP_SHARED, from, 0);
	madvise(pages, 64 * 8192, MADV_RANDOM);
	for (int i = 0; i < 64; i++)
		iov[i] = (struct iovec){ pages + i * 8192, 1 };
	check("slowly", run(r, SQE(.opcode = WRITEV, .fd = fd, .addr = ADDR(iov), .len = 64)), 64);
	munmap(pages, 64 * 8192);
}

/*
 * After a slow write or two this file's writes are expected to block: the next ones are tried with
 * RWF_NOWAIT.
 */
static void disappoint(struct ring *r, int fd, long cached)
{
	for (int level = 0; level < 3; level++) {
		write_slowly(r, fd);
		for (int i = 0; level < 2 && i < 1 << 2 * level; i++)
			check("quickly", run(r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(before), .len = 1)), 1);
	}
	make_cold(fd, cached);
	touch(fd);
}

/* The result of a plain pwritev2 with RWF_NOWAIT. */
static void ask_nowait(int fd, char *buffer, long len, long off)
{
	struct iovec iov = { buffer, len };
	long n = pwritev2(fd, &iov, 1, off, NOWAIT_FLAG);

	if (n < 0)
		refusals++;
	else if (n < len)
		shorts++;
	else
		wholes++;
}

/* The head is cached, the last page is not and is written in part: it must be read first. */
static void cold_tails(void)
{
	struct ring r = new_ring(8);

	section = "a cold last page";
	for (int i = 0; i < 30; i++) {
		long cached = below(64) * 4096, off = 1 + below(8191), len = 1 + below(SIZE - 8192);
		int fd = cold_file("cold", i % 3 == 2 ? O_DSYNC : 0, SIZE, cached);
		struct iovec iov[3] = { { data, len / 3 }, { data + len / 3, 0 }, { data + len / 3, len - len / 3 } };
		struct sqe sqe = SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = len, .off = off);

		if (i % 5 == 0) {
			/* The same bytes twice: the second time through the ring. */
			touch(fd);
			ask_nowait(fd, data, len, off);
			make_cold(fd, cached);
		}
		if (i % 3 == 1) {
			sqe.opcode = WRITEV;
			sqe.addr = ADDR(iov);
			sqe.len = 3;
		}
		memcpy(expected + off, data, len);
		disappoint(&r, fd, cached);
		check("whole", run(&r, sqe), len);
		check("one CQE", waiting(&r), 0);
		check_content(fd, SIZE);
		close(fd);
	}
	end_ring(&r);
}

/* An uncached page does not break a chain. */
static void chains(void)
{
	struct ring r = new_ring(8);
	static char back[20000];

	section = "chains";
	for (int i = 0; i < 10; i++) {
		int fd = cold_file("chain", 0, SIZE, 8192);

		memcpy(expected + 100, data, 20000);
		disappoint(&r, fd, 8192);
		push(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data), .len = 20000, .off = 100, .flags = LINK));
		push(&r, SQE(.opcode = READ, .fd = fd, .addr = ADDR(back), .len = 20000, .off = 100, .flags = LINK));
		push(&r, SQE(.opcode = NOP));
		check("submitted", enter_call(r.fd, 3, 3, GETEVENTS, 0, 0), 3);
		check("written", next(&r), 20000);
		check("read", next(&r), 20000);
		check("and the last", next(&r), 0);
		is_true("read what was written", !memcmp(back, data, 20000));
		check_content(fd, SIZE);
		close(fd);
	}
	end_ring(&r);
}

/* Several at once in one file, all uncached, none overlapping. */
static void many(void)
{
	struct ring r = new_ring(32);

	section = "many";
	for (int i = 0; i < 8; i++) {
		long cached = below(256) * 4096, lens[32];
		int fd = cold_file("many", 0, SIZE, cached);

		disappoint(&r, fd, cached);
		for (int k = 0; k < 32; k++) {
			long off = k * (SIZE / 32) + 1 + below(4999);

			lens[k] = 1 + below(SIZE / 32 - 5000);
			memcpy(expected + off, data + k, lens[k]);
			push(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data + k), .len = lens[k], .off = off, .user_data = k));
		}
		check("submitted", enter_call(r.fd, 32, 32, GETEVENTS, 0, 0), 32);
		for (int k = 0; k < 32; k++) {
			struct cqe cqe = next_cqe(&r);

			check("whole, once", cqe.res, cqe.user_data < 32 ? lens[cqe.user_data] : -1);
			if (cqe.user_data < 32)
				lens[cqe.user_data] = -1;
		}
		check_content(fd, SIZE);
		close(fd);
	}
	end_ring(&r);
}

/* A page of the buffer is unmapped: the count up to there. */
static void bad_buffers(void)
{
	struct ring r = new_ring(8);
	char *pages = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	section = "half a buffer";
	memcpy(pages, data, SIZE);
	for (int i = 0; i < 16; i++) {
		long good = (1 + below(60)) * 4096, skip = below(4096), off = below(3) * 4096 + (i % 2 ? below(4096) : skip), n;
		int fd = cold_file("bad", 0, SIZE, below(20) * 4096);

		disappoint(&r, fd, 32768);
		mprotect(pages + good, 4096, PROT_NONE);
		n = run(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(pages + skip), .len = 300000, .off = off));
		/* The page cache takes what it can get of each of its pages. */
		is_true("not more than there is", n <= good - skip);
		is_true("all whole pages, or no first one", n == -EFAULT ? good - skip < 4096 : n > good - skip - 4096 - 4096 && n > 0);
		if (n > 0)
			memcpy(expected + off, data + skip, n);
		check("one CQE", waiting(&r), 0);
		check_content(fd, SIZE);
		mprotect(pages + good, 4096, PROT_READ | PROT_WRITE);
		close(fd);
	}
	end_ring(&r);
	munmap(pages, SIZE);
}

/* The buffer is a mapping of an uncached file. */
static void cold_buffers(void)
{
	struct ring r = new_ring(8);

	section = "a cold buffer";
	for (int i = 0; i < 10; i++) {
		int from = cold_file("from", 0, SIZE, 40960), to = cold_file("to", 0, SIZE, SIZE);
		char *mapped = mmap(0, SIZE, PROT_READ, MAP_SHARED, from, 0);
		long skip = below(5000), off = below(5000), len = 200000 + below(100000);

		memcpy(expected + off, before + skip, len);
		check("whole", run(&r, SQE(.opcode = WRITE, .fd = to, .addr = ADDR(mapped + skip), .len = len, .off = off)), len);
		check_content(to, SIZE);
		munmap(mapped, SIZE);
		close(from);
		close(to);
	}
	end_ring(&r);
}

/* At the position: it is behind the written bytes, also if a part came later. */
static void positions(void)
{
	struct ring r = new_ring(8);

	section = "positions";
	for (int i = 0; i < 10; i++) {
		int fd = cold_file("position", 0, SIZE, 8192);
		long off = 1 + below(5000), len = 8192 + below(50000);

		disappoint(&r, fd, 8192);
		lseek(fd, off, SEEK_SET);
		for (int k = 0; k < 3; k++) {
			memcpy(expected + off + k * len, data + k, len);
			push(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data + k), .len = len, .off = HERE, .flags = k < 2 ? LINK : 0));
		}
		check("submitted", enter_call(r.fd, 3, 3, GETEVENTS, 0, 0), 3);
		for (int k = 0; k < 3; k++)
			check("whole", next(&r), len);
		check("position", lseek(fd, 0, SEEK_CUR), off + 3 * len);
		check_content(fd, SIZE);
		close(fd);
	}
	end_ring(&r);
}

/* The last page, half full, is uncached: each of several appended records stays in one piece. */
static void appends(int file_flags, int rwf)
{
	struct ring r = new_ring(16);

	section = rwf ? "RWF_APPEND" : "O_APPEND";
	for (int i = 0; i < 10; i++) {
		long size = 100000 + below(5000), len = 1000 + below(20000), at = size;
		int fd = cold_file("append", file_flags, size, 0);
		unsigned seen = 0;

		for (int k = 0; k < 8; k++) {
			memset(data + k * len, '0' + k, len);
			push(&r, SQE(.opcode = WRITE, .fd = fd, .addr = ADDR(data + k * len), .len = len, .op_flags = rwf));
		}
		check("submitted", enter_call(r.fd, 8, 8, GETEVENTS, 0, 0), 8);
		for (int k = 0; k < 8; k++)
			check("whole", next(&r), len);
		check("size", lseek(fd, 0, SEEK_END), size + 8 * len);
		pread(fd, found, sizeof(found), 0);
		is_true("what was there", !memcmp(found, before, size));
		for (int k = 0; k < 8; k++, at += len) {
			char record = found[at];

			for (long n = 0; n < len; n++)
				if (found[at + n] != record) {
					check("a torn record", n, len);
					break;
				}
			seen |= 1u << (record - '0');
		}
		check("all of them", seen, 255);
		close(fd);
	}
	end_ring(&r);
}

int main(void)
{
	block_if_asked();
	for (int i = 0; i < SIZE; i++) {
		before[i] = 'a' + below(26);
		data[i] = 'A' + below(26);
	}
	cold_tails();
	chains();
	many();
	bad_buffers();
	cold_buffers();
	positions();
	appends(O_APPEND, 0);
	appends(0, APPEND_FLAG);
	printf("writes that must not wait: %u short, %u refused, %u whole\n", shorts, refusals, wholes);
	return finish();
}
