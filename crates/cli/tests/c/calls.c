/* libc's syscall(): io_uring's numbers, others, six arguments, errno. */
#include "blocked.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>

#define CHECK(what) ((what) ? (void)0 : (printf("line %d: %s (errno %d)\n", __LINE__, #what, errno), exit(1)))

int main(void)
{
	struct pollfd nobody = { 99, POLLIN, 0 };
	sigset_t all;
	char *page;
	int fd;

	block_io_uring();
	errno = 0;
	CHECK(syscall(425, 1, NULL) == -1);
	printf("setup %s\n", errno == EPERM ? "kernel" : "engine");
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	CHECK(syscall(425, 1, NULL) == -1);
	printf("setup with all signals blocked %s\n", errno == EPERM ? "kernel" : "engine");

	CHECK(syscall(SYS_getpid) == getpid());
	fd = open("/proc/self/exe", O_RDONLY);
	page = (char *)syscall(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(page != MAP_FAILED && memcmp(page, "\177ELF", 4) == 0);
	errno = 0;
	CHECK(syscall(SYS_close, 9999) == -1 && errno == EBADF);
	errno = 0;
	CHECK(close(9999) == -1 && errno == EBADF);
	errno = 0;
	CHECK(syscall(100000) == -1 && errno == ENOSYS);
	CHECK(poll(&nobody, 1, 0) == 1 && nobody.revents == POLLNVAL);
	errno = 0;
	CHECK(poll((struct pollfd *)8, 1, 0) == -1 && errno == EFAULT);
	CHECK(dup2(fd, 77) == 77 && fcntl(77, F_GETFD) == 0);
	errno = 0;
	CHECK(dup2(9999, 77) == -1 && errno == EBADF && fcntl(77, F_GETFD) == 0);
	CHECK(fcntl(fd, F_DUPFD_CLOEXEC, 200) == 200 && fcntl(200, F_GETFD) == FD_CLOEXEC);
	CHECK(close_range(60, 250, 0) == 0 && fcntl(77, F_GETFD) == -1 && fcntl(200, F_GETFD) == -1);
	CHECK(close(fd) == 0);
	puts("calls ok");
	return 0;
}
