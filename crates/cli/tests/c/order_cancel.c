/*
 * The CQEs of requests that are cancelled and of what cancels them, in order: each kind of request,
 * each way to cancel it, alone and among others. T, U, V: the requests; their links: t, u, v; L:
 * their link timeouts; C: the cancel.
 */
#include "order_ring.h"
#include "tcp_pair.h"

enum { NOP_OP = 0, POLL_REMOVE = 7, TIMEOUT_REMOVE = 12, FUTEX_WAIT = 51, WAITID = 50, EPOLL_WAIT = 59, READ_MULTISHOT = 49 };
enum { HARDLINK = 8 };
enum { REGISTER_FILES = 2, REGISTER_SYNC_CANCEL = 24 };
enum { BY_ALL = 1, BY_FD = 2, BY_ANY = 4, BY_FD_FIXED = 8, BY_USERDATA = 16, BY_OP = 32 };
enum { TIMEOUT_UPDATE = 2, LINK_TIMEOUT_UPDATE = 16, TIMEOUT_MULTISHOT = 64, POLL_UPDATE_EVENTS = 2, POLL_UPDATE_USER_DATA = 4 };

static uint64_t later[2] = { 3600, 0 }, much_later[2] = { 7200, 0 }, soon[2] = { 0, 10000000 };
static uint32_t futex_word;
static char byte[64];
static int files[2];
static pid_t child;

struct target {
	const char *name;
	struct sqe sqe;
	/*
	 * What it is on: p a pipe, s a socket, l a listener, e an epoll set, f a registered pipe, w a
	 * child, n nothing.
	 */
	char file;
};

static const struct target targets[] = {
	{ "poll", { .opcode = POLL_ADD, .op_flags = POLLIN }, 'p' },
	{ "multishot poll", { .opcode = POLL_ADD, .op_flags = POLLIN, .len = POLL_MULTISHOT }, 'p' },
	{ "read", { .opcode = READ, .off = -1, .addr = (uint64_t)byte, .len = 1 }, 'p' },
	{ "read of a registered file", { .opcode = READ, .off = -1, .addr = (uint64_t)byte, .len = 1, .flags = FIXED_FILE }, 'f' },
	{ "recv", { .opcode = RECV, .addr = (uint64_t)byte, .len = 1 }, 's' },
	{ "multishot recv", { .opcode = RECV, .ioprio = 2, .flags = BUFFER_SELECT }, 's' },
	{ "accept", { .opcode = ACCEPT }, 'l' },
	{ "multishot accept", { .opcode = ACCEPT, .ioprio = 1 }, 'l' },
	{ "timeout", { .opcode = TIMEOUT, .addr = (uint64_t)later, .len = 1 }, 'n' },
	{ "counting timeout", { .opcode = TIMEOUT, .addr = (uint64_t)later, .len = 1, .off = 100 }, 'n' },
	{ "multishot timeout", { .opcode = TIMEOUT, .addr = (uint64_t)later, .len = 1, .op_flags = TIMEOUT_MULTISHOT }, 'n' },
	{ "multishot read", { .opcode = READ_MULTISHOT, .off = -1, .flags = BUFFER_SELECT }, 'p' },
	{ "epoll wait", { .opcode = EPOLL_WAIT, .addr = (uint64_t)byte, .len = 1 }, 'e' },
	{ "waitid", { .opcode = WAITID, .len = P_PID, .file_index = WEXITED }, 'w' },
	{ "futex wait", { .opcode = FUTEX_WAIT, .fd = 2, .addr = (uint64_t)&futex_word, .addr3 = ~0u }, 'n' },
};
#define TARGETS (sizeof(targets) / sizeof(targets[0]))

