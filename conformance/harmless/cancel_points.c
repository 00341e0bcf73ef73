/*
 * pthread_cancel at libc's cancellation points: threads that wait in one, that come to one when the
 * cancel is pending already, and that may be cancelled at any instruction. Each case is one line;
 * the outcome is compared with that of the same program elsewhere. With an argument the process has
 * a ring, where it can get one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONG = 1000 };

static int empty[2], full[2], pair[2], full_pair[2], listener, epoll_fd, queue, locked;
static pid_t child;
static pthread_t sleeper;
static sem_t semaphore;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static char buffer[1 << 16];
static struct iovec vector = { buffer, sizeof(buffer) };

static struct timespec later(void)
{
	struct timespec at;

	clock_gettime(CLOCK_REALTIME, &at);
	at.tv_sec += LONG;
	return at;
}

static void do_read(void) { read(empty[0], buffer, 1); }
static void do_readv(void) { readv(empty[0], &vector, 1); }
static void do_write(void) { write(full[1], buffer, sizeof(buffer)); }
static void do_writev(void) { writev(full[1], &vector, 1); }
static void do_recv(void) { recv(pair[0], buffer, 1, 0); }
static void do_recvfrom(void) { recvfrom(pair[0], buffer, 1, 0, 0, 0); }
static void do_recvmsg(void) { struct msghdr m = { .msg_iov = &vector, .msg_iovlen = 1 }; recvmsg(pair[0], &m, 0); }
static void do_recvmmsg(void) { struct mmsghdr m = { { .msg_iov = &vector, .msg_iovlen = 1 } }; recvmmsg(pair[0], &m, 1, 0, 0); }
static void do_send(void) { send(full_pair[0], buffer, sizeof(buffer), 0); }
static void do_sendto(void) { sendto(full_pair[0], buffer, sizeof(buffer), 0, 0, 0); }
static void do_sendmsg(void) { struct msghdr m = { .msg_iov = &vector, .msg_iovlen = 1 }; sendmsg(full_pair[0], &m, 0); }
static void do_accept(void) { accept(listener, 0, 0); }
static void do_accept4(void) { accept4(listener, 0, 0, SOCK_CLOEXEC); }
static void do_poll(void) { struct pollfd p = { empty[0], POLLIN }; poll(&p, 1, -1); }
static void do_ppoll(void) { struct pollfd p = { empty[0], POLLIN }; ppoll(&p, 1, 0, 0); }
static void do_select(void) { fd_set s; FD_ZERO(&s); FD_SET(empty[0], &s); select(empty[0] + 1, &s, 0, 0, 0); }
static void do_pselect(void) { fd_set s; FD_ZERO(&s); FD_SET(empty[0], &s); pselect(empty[0] + 1, &s, 0, 0, 0, 0); }
static void do_epoll_wait(void) { struct epoll_event e; epoll_wait(epoll_fd, &e, 1, -1); }
static void do_epoll_pwait(void) { struct epoll_event e; epoll_pwait(epoll_fd, &e, 1, -1, 0); }
static void do_nanosleep(void) { struct timespec t = { LONG }; nanosleep(&t, 0); }
static void do_clock_nanosleep(void) { struct timespec t = { LONG }; clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0); }
static void do_sleep(void) { sleep(LONG); }
static void do_usleep(void) { usleep(LONG * 1000000u); }
static void do_pause(void) { pause(); }
static void do_sigsuspend(void) { sigset_t s; sigemptyset(&s); sigsuspend(&s); }
static void do_sigwait(void) { sigset_t s; int n; sigemptyset(&s); sigaddset(&s, SIGUSR1); sigwait(&s, &n); }
static void do_sigwaitinfo(void) { sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR1); sigwaitinfo(&s, 0); }
static void do_sigtimedwait(void) { sigset_t s; struct timespec t = { LONG }; sigemptyset(&s); sigaddset(&s, SIGUSR1); sigtimedwait(&s, 0, &t); }
static void do_waitpid(void) { waitpid(child, 0, 0); }
static void do_wait(void) { wait(0); }
static void do_waitid(void) { siginfo_t i; waitid(P_PID, child, &i, WEXITED); }
static void do_wait4(void) { wait4(child, 0, 0, 0); }
static void do_join(void) { pthread_join(sleeper, 0); }
static void do_sem_wait(void) { sem_wait(&semaphore); }
static void do_sem_timedwait(void) { struct timespec t = later(); sem_timedwait(&semaphore, &t); }
static void do_cond_wait(void) { pthread_mutex_lock(&mutex); pthread_cond_wait(&condition, &mutex); }
static void do_cond_timedwait(void) { struct timespec t = later(); pthread_mutex_lock(&mutex); pthread_cond_timedwait(&condition, &mutex, &t); }
static void do_open(void) { open("fifo", O_RDONLY); }
static void do_openat(void) { openat(AT_FDCWD, "fifo", O_WRONLY); }
static void do_setlkw(void) { struct flock l = { .l_type = F_WRLCK }; int f = open("locked", O_RDWR | O_CLOEXEC); fcntl(f, F_OFD_SETLKW, &l); }
static void do_msgrcv(void) { struct { long type; char text[8]; } m; msgrcv(queue, &m, 8, 0, 0); }
static void do_system(void) { system("exec sleep 1000"); }
static void do_testcancel(void) { for (;;) { pthread_testcancel(); sched_yield(); } }

struct point { const char *name; void (*call)(void); };

#define POINT(name) { #name, do_##name }
static const struct point points[] = {
	POINT(read), POINT(readv), POINT(write), POINT(writev), POINT(recv), POINT(recvfrom), POINT(recvmsg), POINT(recvmmsg),
	POINT(send), POINT(sendto), POINT(sendmsg), POINT(accept), POINT(accept4), POINT(poll), POINT(ppoll), POINT(select),
	POINT(pselect), POINT(epoll_wait), POINT(epoll_pwait), POINT(nanosleep), POINT(clock_nanosleep), POINT(sleep), POINT(usleep),
	POINT(pause), POINT(sigsuspend), POINT(sigwait), POINT(sigwaitinfo), POINT(sigtimedwait), POINT(waitpid), POINT(wait),
	POINT(waitid), POINT(wait4), POINT(join), POINT(sem_wait), POINT(sem_timedwait), POINT(cond_wait), POINT(cond_timedwait),
	POINT(open), POINT(openat), POINT(setlkw), POINT(msgrcv), POINT(system), POINT(testcancel),
};

enum how { WAITS, PENDING, ASYNCHRONOUS };
static const char *const hows[] = { "waits", "pending", "asynchronous" };

struct visit { const struct point *point; enum how how; int is_ready, may_go, is_cleaned; };

static void clean(void *arg)
{
	((struct visit *)arg)->is_cleaned = 1;
	pthread_mutex_trylock(&mutex);
	pthread_mutex_unlock(&mutex);
}

static void *visits(void *arg)
{
	struct visit *v = arg;
	volatile int on_stack[64] = { 0 };

	pthread_cleanup_push(clean, v);
	if (v->how == ASYNCHRONOUS)
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
	if (v->how == PENDING)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, 0);
	__atomic_store_n(&v->is_ready, 1, __ATOMIC_RELEASE);
	if (v->how == PENDING) {
		while (!__atomic_load_n(&v->may_go, __ATOMIC_ACQUIRE))
			sched_yield();
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, 0);
	}
	v->point->call();
	on_stack[0]++;
	pthread_cleanup_pop(0);
	return (void *)(long)-errno;
}

static void *sleeps(void *arg)
{
	for (;;)
		nanosleep(&(struct timespec){ LONG }, 0);
	return arg;
}

static void fill(int fd)
{
	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (write(fd, buffer, sizeof(buffer)) > 0 || errno != EAGAIN || write(fd, buffer, 1) > 0)
		;
	fcntl(fd, F_SETFL, 0);
}

static void prepare(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct epoll_event event = { .events = EPOLLIN };

	pipe(empty);
	pipe(full);
	fill(full[1]);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	socketpair(AF_UNIX, SOCK_STREAM, 0, full_pair);
	fill(full_pair[0]);
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	bind(listener, (void *)&address, sizeof(sa_family_t));
	listen(listener, 1);
	epoll_fd = epoll_create1(0);
	epoll_ctl(epoll_fd, EPOLL_CTL_ADD, empty[0], &event);
	queue = msgget(IPC_PRIVATE, 0600);
	mkfifo("fifo", 0600);
	/* A child of system(3) whose thread is cancelled early goes on: it must not keep the lock. */
	locked = open("locked", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	fcntl(locked, F_OFD_SETLKW, &(struct flock){ .l_type = F_WRLCK });
	sem_init(&semaphore, 0, 0);
	pthread_create(&sleeper, 0, sleeps, 0);
	child = fork();
	if (!child)
		for (;;)
			pause();
}

static void visit(const struct point *point, enum how how)
{
	struct visit v = { point, how };
	pthread_t thread;
	void *result;

	alarm(60);
	pthread_create(&thread, 0, visits, &v);
	while (!__atomic_load_n(&v.is_ready, __ATOMIC_ACQUIRE))
		sched_yield();
	if (how != PENDING)
		usleep(5000);
	pthread_cancel(thread);
	__atomic_store_n(&v.may_go, 1, __ATOMIC_RELEASE);
	pthread_join(thread, &result);
	printf("%s %s: ", point->name, hows[how]);
	if (result == PTHREAD_CANCELED)
		printf("cancelled, cleaned %d\n", v.is_cleaned);
	else
		printf("returned, %s\n", strerror(-(long)result));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	unsigned params[30] = { 0 };
	sigset_t signals;

	if (argc > 1 && syscall(SYS_io_uring_setup, 8, params) < 0)
		fprintf(stderr, "no ring: %s\n", strerror(errno));
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, 0);
	alarm(60);
	prepare();
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++)
		for (enum how how = WAITS; how <= ASYNCHRONOUS; how++)
			visit(&points[i], how);
	kill(child, SIGKILL);
	msgctl(queue, IPC_RMID, 0);
	return 0;
}
