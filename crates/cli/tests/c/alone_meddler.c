/* An object to preload that does not leave programs alone: one call more with each close(2). */
#include <sys/syscall.h>
#include <unistd.h>

int close(int fd)
{
	syscall(SYS_getppid);
	return syscall(SYS_close, fd);
}
