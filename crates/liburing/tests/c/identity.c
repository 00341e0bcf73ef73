/* Rights are given up by libc's functions and by syscall(), while a worker exists that was started
 * with them: a request acts with those of then. */
#include "check.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define NOBODY 65534

static char secret[] = "/tmp/liburing-secret-XXXXXX";

static int open_by(struct io_uring *ring, unsigned flags)
{
	struct io_uring_sqe *sqe = next_sqe(ring, 1);
	int fd;

	io_uring_prep_openat(sqe, AT_FDCWD, secret, O_RDONLY, 0);
	io_uring_sqe_set_flags(sqe, flags);
	sqe->user_data = 1;
	CHECK(io_uring_submit_and_wait(ring, 1) == 1);
	fd = reap(ring, 1);
	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static void opens(struct io_uring *ring, int want)
{
	EXPECT(open_by(ring, 0), want);
	EXPECT(open_by(ring, IOSQE_ASYNC), want);
	EXPECT(open_by(ring, IOSQE_ASYNC), want);
}

static void by_libc(struct io_uring *ring)
{
	EXPECT(setresuid(NOBODY, NOBODY, NOBODY), 0);
	opens(ring, -EACCES);
}

static void by_syscall(struct io_uring *ring)
{
	EXPECT(syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY), 0);
	opens(ring, -EACCES);
}

static void by_seteuid_and_back(struct io_uring *ring)
{
	EXPECT(seteuid(NOBODY), 0);
	opens(ring, -EACCES);
	EXPECT(seteuid(0), 0);
	opens(ring, 0);
}

static void by_setfsuid(struct io_uring *ring)
{
	EXPECT(setfsuid(NOBODY), 0);
	opens(ring, -EACCES);
	EXPECT(setfsuid(0), NOBODY);
	opens(ring, 0);
}

/* The file's owner is nobody by now: root needs a capability. */
static void by_capset(struct io_uring *ring)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];

	EXPECT(chown(secret, NOBODY, NOBODY), 0);
	EXPECT(syscall(SYS_capget, &header, data), 0);
	data[0].effective &= ~(1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH);
	EXPECT(syscall(SYS_capset, &header, data), 0);
	opens(ring, -EACCES);
}

static void with_ring(void (*give_up)(struct io_uring *ring))
{
	struct io_uring ring;
	int status;

	fflush(stdout);
	if (fork() == 0) {
		make_ring(&ring, 8, 0);
		opens(&ring, 0);
		give_up(&ring);
		exit(0);
	}
	CHECK(wait(&status) > 0);
	EXPECT(status, 0);
}

int main(void)
{
	int fd;

	if (geteuid() != 0) {
		printf("skipped: not root\n");
		return 0;
	}
	block_io_uring();
	fd = mkstemp(secret);
	CHECK(fd >= 0);
	close(fd);
	with_ring(by_libc);
	with_ring(by_syscall);
	with_ring(by_seteuid_and_back);
	with_ring(by_setfsuid);
	with_ring(by_capset);
	unlink(secret);
	return 0;
}
