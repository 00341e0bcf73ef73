/*
 * The clients of net_chaos.c: connections that send bytes derived from their own name, and at
 * random are half closed, reset or closed; each byte that returns is checked. They run in one
 * thread, by epoll.
 */
struct client {
	int fd;
	uint32_t name;
	int wants, sent, received, end;
};
enum { HALF_CLOSES, RESETS, CLOSES };
static uint64_t client_rng;

static void open_one(struct client *client, int ep, uint32_t name)
{
	struct epoll_event event = { EPOLLIN | EPOLLOUT | EPOLLET, { .ptr = client } };
	int one = 1;

	*client = (struct client){ .fd = socket(AF_INET, SOCK_STREAM, 0), .name = name, .wants = 1 + rng(&client_rng) % MOST };
	/* Most of them run to the end. */
	client->end = rng(&client_rng) % 8 ? HALF_CLOSES : rng(&client_rng) % 2 ? RESETS : CLOSES;
	if (rng(&client_rng) % 3 == 0)
		client->wants = rng(&client_rng) % 64;
	if (connect(client->fd, (void *)&addr, sizeof(addr)))
		wrong("connect", errno, 0);
	setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	fcntl(client->fd, F_SETFL, O_NONBLOCK);
	epoll_ctl(ep, EPOLL_CTL_ADD, client->fd, &event);
}

/* Whether the connection is over. */
static int send_some(struct client *client)
{
	struct linger linger = { 1, 0 };
	char bytes[3000];
	int i, n = client->wants - client->sent;

	if (n > 0) {
		n = n < (int)sizeof(bytes) ? n : (int)sizeof(bytes);
		n = 1 + rng(&client_rng) % n;
		for (i = 0; i < n; i++)
			bytes[i] = byte_of(client->name, client->sent + i);
		n = send(client->fd, bytes, n, MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN)
			wrong("send", errno, 0);
		client->sent += n > 0 ? n : 0;
		if (client->sent < client->wants && n > 0)
			return rng(&client_rng) % 4 ? send_some(client) : 0;
	}
	if (client->sent < client->wants || client->wants < 0)
		return 0;
	if (client->end == RESETS)
		setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	if (client->end != HALF_CLOSES)
		return 1;
	shutdown(client->fd, SHUT_WR);
	client->wants = -1 - client->wants;
	return 0;
}

static int receive_some(struct client *client)
{
	char bytes[8192];
	int i, n;

	while ((n = recv(client->fd, bytes, sizeof(bytes), 0)) > 0) {
		for (i = 0; i < n; i++)
			if (bytes[i] != byte_of(client->name, client->received + i))
				wrong("byte", client->received + i, client->name);
		client->received += n;
	}
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n < 0)
		wrong("recv", errno, 0);
	if (client->wants >= 0)
		wrong("the end came early", client->received, client->wants);
	if (client->received != client->sent)
		wrong("bytes", client->received, client->sent);
	return 1;
}

static void *ask(void *unused)
{
	static struct client clients[AT_ONCE];
	struct epoll_event events[AT_ONCE];
	int ep = epoll_create1(0), opened = 0, over = 0, i, n;

	for (; opened < AT_ONCE && opened < connections; opened++)
		open_one(&clients[opened], ep, opened);
	while (over < connections) {
		n = epoll_wait(ep, events, AT_ONCE, 20000);
		if (n <= 0)
			wrong("no answer, connections that are over", over, connections);
		for (i = 0; i < n; i++) {
			struct client *client = events[i].data.ptr;

			if (!receive_some(client) && !send_some(client)) {
				struct epoll_event again = { EPOLLIN | EPOLLOUT | EPOLLET, { .ptr = client } };

				/* More to send than was sent: it is tried again. */
				if (client->wants > client->sent)
					epoll_ctl(ep, EPOLL_CTL_MOD, client->fd, &again);
				continue;
			}
			close(client->fd);
			over++;
			if (opened < connections)
				open_one(client, ep, opened++);
		}
	}
	return 0;
}
