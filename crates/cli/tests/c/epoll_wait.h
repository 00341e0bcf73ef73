/*
 * Waiting on an epoll set that holds a ring. A request that completes on a thread of the kernel's
 * interrupts the task that submitted it, and epoll_wait(2) is not begun anew as poll(2) is: EINTR.
 */
#include <errno.h>
#include <sys/epoll.h>

static int wait_on_epoll(int ep, struct epoll_event *events, int n, int ms)
{
	int ready;

	do
		ready = epoll_wait(ep, events, n, ms);
	while (ready < 0 && errno == EINTR);
	return ready;
}
