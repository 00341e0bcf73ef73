/*
 * The ring's descriptor: mapped, polled, duplicated, inherited, closed; and numbers that are closed
 * or reused under requests in flight.
 */
#include "robust_ring.h"
#include "epoll_wait.h"
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>

static long raw6(long nr, long a, long b, long c, long d, long e, long f)
{
	long ret;
	register long r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;

	asm volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return ret;
}

static __attribute__((noinline)) long raw_mmap(void *addr, size_t len, int prot, int flags, int fd, long off)
{
	long ret;
	register long r10 asm("r10") = flags, r8 asm("r8") = fd, r9 asm("r9") = off;

	asm volatile("mov $9, %%eax\n\tsyscall" : "=&a"(ret) : "D"(addr), "S"(len), "d"(prot), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return ret;
}

/* Makes this a program with its own io_uring call sites. */
static __attribute__((noinline)) long raw_enter(int fd, unsigned submit, unsigned min, unsigned flags)
{
	long ret;
	register long r10 asm("r10") = flags, r8 asm("r8") = 0, r9 asm("r9") = 0;

	asm volatile("mov $426, %%eax\n\tsyscall" : "=&a"(ret) : "D"(fd), "S"(submit), "d"(min), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return ret;
}

static long libc_mmap(void *addr, size_t len, int prot, int flags, int fd, long off)
{
	void *at = mmap(addr, len, prot, flags, fd, off);

	return at == MAP_FAILED ? -errno : (long)at;
}

static int is_address(long r)
{
	return r < -4095 || r > 0;
}

#define RW (PROT_READ | PROT_WRITE)

static void mappings_by(const char *how, long (*map)(void *, size_t, int, int, int, long))
{
	section = how;
	struct ring r = new_ring(8);
	long sq, cq, sqes, fixed;

	sq = map(0, r.len, RW, MAP_SHARED | MAP_POPULATE, r.fd, 0);
	cq = map(0, r.len, RW, MAP_SHARED, r.fd, 0x8000000);
	sqes = map(0, r.sqes_len, RW, MAP_SHARED, r.fd, OFF_SQES);
	is_true("SQ ring", is_address(sq));
	is_true("CQ ring", is_address(cq));
	is_true("SQEs", is_address(sqes));
	*(uint32_t *)(sq + r.p.cq.flags) = 1;
	check("both are the same", *(uint32_t *)(cq + r.p.cq.flags), 1);
	check("and as before", *(uint32_t *)(r.rings + r.p.cq.flags), 1);
	*(uint32_t *)(sq + r.p.cq.flags) = 0;

	/* The kernel chooses the address: caches of some CPUs would not agree otherwise. */
	fixed = (long)mmap(0, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check("MAP_FIXED", map((void *)(fixed + 8192), r.len, RW, MAP_SHARED | MAP_FIXED, r.fd, 0), -EINVAL);
	check("with a hint", map((void *)(fixed + (1 << 20)), r.len, RW, MAP_SHARED, r.fd, 0), -EINVAL);
	munmap((void *)fixed, 1 << 16);

	check("unknown offset", map(0, 4096, RW, MAP_SHARED, r.fd, 0x18000000), -ENOMEM);
	check("another", map(0, 4096, RW, MAP_SHARED, r.fd, 0x40000000), -ENOMEM);
	check("no buffer ring", map(0, 4096, RW, MAP_SHARED, r.fd, 0x80000000), -ENOMEM);
	check("odd offset", map(0, 4096, RW, MAP_SHARED, r.fd, 100), -EINVAL);
	check("no length", map(0, 0, RW, MAP_SHARED, r.fd, 0), -EINVAL);
	is_true("longer", is_address(map(0, r.len + 8192, RW, MAP_SHARED, r.fd, 0)));
	is_true("longer SQEs", is_address(map(0, r.sqes_len + 8192, RW, MAP_SHARED, r.fd, OFF_SQES)));
	is_true("private", is_address(map(0, r.len, RW, MAP_PRIVATE, r.fd, 0)));
	is_true("read-only", is_address(map(0, r.len, PROT_READ, MAP_SHARED, r.fd, 0)));
	push(&r, SQE(.opcode = NOP));
	check("an inline enter", raw_enter(r.fd, 1, 1, GETEVENTS), 1);
	take(&r);

	/* A mapping outlives the descriptor, and may be all that is left. */
	unmap_ring(&r);
	r.rings = (char *)sq;
	r.sqes = (void *)sqes;
	r.sq_head = (void *)(r.rings + r.p.sq.head);
	r.sq_tail = (void *)(r.rings + r.p.sq.tail);
	r.sq_array = (void *)(r.rings + r.p.sq.array);
	r.cq_head = (void *)(r.rings + r.p.cq.head);
	r.cq_tail = (void *)(r.rings + r.p.cq.tail);
	r.cqes = (void *)(r.rings + r.p.cq.cqes);
	works(&r);
	close(r.fd);
	check("readable after close", *(uint32_t *)(sq + r.p.cq.mask), r.p.cq_entries - 1);
	check("not mapped anew", map(0, 4096, RW, MAP_SHARED, r.fd, 0), -EBADF);
	unmap_ring(&r);
}

static int polled(int fd, int events, int ms)
{
	struct pollfd p = { fd, events };
	int n = poll(&p, 1, ms);

	return n < 0 ? -errno : p.revents;
}

static int selected(int fd)
{
	fd_set in, out;
	struct timeval tv = { 0 };

	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(fd, &in);
	FD_SET(fd, &out);
	select(fd + 1, &in, &out, 0, &tv);
	return FD_ISSET(fd, &in) | FD_ISSET(fd, &out) << 1;
}

static void polling(void)
{
	section = "poll and select";
	struct ring r = new_ring(8);

	check("idle", polled(r.fd, POLLIN | POLLOUT, 0), POLLOUT);
	check("idle by select", selected(r.fd), 2);
	push(&r, SQE(.opcode = NOP));
	enter_call(r.fd, 1, 0, 0, 0, 0);
	check("a CQE", polled(r.fd, POLLIN | POLLOUT, 0), POLLIN | POLLOUT);
	check("a CQE by select", selected(r.fd), 3);
	take(&r);
	check("none again", polled(r.fd, POLLIN | POLLOUT, 0), POLLOUT);
	check("none by select", selected(r.fd), 2);
	check("no wait without", polled(r.fd, POLLIN, 20), 0);
	/* By a timer that fires during the wait. */
	uint64_t ts[2] = { 0, 20000000 };
	submit(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1));
	check("a timer ends poll", polled(r.fd, POLLIN, 2000), POLLIN);
	check("its result", take(&r).res, -ETIME);
	check("none", polled(r.fd, POLLIN, 0), 0);
	/* A ring that was never polled before has CQEs already. */
	struct ring s = new_ring(8);
	submit(&s, SQE(.opcode = NOP));
	check("first asked with a CQE waiting", polled(s.fd, POLLIN, 0), POLLIN);
	end_ring(&s);
	end_ring(&r);
}

static int waited(int epfd, int ms)
{
	struct epoll_event e;

	return wait_on_epoll(epfd, &e, 1, ms);
}

static void epolling(void)
{
	section = "epoll";
	struct ring r = new_ring(64);
	int ep = epoll_create1(0), outer = epoll_create1(0);
	struct epoll_event e = { EPOLLIN };

	check("add", epoll_ctl(ep, EPOLL_CTL_ADD, r.fd, &e), 0);
	check("nothing yet", waited(ep, 0), 0);
	submit(&r, SQE(.opcode = NOP));
	check("level", waited(ep, 0), 1);
	check("still", waited(ep, 0), 1);
	take(&r);
	check("taken", waited(ep, 0), 0);

	/* Edge-triggered: an edge for each post, whether or not the previous one was consumed. */
	e.events = EPOLLIN | EPOLLET;
	epoll_ctl(ep, EPOLL_CTL_MOD, r.fd, &e);
	check("nothing", waited(ep, 0), 0);
	for (int i = 0; i < 5; i++) {
		submit(&r, SQE(.opcode = NOP));
		check("an edge", waited(ep, 0), 1);
		check("one only", waited(ep, 0), 0);
	}
	for (int i = 0; i < 5; i++)
		take(&r);
	check("no edge by taking", waited(ep, 0), 0);

	/* Nested. */
	e.events = EPOLLIN;
	epoll_ctl(ep, EPOLL_CTL_MOD, r.fd, &e);
	check("nest", epoll_ctl(outer, EPOLL_CTL_ADD, ep, &e), 0);
	check("nothing", waited(outer, 0), 0);
	submit(&r, SQE(.opcode = NOP));
	check("through both", waited(outer, 0), 1);
	take(&r);
	check("nothing again", waited(outer, 0), 0);
	check("the epoll set by poll", polled(ep, POLLIN, 0), 0);

	/* One-shot. */
	e.events = EPOLLIN | EPOLLONESHOT;
	epoll_ctl(ep, EPOLL_CTL_MOD, r.fd, &e);
	submit(&r, SQE(.opcode = NOP));
	check("one shot", waited(ep, 0), 1);
	check("spent", waited(ep, 0), 0);
	take(&r);
	close(outer);
	close(ep);
	end_ring(&r);
}

/*
 * A program that takes CQEs without a call and waits by epoll in between gets no spurious wake-up.
 */
static void no_busy_loop(void)
{
	section = "no busy loop";
	struct ring r = new_ring(64);
	int ep = epoll_create1(0), returns = 0, got = 0;
	struct epoll_event e = { EPOLLIN };
	uint64_t ts[2] = { 0, 1000000 }, end;

	epoll_ctl(ep, EPOLL_CTL_ADD, r.fd, &e);
	/* One timer that fires 100 times. */
	submit(&r, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1, .op_flags = 64, .off = 100));
	end = now_us() + 100000000;
	while (got < 100 && now_us() < end) {
		if (waited(ep, 1000) > 0)
			returns++;
		while (waiting(&r)) {
			take(&r);
			got++;
		}
		if (*r.sq_flags & SQ_CQ_OVERFLOW)
			enter_call(r.fd, 0, 0, GETEVENTS, 0, 0);
	}
	check("CQEs", got, 100);
	is_true("wake-ups no more than a few beside", returns <= 130);
	for (int i = 0; i < 20; i++)
		returns += waited(ep, 1);
	is_true("none when idle", returns <= 130);
	printf("epoll_wait returned %d times for 100 CQEs\n", returns);
	close(ep);
	end_ring(&r);
}

static void ring_polls_ring(void)
{
	section = "a ring polls another";
	struct ring a = new_ring(8), b = new_ring(8);

	submit(&a, SQE(.opcode = POLL_ADD, .fd = b.fd, .op_flags = POLLIN, .user_data = 1));
	check("nothing", comes(&a, 20), 0);
	submit(&b, SQE(.opcode = NOP));
	check("the other has something", next(&a), POLLIN);
	check("and still", run(&a, SQE(.opcode = POLL_ADD, .fd = b.fd, .op_flags = POLLIN)), POLLIN);
	take(&b);
	submit(&a, SQE(.opcode = POLL_ADD, .fd = b.fd, .len = POLL_MULTISHOT, .op_flags = POLLIN, .user_data = 2));
	submit(&b, SQE(.opcode = NOP));
	check("multishot", next(&a), POLLIN);
	take(&b);
	end_ring(&b);
	end_ring(&a);
}

static void duplicates(void)
{
	section = "duplicates";
	struct ring r = new_ring(8);
	int original = r.fd;
	int copies[] = { dup(r.fd), fcntl(r.fd, F_DUPFD, 100), fcntl(r.fd, F_DUPFD_CLOEXEC, 200), dup2(r.fd, 300), dup3(r.fd, 301, O_CLOEXEC),
			 raw6(SYS_dup, r.fd, 0, 0, 0, 0, 0), raw6(SYS_fcntl, r.fd, F_DUPFD, 400, 0, 0, 0), raw6(SYS_dup2, r.fd, 500, 0, 0, 0, 0) };
	int n = sizeof(copies) / sizeof(copies[0]);

	for (int i = 0; i < n; i++) {
		is_true("made", copies[i] >= 0);
		r.fd = copies[i];
		works(&r);
		is_true("mapped", is_address(libc_mmap(0, r.len, RW, MAP_SHARED, r.fd, 0)));
	}
	close(original);
	for (int i = 0; i < n - 1; i++) {
		works(&r);
		close(copies[i]);
		check("a closed one", enter_call(copies[i], 0, 0, 0, 0, 0), -EBADF);
	}
	works(&r);
	/* Another file with the same number is no ring. */
	int null = open("/dev/null", O_RDWR);
	dup2(null, r.fd);
	check("replaced", enter_call(r.fd, 0, 0, 0, 0, 0), -EOPNOTSUPP);
	close(null);
	close(r.fd);
	unmap_ring(&r);
	check("close of nothing", negative(close(r.fd)), -EBADF);
}

static void after_close(void)
{
	section = "requests end with the last close";
	struct ring r = new_ring(8);
	int p[2], copy = dup(r.fd);

	pipe(p);
	submit(&r, SQE(.opcode = POLL_ADD, .fd = p[0], .op_flags = POLLIN));
	submit(&r, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&copy) * 0 + ADDR(p), .len = 1, .flags = FORCE_ASYNC));
	close(r.fd);
	r.fd = copy;
	works(&r);
	close(r.fd);
	/* The pipe's last reader ends with the requests. */
	close(p[0]);
	signal(SIGPIPE, SIG_IGN);
	int gone = 0;
	for (int i = 0; i < 500 && !gone; i++) {
		gone = write(p[1], "x", 1) < 0 && errno == EPIPE;
		if (!gone)
			sleep_ms(2);
	}
	check("what they held is closed", gone, 1);
	close(p[1]);
	unmap_ring(&r);
}

