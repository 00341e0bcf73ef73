/*
 * How a program finds its own file, by every call that takes a path: prints the answers, which are
 * the same with and without the engine. Bad addresses are EFAULT, wherever they point.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

/* As in <linux/openat2.h>, which musl's compiler does not find. */
struct open_how {
	uint64_t flags, mode, resolve;
};
enum { RESOLVE_NO_XDEV = 1, RESOLVE_NO_MAGICLINKS = 2, RESOLVE_NO_SYMLINKS = 4, RESOLVE_BENEATH = 8 };
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_statx
#define SYS_statx 332
#endif
#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif

static long negative(long result)
{
	return result < 0 ? -errno : result;
}

static void say(const char *what, const char *path, long answer)
{
	printf("%s %s: %ld\n", what, path, answer);
}

static void link_of(const char *path, const char *shown)
{
	static const size_t sizes[] = { 0, 1, 5, 31, 200, 4096 };
	char buffer[4096];

	for (int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		memset(buffer, '#', sizeof(buffer));
		long res = negative(readlink(path, buffer, sizes[i]));
		printf("readlink %s into %zu: %ld %.*s then %.8s\n", shown, sizes[i], res, res > 0 ? (int)res : 0, buffer, buffer + (res > 0 ? res : 0));
	}
	memset(buffer, 0, sizeof(buffer));
	say("readlinkat", shown, negative(readlinkat(AT_FDCWD, path, buffer, sizeof(buffer))));
	puts(buffer);
	say("readlink into a bad buffer", shown, negative(readlink(path, (char *)8, 100)));
	say("readlink of a negative size", shown, negative(syscall(SYS_readlink, path, buffer, -1)));
}

static void show_file(const char *what, const char *shown, long result, struct stat *st)
{
	printf("%s %s: %ld, %llx %llu %o %lld\n", what, shown, result, (long long)st->st_dev, (long long)st->st_ino, st->st_mode, (long long)st->st_size);
}

static void open_with(const char *path, const char *shown, int flags)
{
	struct stat st = { 0 };
	char head[4] = "";
	int fd = open(path, flags, 0600);
	long res = fd < 0 ? -errno : 0;

	if (fd >= 0 && flags & O_CREAT)
		unlink(path);
	else if (fd >= 0) {
		fstat(fd, &st);
		read(fd, head, 4);
	}
	close(fd);
	/* Of the link only that it is one. */
	if (S_ISLNK(st.st_mode))
		st = (struct stat){ .st_mode = S_IFLNK };
	printf("flags %x, first byte %x: ", flags, head[0]);
	show_file("open", shown, res, &st);
}

static void open_how(const char *path, const char *shown, int flags, int resolve)
{
	struct open_how how = { .flags = flags, .resolve = resolve };
	struct stat st = { 0 };
	int fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
	long res = fd < 0 ? -errno : 0;

	if (fd >= 0) {
		fstat(fd, &st);
		close(fd);
	}
	printf("resolve %x: ", resolve);
	show_file("openat2", shown, res, &st);
}

static void looks(const char *path, const char *shown)
{
	struct stat st = { 0 };
	uint64_t stx[32] = { 0 };
	struct statfs fs = { 0 };
	long res;

	res = negative(stat(path, &st));
	show_file("stat", shown, res, &st);
	res = negative(lstat(path, &st));
	say("lstat", shown, S_ISLNK(st.st_mode));
	res = negative(syscall(SYS_stat, path, &st));
	show_file("the old stat", shown, res, &st);
	res = negative(fstatat(AT_FDCWD, path, &st, 0));
	show_file("fstatat", shown, res, &st);
	/* All basic facts; the fifth word is the inode number. */
	res = negative(syscall(SYS_statx, AT_FDCWD, path, 0, 0x7ff, stx));
	printf("statx %s: %ld %llu\n", shown, res, (long long)stx[4]);
	res = negative(statfs(path, &fs));
	printf("statfs %s: %ld %lx\n", shown, res, (long)fs.f_type);
	say("access", shown, negative(access(path, X_OK)));
	say("access W", shown, negative(access(path, W_OK)));
	say("faccessat", shown, negative(syscall(SYS_faccessat, AT_FDCWD, path, R_OK)));
	say("faccessat2", shown, negative(syscall(SYS_faccessat2, AT_FDCWD, path, X_OK, 0)));
	say("getxattr", shown, negative(getxattr(path, "user.none", &st, 8)));
	say("listxattr", shown, negative(listxattr(path, (char *)&st, sizeof(st))));
	static const int flags[] = { O_RDONLY, O_RDONLY | O_CLOEXEC, O_WRONLY, O_RDWR, O_PATH, O_NOFOLLOW, O_PATH | O_NOFOLLOW, O_DIRECTORY, O_CREAT | O_EXCL };
	for (int i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		open_with(path, shown, flags[i]);
	open_how(path, shown, O_RDONLY, 0);
	open_how(path, shown, O_RDONLY, RESOLVE_NO_MAGICLINKS);
	open_how(path, shown, O_RDONLY, RESOLVE_NO_SYMLINKS);
	open_how(path, shown, O_RDONLY, RESOLVE_BENEATH);
	open_how(path, shown, O_RDONLY, RESOLVE_NO_XDEV);
}

static void bad_addresses(void)
{
	char *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *cut = pages + 4096 - 10, *bad[] = { 0, (char *)8, (char *)(1ull << 63), pages + 4096, cut };
	struct stat st;
	char buffer[8];

	mprotect(pages + 4096, 4096, PROT_NONE);
	memcpy(cut, "/proc/self", 10);
	for (int i = 0; i < 5; i++) {
		printf("bad address %d: %ld %ld %ld %ld\n", i, negative(syscall(SYS_open, bad[i], O_RDONLY)), negative(syscall(SYS_readlink, bad[i], buffer, 8)),
		       negative(syscall(SYS_stat, bad[i], &st)), negative(syscall(SYS_faccessat, AT_FDCWD, bad[i], F_OK)));
	}
	/* The same page, readable. */
	mprotect(pages + 4096, 4096, PROT_READ | PROT_WRITE);
	strcpy(cut, "/proc/self/exe");
	say("across two pages", "", negative(access(cut, X_OK)));
}

int main(int argc, char **argv)
{
	char own[64];

	snprintf(own, sizeof(own), "/proc/%d/exe", getpid());
	const char *paths[][2] = { { "/proc/self/exe", "/proc/self/exe" }, { "/proc/thread-self/exe", "/proc/thread-self/exe" }, { own, "/proc/PID/exe" } };

	for (int i = 0; i < 3; i++) {
		link_of(paths[i][0], paths[i][1]);
		looks(paths[i][0], paths[i][1]);
	}
	link_of("/proc/self/exe2", "another");
	link_of("/dev/stdin/", "not a link");
	char device[32];
	snprintf(device, sizeof(device), "/dev/ublkc%d", getpid());
	looks(device, "no device");
	looks("/dev/null/x", "no folder");
	bad_addresses();
	return 0;
}
