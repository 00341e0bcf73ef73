/* One ring, several processes: made before fork(2), used by all. */
#include "robust_ring.h"

enum { CHILDREN = 4, EACH = 5000 };

/*
 * Memory that the processes share besides the ring. The lock is the program's own: every user of a
 * shared ring needs one.
 */
struct shared {
	pthread_mutex_t lock;
	uint32_t seen[CHILDREN + 1][EACH];
	uint32_t reaped, stage;
};

static struct shared *new_shared(void)
{
	struct shared *s = mmap(0, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t attr;

	if (s == MAP_FAILED)
		exit(1);
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&s->lock, &attr);
	return s;
}

static void lock(struct shared *s)
{
	if (pthread_mutex_lock(&s->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&s->lock);
}

static void say(struct shared *s, uint32_t stage)
{
	__atomic_store_n(&s->stage, stage, __ATOMIC_RELEASE);
}

static void until(struct shared *s, uint32_t stage)
{
	while (__atomic_load_n(&s->stage, __ATOMIC_ACQUIRE) < stage)
		sleep_ms(1);
}

static int ended(pid_t child)
{
	int status = -1;

	waitpid(child, &status, 0);
	return status;
}

/* The next CQE's user_data and result; waits for it inside the call. */
static uint64_t wait_cqe(struct ring *r, int *res)
{
	while (*r->cq_head == __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE)) {
		int n = enter_call(r->fd, 0, 1, GETEVENTS, 0, 0);

		if (n < 0 && n != -EINTR)
			return n;
	}
	struct cqe *cqe = &r->cqes[*r->cq_head & (r->p.cq_entries - 1)];
	uint64_t data = cqe->user_data;

	*res = cqe->res;
	__atomic_store_n(r->cq_head, *r->cq_head + 1, __ATOMIC_RELEASE);
	return data;
}

/*
 * Each waiter is woken by the other process: the maker by its child, a child by the maker, whose
 * request was armed long before.
 */
static void sleepers(void)
{
	struct ring r = new_ring(8);
	struct shared *s = new_shared();
	int res = 0, pipes[2];
	char byte;

	section = "a maker that sleeps";
	pid_t child = fork();

	if (!child) {
		sleep_ms(30);
		submit(&r, SQE(.opcode = NOP, .user_data = 1));
		_exit(failures);
	}
	check("the child's", wait_cqe(&r, &res), 1);
	check("child", ended(child), 0);

	section = "a child that sleeps";
	if (pipe(pipes))
		exit(1);
	submit(&r, SQE(.opcode = READ, .fd = pipes[0], .addr = ADDR(&byte), .len = 1, .user_data = 2));
	child = fork();
	if (!child) {
		say(s, 1);
		check("the maker's", wait_cqe(&r, &res), 2);
		check("its result", res, 1);
		submit(&r, SQE(.opcode = READ, .fd = pipes[0], .addr = ADDR(&byte), .len = 1, .user_data = 3));
		say(s, 2);
		check("its own", wait_cqe(&r, &res), 3);
		_exit(failures);
	}
	until(s, 1);
	sleep_ms(30);
	check("written", write(pipes[1], "a", 1), 1);
	until(s, 2);
	sleep_ms(30);
	check("written", write(pipes[1], "b", 1), 1);
	check("child", ended(child), 0);
	submit(&r, SQE(.opcode = NOP, .user_data = 4));
	check("after the child", wait_cqe(&r, &res), 4);
	end_ring(&r);
}

static void reap_what_is_there(struct ring *r, struct shared *s)
{
	while (*r->cq_head != __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE)) {
		struct cqe *cqe = &r->cqes[*r->cq_head & (r->p.cq_entries - 1)];
		uint32_t who = cqe->user_data >> 32, n = (uint32_t)cqe->user_data;

		is_true("a CQE of somebody", who <= CHILDREN && n < EACH);
		check("times seen before", s->seen[who % (CHILDREN + 1)][n % EACH]++, 0);
		s->reaped++;
		__atomic_store_n(r->cq_head, *r->cq_head + 1, __ATOMIC_RELEASE);
	}
}