/* Numbers closed under requests in flight. */
static void number_reuse(void)
{
	static char text[3][8];
	section = "numbers reused";

	for (int how = 0; how < 4; how++) {
		struct ring r = new_ring(8);
		int old[2], other[2], number;

		socketpair(AF_UNIX, SOCK_STREAM, 0, old);
		socketpair(AF_UNIX, SOCK_STREAM, 0, other);
		number = old[0];
		memset(text, 0, sizeof(text));
		submit(&r, SQE(.opcode = RECV, .fd = number, .addr = ADDR(text[0]), .len = 8, .user_data = 1));
		submit(&r, SQE(.opcode = POLL_ADD, .fd = number, .op_flags = POLLIN, .user_data = 2));
		submit(&r, SQE(.opcode = READ, .fd = number, .addr = ADDR(text[1]), .len = 8, .user_data = 3, .flags = FORCE_ASYNC));
		sleep_ms(20);
		switch (how) {
		case 0: close(number); break;
		case 1: dup2(other[0], number); break;
		case 2: raw6(SYS_close, number, 0, 0, 0, 0, 0); break;
		case 3: check("close by the ring", run(&r, SQE(.opcode = 19, .fd = number)), 0); break;
		}
		if (how != 1) {
			int again = dup2(other[0], number);
			check("the number is used again", again, number);
		}
		write(other[1], "wrong", 5);
		check("the new file's data concerns nobody", comes(&r, 50), 0);
		write(old[1], "a", 1);
		is_true("an answer", comes(&r, 60000));
		write(old[1], "b", 1);
		sleep_ms(20);
		write(old[1], "c", 1);
		int got = 0;
		for (int i = 0; i < 3; i++) {
			struct cqe cqe = next_cqe(&r);

			got |= 1 << cqe.user_data;
			is_true("a result", cqe.res == 1);
		}
		check("all three", got, 14);
		is_true("from the old file", strchr("abc", text[0][0]) && strchr("abc", text[1][0]));
		close(number);
		close(old[1]);
		close(other[0]);
		close(other[1]);
		end_ring(&r);
	}
}