static const struct way {
	const char *name;
	/* Its opcode; ASYNC_CANCEL: with these flags. */
	int opcode, flags;
} ways[] = {
	{ "cancel by user_data", ASYNC_CANCEL, 0 },
	{ "cancel all by user_data", ASYNC_CANCEL, BY_ALL },
	{ "cancel by fd", ASYNC_CANCEL, BY_FD },
	{ "cancel all by fd", ASYNC_CANCEL, BY_FD | BY_ALL },
	{ "cancel any", ASYNC_CANCEL, BY_ANY },
	{ "cancel by opcode", ASYNC_CANCEL, BY_OP },
	{ "cancel all by opcode", ASYNC_CANCEL, BY_OP | BY_ALL },
	{ "poll remove", POLL_REMOVE, 0 },
	{ "poll update of user_data", POLL_REMOVE, POLL_UPDATE_USER_DATA },
	{ "poll update of events", POLL_REMOVE, POLL_UPDATE_EVENTS },
	{ "timeout remove", TIMEOUT_REMOVE, 0 },
	{ "timeout update", TIMEOUT_REMOVE, TIMEOUT_UPDATE },
	{ "sync cancel by user_data", -1, 0 },
	{ "sync cancel all by fd", -1, BY_FD | BY_ALL },
	{ "sync cancel any", -1, BY_ANY },
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* How the targets stand in their chains. */
static const struct chain {
	const char *name;
	/* Targets of the same kind; flags of each; NOPs behind each; a link timeout behind each. */
	int count, flags, nops, timeout;
} chains[] = {
	{ "alone", 1, 0, 0, 0 },
	{ "three", 3, 0, 0, 0 },
	{ "linked", 1, LINK, 2, 0 },
	{ "hard linked", 1, HARDLINK, 2, 0 },
	{ "three linked", 3, LINK, 1, 0 },
	{ "with a link timeout", 1, LINK, 0, 1 },
	{ "with a link timeout and a link", 1, LINK, 1, 1 },
	{ "three with link timeouts", 3, LINK, 0, 1 },
};
#define CHAINS (sizeof(chains) / sizeof(chains[0]))

/* Pipes, sockets and so on, made once: nothing ever arrives on them. */
static int quiet_fd(char kind)
{
	static int fds[128];
	int pair[2];

	if (fds[kind])
		return fds[kind];
	switch (kind) {
	case 'p':
		pipe(pair);
		break;
	case 's':
		tcp_pair(pair);
		break;
	case 'l':
		pair[0] = socket(AF_INET, SOCK_STREAM, 0);
		listen(pair[0], 4);
		break;
	case 'e':
		pair[0] = epoll_create1(0);
		break;
	case 'f':
		return 0;
	default:
		return -1;
	}
	return fds[kind] = pair[0];
}

static void push_target(struct ring *r, const struct target *target, const struct chain *chain, int nth, void *timeout)
{
	struct sqe sqe = target->sqe;

	if (target->file == 'w')
		sqe.fd = child;
	else if (target->file != 'n')
		sqe.fd = quiet_fd(target->file);
	sqe.flags |= chain->flags;
	sqe.user_data = 'T' + nth;
	push(r, sqe);
	if (chain->timeout)
		push(r, SQE(.opcode = LINK_TIMEOUT, .addr = ADDR(timeout), .len = 1, .flags = chain->nops ? LINK : 0, .user_data = 'L'));
	for (int i = 0; i < chain->nops; i++)
		push(r, SQE(.opcode = NOP_OP, .flags = i + 1 < chain->nops ? LINK : 0, .user_data = 't' + nth));
}

static struct sqe cancel_of(const struct target *target, const struct way *way)
{
	struct sqe sqe = { .opcode = way->opcode, .addr = 'T', .user_data = 'C' };

	switch (way->opcode) {
	case ASYNC_CANCEL:
		sqe.op_flags = way->flags;
		if (way->flags & (BY_FD | BY_ANY | BY_OP))
			sqe.addr = 0;
		if (way->flags & BY_FD) {
			sqe.fd = quiet_fd(target->file);
			sqe.op_flags |= target->file == 'f' ? BY_FD_FIXED : 0;
		}
		if (way->flags & BY_OP)
			sqe.len = target->sqe.opcode;
		break;
	case POLL_REMOVE:
		sqe.len = way->flags;
		sqe.off = way->flags & POLL_UPDATE_USER_DATA ? 'N' : 0;
		sqe.op_flags = way->flags & POLL_UPDATE_EVENTS ? POLLIN | POLLPRI : 0;
		break;
	case TIMEOUT_REMOVE:
		sqe.op_flags = way->flags;
		sqe.off = way->flags ? ADDR(much_later) : 0;
		break;
	}
	return sqe;
}

static int sync_cancel(struct ring *r, const struct target *target, const struct way *way)
{
	struct { uint64_t addr; int32_t fd; uint32_t flags; int64_t timeout[2]; uint8_t opcode, pad[7]; uint64_t pad2[3]; } reg = {
		.addr = way->flags ? 0 : 'T', .fd = -1, .flags = way->flags, .timeout = { 1, 0 },
	};

	if (way->flags & BY_FD) {
		reg.fd = quiet_fd(target->file);
		reg.flags |= target->file == 'f' ? BY_FD_FIXED : 0;
	}
	return register_call(r->fd, REGISTER_SYNC_CANCEL, &reg, 1);
}

static struct ring ring_of(unsigned setup)
{
	struct ring r = new_ring_with(32, setup | SETUP_CQSIZE, 4096);

	files[0] = quiet_fd('p');
	check("registered file", register_call(r.fd, REGISTER_FILES, files, 1), 0);
	provide(&r, 4, 64);
	return r;
}

static void cancels(int which, const struct target *target, const struct way *way, const struct chain *chain, int at_once)
{
	struct ring r = ring_of(ring_kinds[which].setup);

	printf("%s, %s, %s, %s%s:", ring_kinds[which].name, target->name, chain->name, way->name, at_once ? ", at once" : "");
	for (int i = 0; i < chain->count; i++)
		push_target(&r, target, chain, i, later);
	if (way->opcode < 0) {
		submit_all(&r);
		printf(" =%d", sync_cancel(&r, target, way));
	} else {
		if (!at_once)
			submit_all(&r);
		push(&r, cancel_of(target, way));
		submit_all(&r);
	}
	print_cqes(&r);
	end_ring(&r);
}

/* A link timeout that expires. */
static void expires(int which, const struct target *target, const struct chain *chain)
{
	struct ring r = ring_of(ring_kinds[which].setup);

	printf("%s, %s, %s, expires:", ring_kinds[which].name, target->name, chain->name);
	for (int i = 0; i < chain->count; i++)
		push_target(&r, target, chain, i, soon);
	submit_all(&r);
	while (waiting(&r) < 2 * chain->count)
		wait_ms(&r, 2 * chain->count, 60000);
	print_cqes(&r);
	end_ring(&r);
}

/* Whether the way says anything about this kind of request. */
static int concerns(const struct target *target, const struct way *way)
{
	if (way->opcode == POLL_REMOVE)
		return target->sqe.opcode == POLL_ADD || target->sqe.opcode == READ;
	if (way->opcode == TIMEOUT_REMOVE)
		return target->sqe.opcode == TIMEOUT || target->sqe.opcode == READ;
	return 1;
}

int main(int argc, char **argv)
{
	child = fork();
	if (child == 0)
		for (;;)
			pause();
	block_if_asked();
	for (int which = 0; which < RING_KINDS; which++)
		for (const struct target *target = targets; target < targets + TARGETS; target++)
			for (const struct chain *chain = chains; chain < chains + CHAINS; chain++) {
				if (which == 1 || (argc > 1 && strcmp(argv[1], target->name)))
					continue;
				for (const struct way *way = ways; way < ways + WAYS; way++)
					if (concerns(target, way)) {
						cancels(which, target, way, chain, 0);
						if (way->opcode >= 0)
							cancels(which, target, way, chain, 1);
					}
				/* Three timers may expire one by one. */
				if (chain->timeout && chain->count == 1)
					expires(which, target, chain);
			}
	kill(child, SIGKILL);
	return failures > 0;
}
