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
#include <sys/time.h>
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
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
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

static void show_change(const char *what, const char *shown, long result, const char *own)
{
	struct stat st = { 0 };

	stat(own, &st);
	printf("%s %s: %ld, then %o, %ld, %ld links\n", what, shown, result, st.st_mode, (long)st.st_mtime, (long)st.st_nlink);
}

/* Calls that change the file. The old ones by their numbers: libc makes others. */
static void changes(const char *path, const char *shown, const char *own)
{
	struct timespec times[2] = { { 1000, 0 }, { 2000, 0 } };
	struct timeval old[2] = { { 3000, 0 }, { 4000, 0 } };
	long oldest[2] = { 5000, 6000 };
	char link[64];

	snprintf(link, sizeof(link), "link-%d", getpid());
	show_change("chmod", shown, negative(syscall(SYS_chmod, path, 0750)), own);
	show_change("fchmodat", shown, negative(syscall(SYS_fchmodat, AT_FDCWD, path, 0755)), own);
	show_change("fchmodat2", shown, negative(syscall(SYS_fchmodat2, AT_FDCWD, path, 0700, 0)), own);
	say("fchmodat2 of the link", shown, negative(syscall(SYS_fchmodat2, AT_FDCWD, path, 0700, AT_SYMLINK_NOFOLLOW)) < 0);
	show_change("utimensat", shown, negative(syscall(SYS_utimensat, AT_FDCWD, path, times, 0)), own);
	show_change("utimes", shown, negative(syscall(SYS_utimes, path, old)), own);
	show_change("utime", shown, negative(syscall(SYS_utime, path, oldest)), own);
	show_change("futimesat", shown, negative(syscall(SYS_futimesat, AT_FDCWD, path, old)), own);
	show_change("chown", shown, negative(syscall(SYS_chown, path, getuid(), getgid())), own);
	show_change("fchownat", shown, negative(syscall(SYS_fchownat, AT_FDCWD, path, -1, getgid(), 0)), own);
	show_change("setxattr", shown, negative(setxattr(path, "user.one", "1", 1, 0)), own);
	say("getxattr", shown, negative(getxattr(own, "user.one", link + 32, 8)));
	show_change("removexattr", shown, negative(removexattr(path, "user.one")), own);
	show_change("truncate", shown, negative(truncate(path, 0)), own);
	show_change("linkat", shown, negative(linkat(AT_FDCWD, path, AT_FDCWD, link, AT_SYMLINK_FOLLOW)), own);
	unlink(link);
	say("linkat of the link", shown, negative(linkat(AT_FDCWD, path, AT_FDCWD, link, 0)));
	show_change("chmod", shown, negative(chmod(path, 0755)), own);
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
	/* As it is in the end. */
	chmod(argv[0], 0755);
	utimes(argv[0], (struct timeval[2]){ { 3000, 0 }, { 4000, 0 } });
	const char *paths[][2] = { { "/proc/self/exe", "/proc/self/exe" }, { "/proc/thread-self/exe", "/proc/thread-self/exe" }, { own, "/proc/PID/exe" } };

	for (int i = 0; i < 3; i++) {
		link_of(paths[i][0], paths[i][1]);
		looks(paths[i][0], paths[i][1]);
		changes(paths[i][0], paths[i][1], argv[0]);
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
