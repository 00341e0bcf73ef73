/* Two connected TCP sockets on the loopback. */
#pragma once
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

static void tcp_pair(int fds[2])
{
	struct sockaddr_in addr = { AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(addr);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	bind(listener, (void *)&addr, sizeof(addr));
	listen(listener, 1);
	getsockname(listener, (void *)&addr, &len);
	fds[1] = socket(AF_INET, SOCK_STREAM, 0);
	connect(fds[1], (void *)&addr, sizeof(addr));
	fds[0] = accept(listener, 0, 0);
	setsockopt(fds[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	close(listener);
}