static void close_everything(void)
{
	section = "close everything";
	for (int how = 0; how < 4; how++) {
		struct ring r = new_ring(8), s;
		int p[2];
		uint64_t ts[2] = { 0, 10000000 };

		pipe(p);
		submit(&r, SQE(.opcode = POLL_ADD, .fd = p[0], .op_flags = POLLIN));
		switch (how) {
		case 0:
			for (int fd = 3; fd < 1024; fd++)
				close(fd);
			break;
		case 1: close_range(3, ~0u, 0); break;
		case 2: closefrom(3); break;
		case 3: raw6(SYS_close_range, 3, ~0u, 0, 0, 0, 0); break;
		}
		check("the ring is closed", enter_call(r.fd, 0, 0, 0, 0, 0), -EBADF);
		unmap_ring(&r);
		s = new_ring(8);
		works(&s);
		pipe(p);
		submit(&s, SQE(.opcode = POLL_ADD, .fd = p[0], .op_flags = POLLIN));
		check("nothing yet", comes(&s, 10), 0);
		write(p[1], "x", 1);
		check("polled", next(&s), POLLIN);
		check("a timer", run(&s, SQE(.opcode = TIMEOUT, .addr = ADDR(ts), .len = 1)), -ETIME);
		char c = 0;
		check("a worker", run(&s, SQE(.opcode = READ, .fd = p[0], .addr = ADDR(&c), .len = 1, .flags = FORCE_ASYNC)), 1);
		end_ring(&s);
		close(p[0]);
		close(p[1]);
	}
}

int main(void)
{
	block_if_asked();
	mappings_by("mmap by libc", libc_mmap);
	mappings_by("mmap inline", raw_mmap);
	polling();
	epolling();
	no_busy_loop();
	ring_polls_ring();
	duplicates();
	after_close();
	number_reuse();
	close_everything();
	return finish();
}
