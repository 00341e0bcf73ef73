/*
 * What the kernel refuses to do with a ring's descriptor: to read and write it, and to send it
 * through a socket, which the ring itself could hold. Other descriptors are not affected.
 */
#include "robust_ring.h"
#include <sys/socket.h>
#include <sys/uio.h>

static char bytes[8];
static struct iovec part = { bytes, 8 };

static void transfers(int fd)
{
	check("read", negative(read(fd, bytes, 8)), -EINVAL);
	check("read of nothing", negative(read(fd, bytes, 0)), -EINVAL);
	check("write", negative(write(fd, bytes, 8)), -EINVAL);
	check("readv", negative(readv(fd, &part, 1)), -EINVAL);
	check("writev", negative(writev(fd, &part, 1)), -EINVAL);
	check("pread", negative(pread(fd, bytes, 8, 0)), -ESPIPE);
	check("pwrite", negative(pwrite(fd, bytes, 8, 0)), -ESPIPE);
	check("lseek", negative(lseek(fd, 0, SEEK_CUR)), -ESPIPE);
}

static char control[CMSG_SPACE(8)] __attribute__((aligned(8)));

static struct msghdr passing(int a, int b)
{
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control };
	struct cmsghdr *h = (void *)control;
	int n = b < 0 ? 1 : 2;

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(4 * n);
	m.msg_controllen = CMSG_SPACE(4 * n);
	memcpy(CMSG_DATA(h), (int[]){ a, b }, 4 * n);
	return m;
}

static int sent(int fd, int a, int b)
{
	struct msghdr m = passing(a, b);

	return negative(sendmsg(fd, &m, MSG_DONTWAIT));
}

static void messages(struct ring *r)
{
	int s[2], file = open("/dev/null", O_RDWR), unconnected = socket(AF_UNIX, SOCK_STREAM, 0);

	check("sockets", socketpair(AF_UNIX, SOCK_DGRAM, 0, s), 0);
	check("a ring", sent(s[0], r->fd, -1), -EINVAL);
	check("a ring behind a file", sent(s[0], file, r->fd), -EINVAL);
	check("a ring before a file", sent(s[0], r->fd, file), -EINVAL);
	check("not connected", sent(unconnected, r->fd, -1), -EINVAL);
	check("no socket", sent(file, r->fd, -1), -ENOTSOCK);
	check("nothing came", negative(recv(s[1], bytes, 8, MSG_DONTWAIT)), -EAGAIN);
	check("a file", sent(s[0], file, -1), 8);
	check("it came", recv(s[1], bytes, 8, MSG_DONTWAIT), 8);

	struct mmsghdr several[3] = { { passing(file, -1) }, { passing(file, -1) }, { passing(file, -1) } };

	several[0].msg_hdr.msg_controllen = 0;
	several[2].msg_hdr.msg_controllen = 0;
	passing(r->fd, -1);
	check("the one before it", sendmmsg(s[0], several, 3, MSG_DONTWAIT), 1);
	check("it came", recv(s[1], bytes, 8, MSG_DONTWAIT), 8);
	check("no other", negative(recv(s[1], bytes, 8, MSG_DONTWAIT)), -EAGAIN);
	check("the first", negative(sendmmsg(s[0], several + 1, 2, MSG_DONTWAIT)), -EINVAL);
	/* The socket is held by the ring alone, and would hold the ring. */
	check("registered", register_call(r->fd, 2, s, 2), 0);
	check("a ring", sent(s[0], r->fd, -1), -EINVAL);
	close(s[0]);
	close(s[1]);
	close(file);
	close(unconnected);
}

/* The number is another file's now, also where libc has closed it unseen. */
static void other_file(int number)
{
	int p[2];

	pipe(p);
	check("dup2", dup2(p[1], number), number);
	check("written", write(number, "x", 1), 1);
	close(number);
	check("dup2", dup2(p[0], number), number);
	check("read", read(number, bytes, 1), 1);
	close(number);
	close(p[0]);
	close(p[1]);
}

static int cleaned;

static void clean(void *arg)
{
	cleaned = 1;
}

static void *reads_for_ever(void *arg)
{
	char byte;

	pthread_cleanup_push(clean, 0);
	read(*(int *)arg, &byte, 1);
	pthread_cleanup_pop(0);
	return 0;
}

/* read() is a cancellation point still. */
static void cancelled(void)
{
	pthread_t thread;
	int p[2];

	pipe(p);
	pthread_create(&thread, 0, reads_for_ever, p);
	sleep_ms(20);
	pthread_cancel(thread);
	pthread_join(thread, 0);
	check("cleaned up", cleaned, 1);
	close(p[0]);
	close(p[1]);
}

int main(void)
{
	block_if_asked();
	struct ring r = new_ring(8);
	int copy = dup(r.fd);

	section = "transfers";
	transfers(r.fd);
	section = "of a duplicate";
	transfers(copy);
	section = "messages";
	messages(&r);
	works(&r);
	section = "another file";
	other_file(copy);
	section = "a cancelled reader";
	cancelled();
	works(&r);
	end_ring(&r);
	return finish();
}