static void work(struct ring *r, struct shared *s, uint64_t me)
{
	for (uint64_t i = 0; i < EACH; i++) {
		lock(s);
		submit(r, SQE(.opcode = NOP, .user_data = me << 32 | i));
		pthread_mutex_unlock(&s->lock);
		lock(s);
		reap_what_is_there(r, s);
		pthread_mutex_unlock(&s->lock);
	}
}

/* All submit, all reap: no CQE is lost or doubled. */
static void crowd(void)
{
	struct ring r = new_ring(64);
	struct shared *s = new_shared();
	pid_t children[CHILDREN];

	section = "a crowd";
	for (int i = 0; i < CHILDREN; i++)
		if (!(children[i] = fork())) {
			work(&r, s, i + 1);
			_exit(failures);
		}
	work(&r, s, 0);
	for (int i = 0; i < CHILDREN; i++)
		check("child", ended(children[i]), 0);
	reap_what_is_there(&r, s);
	check("reaped", s->reaped, (CHILDREN + 1) * EACH);
	end_ring(&r);
}

/* A process is killed at an arbitrary point; the others continue. */
static void victims(void)
{
	struct ring r = new_ring(64);
	struct shared *s = new_shared();

	section = "victims";
	for (int i = 0; i < 40; i++) {
		pid_t child = fork();

		if (!child)
			for (;;) {
				lock(s);
				submit(&r, SQE(.opcode = NOP));
				*r.cq_head = __atomic_load_n(r.cq_tail, __ATOMIC_ACQUIRE);
				pthread_mutex_unlock(&s->lock);
			}
		sleep_ms(1 + i % 5);
		kill(child, SIGKILL);
		check("killed", ended(child), SIGKILL);
		lock(s);
		/* SQEs that the victim had published and not submitted may be submitted or not. */
		enter_call(r.fd, 64, 0, 0, 0, 0);
		*r.cq_head = __atomic_load_n(r.cq_tail, __ATOMIC_ACQUIRE);
		submit(&r, SQE(.opcode = NOP, .user_data = 77));
		is_true("a CQE", *r.cq_head != __atomic_load_n(r.cq_tail, __ATOMIC_ACQUIRE));
		pthread_mutex_unlock(&s->lock);
	}
	end_ring(&r);
}

/* The maker has closed the ring; a child continues to use it. */
static void heirs(void)
{
	struct ring r = new_ring(8);
	struct shared *s = new_shared();
	int res = 0;

	section = "a forked child";
	pid_t child = fork();

	if (!child) {
		until(s, 1);
		submit(&r, SQE(.opcode = NOP, .user_data = 5));
		check("its own", wait_cqe(&r, &res), 5);
		_exit(failures);
	}
	end_ring(&r);
	say(s, 1);
	check("child", ended(child), 0);
}

/*
 * The time-outs of a child that has exited go on. The parent enters the ring after that, or waits
 * in it all the time.
 */
static void orphans(void)
{
	enum { ABS = 1, REALTIME = 8, ETIME_SUCCESS = 32, TENTH = 100000000 };
	static const uint32_t flags[] = { 0, ETIME_SUCCESS, ABS, ABS | REALTIME };
	struct ring r = new_ring(8);

	section = "time-outs of a child that exits";
	for (uint64_t i = 0; i < 8; i++) {
		uint32_t how = flags[i % 4];
		uint64_t since = now_us();
		int res = 0, waits = i >= 4;
		pid_t child = fork();

		if (!child) {
			struct timespec when = { 0, 0 };

			sleep_ms(waits ? 20 : 0);
			if (how & ABS)
				clock_gettime(how & REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC, &when);
			when.tv_nsec += TENTH;
			if (when.tv_nsec >= 1000000000)
				when.tv_nsec -= 1000000000, when.tv_sec++;
			submit(&r, SQE(.opcode = TIMEOUT, .fd = -1, .addr = ADDR(&when), .len = 1, .op_flags = how, .user_data = 30 + i));
			exit(failures);
		}
		if (!waits)
			check("child", ended(child), 0);
		check("its time-out", wait_cqe(&r, &res), 30 + i);
		check("result", res, -ETIME);
		is_true("not before its time", now_us() - since >= TENTH / 1000);
		if (waits)
			check("child", ended(child), 0);
	}
	end_ring(&r);
}

int main(void)
{
	block_if_asked();
	sleepers();
	crowd();
	victims();
	heirs();
	orphans();
	return failures != 0;
}
