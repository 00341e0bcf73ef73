/*
 * A ublk server and its client in one process: "ublk MODE", where MODE names the test. Exit status
 * 0: all as expected.
 */
#include "ublk.h"

enum { LANES = 8, LANE = DISK / LANES };

static unsigned dice(unsigned *seed, unsigned sides)
{
	*seed = *seed * 1103515245 + 12345;
	return (*seed >> 16) % sides;
}

/*
 * Random requests, one at a time in each of eight parts of the disk, compared with a copy of the
 * expected content.
 */
static void use_device(struct client *c, unsigned rounds)
{
	static char model[DISK];
	char *buffers[LANES];
	struct { unsigned op; uint64_t at; unsigned len; } running[LANES];
	unsigned seed = 1, sent = 0, ended = 0;

	memcpy(model, disk, DISK);
	for (int i = 0; i < LANES; i++)
		buffers[i] = aligned_alloc(4096, MAX_BYTES);
	for (unsigned lane = 0; lane < LANES; lane++)
		running[lane].op = -1;
	while (ended < rounds) {
		for (unsigned lane = 0; lane < LANES && sent < rounds; lane++) {
			if (running[lane].op != -1u)
				continue;
			unsigned op = dice(&seed, 12), len = (dice(&seed, MAX_BYTES / 512) + 1) * 512;
			uint64_t at = lane * (uint64_t)LANE + dice(&seed, (LANE - len) / 512 + 1) * 512;

			op = op < 5 ? READ : op < 10 ? WRITE : op == 10 ? DISCARD : FLUSH;
			if (op == FLUSH)
				at = len = 0;
			if (op == WRITE)
				for (unsigned i = 0; i < len; i++)
					buffers[lane][i] = model[at + i] = sent + i / 3;
			if (op == DISCARD)
				memset(model + at, 0, len);
			if (op == READ)
				memset(buffers[lane], 0x5a, len);
			running[lane].op = op;
			running[lane].at = at;
			running[lane].len = len;
			client_push(c, op, at / 512, len / 512, buffers[lane], lane);
			sent++;
		}
		struct cqe cqe = ring_wait(&c->ring);
		unsigned lane = cqe.user_data, op = running[lane].op;

		check(cqe.res, op == READ || op == WRITE ? running[lane].len : 0);
		if (op == READ)
			check(memcmp(buffers[lane], model + running[lane].at, running[lane].len), 0);
		running[lane].op = -1;
		ended++;
	}
	check(memcmp(model, disk, DISK), 0);
	for (int i = 0; i < LANES; i++)
		free(buffers[i]);
}

/* ADD_DEV to DEL_DEV. */
static void whole_life(uint64_t flags, unsigned ring_flags, int uses_fixed)
{
	struct server server = { .flags = flags, .ring_flags = ring_flags, .uses_fixed = uses_fixed, .depth = DEPTH };
	struct client client;

	control_open();
	check(add_device(flags, DEPTH), 0);
	check(set_params(), 0);
	check(device_state(), DEAD);
	server_start(&server);
	check(control(START_DEV, 0, 0, getpid()), 0);
	check(device_state(), LIVE);
	client_open(&client, 32);
	use_device(&client, 3000);
	client_close(&client);
	check(control(STOP_DEV, 0, 0, 0), 0);
	check(device_state(), DEAD);
	pthread_join(server.thread, 0);
	check(server.seen > 2000, 1);
	check(server.asked > 0, (flags & F_NEED_GET_DATA) != 0);
	check(control(DEL_DEV, 0, 0, 0), 0);
	check(device_state(), -ENODEV);
	check(open("/dev/ublkc0", O_RDWR), -1);
	check(errno, ENOENT);
}

/* A server that dies with requests in flight, and another one that takes over. */
static void recover(void)
{
	struct server first = { .flags = F_RECOVERY | F_REISSUE, .depth = DEPTH, .life = 20 }, second = first;
	struct client client;
	static char data[DEPTH][4096];
	int left = 64;

	second.life = 0;
	control_open();
	check(add_device(first.flags, DEPTH), 0);
	check(set_params(), 0);
	server_start(&first);
	check(control(START_DEV, 0, 0, 1000), 0);
	client_open(&client, 64);
	for (int i = 0; i < left; i++)
		client_push(&client, WRITE, i * 8, 8, memset(data[i % DEPTH], 1, 4096), i);
	ring_enter(&client.ring, 0);
	pthread_join(first.thread, 0);
	for (int i = 0; i < 10000 && device_state() != QUIESCED; i++)
		usleep(1000);
	check(device_state(), QUIESCED);
	int res = control(START_RECOVERY, 0, 0, 0);
	for (int i = 0; i < 10000 && res == -EBUSY; i++) {
		usleep(1000);
		res = control(START_RECOVERY, 0, 0, 0);
	}
	check(res, 0);
	server_start(&second);
	check(control(END_RECOVERY, 0, 0, 2000), 0);
	check(device_state(), LIVE);
	for (; left > 0; left--)
		check(ring_wait(&client.ring).res, 4096);
	for (int i = 0; i < 64 * 4096; i++)
		if (disk[i] != 1) {
			check(disk[i], 1);
			break;
		}
	client_close(&client);
	check(control(STOP_DEV, 0, 0, 0), 0);
	pthread_join(second.thread, 0);
	check(control(DEL_DEV, 0, 0, 0), 0);
}

/* A server that dies and leaves nothing behind. */
static void die_for_good(void)
{
	struct server server = { .depth = DEPTH, .life = 3 };
	struct client client;
	static char data[4096];
	int failed = 0;

	control_open();
	check(add_device(0, DEPTH), 0);
	check(set_params(), 0);
	server_start(&server);
	check(control(START_DEV, 0, 0, 1), 0);
	client_open(&client, 32);
	for (int i = 0; i < 32; i++)
		client_push(&client, READ, 0, 8, data, i);
	ring_enter(&client.ring, 0);
	for (int i = 0; i < 32; i++) {
		int res = ring_wait(&client.ring).res;

		check(res == 4096 || res == -EIO, 1);
		failed += res == -EIO;
	}
	check(failed >= 29, 1);
	pthread_join(server.thread, 0);
	check(client_run(&client, READ, 0, 8, data), -EIO);
	/* The state follows the answers. */
	while (device_state() == LIVE)
		usleep(1000);
	check(device_state(), DEAD);
	check(control(DEL_DEV, 0, 0, 0), 0);
}

static struct ring other_ring;

static int io_op(struct ring *r, int fd, uint32_t op, unsigned q, unsigned tag, uint64_t addr)
{
	struct io_cmd cmd = { q, tag, 512, addr };
	struct sqe *sqe = ring_sqe(r);
	struct cqe cqe;

	sqe->opcode = URING_CMD;
	sqe->fd = fd;
	sqe->off = op;
	sqe->user_data = tag;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
	ring_push(r);
	ring_enter(r, 0);
	return ring_next(r, &cqe) ? cqe.res : 1000;
}

static void *from_another_thread(void *arg)
{
	return (void *)(long)io_op(&other_ring, *(int *)arg, IOWR(FETCH, 16), 0, 0, 1);
}

/* Refused commands. */
static void refuse(void)
{
	struct ring ring;
	uint64_t features = 0;
	pthread_t thread;
	void *res;
	char byte;

	check(open("/dev/ublkc0", O_RDWR), -1);
	check(errno, ENOENT);
	check(open("/dev/ublk-contro", O_RDWR), -1);
	check(errno, ENOENT);
	control_open();
	check(read(control_fd, &byte, 1), -1);
	check(control(GET_FEATURES, &features, 8, 0), -ENODEV);
	check(control_op(0x80207513, (struct ctrl_cmd){ .len = 8, .addr = ADDR(&features) }), 0);
	check(features & 0xfe, 0xfe);
	check(control_op(0x80207513, (struct ctrl_cmd){ .len = 8, .addr = 8 }), -EFAULT);
	check(control(STOP_DEV, 0, 0, 0), -ENODEV);
	check(control_op(0x76 << 8 | ADD_DEV, (struct ctrl_cmd){ 0 }), -EOPNOTSUPP);
	check(add_device(0, 2), 0);
	check(add_device(0, 2), -EEXIST);
	check(set_params(), 0);
	check(control(START_DEV, 0, 0, 0), -EINVAL);

	/* A control command needs a big SQE, an I/O command does not. */
	ring_open(&ring, 8, 0);
	ring_open(&other_ring, 8, 0);
	int res_now = io_op(&ring, control_fd, STOP_DEV, 0, 0, 0);
	check(res_now == 1000 ? ring_wait(&ring).res : res_now, -EINVAL);
	check(io_op(&ring, 1, STOP_DEV, 0, 0, 0), -EOPNOTSUPP);
	check(io_op(&ring, 12345, STOP_DEV, 0, 0, 0), -EBADF);

	int device = open_device();
	check(open("/dev/ublkc0", O_RDWR), -1);
	check(errno, EBUSY);
	check(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, device, 0) == MAP_FAILED, 1);
	check(errno, EPERM);
	check(mmap(0, 8192, PROT_READ, MAP_SHARED, device, 0) == MAP_FAILED, 1);
	check(errno, EINVAL);
	check(mmap(0, 4096, PROT_READ, MAP_SHARED, device, 98304) == MAP_FAILED, 1);
	check(errno, EINVAL);
	check(mmap(0, 4096, PROT_READ, MAP_SHARED, control_fd, 0) == MAP_FAILED, 1);

	check(io_op(&ring, device, IOWR(FETCH, 16), 0, 0, 0), -EINVAL);
	check(io_op(&ring, device, IOWR(FETCH, 16), 1, 0, 1), -EINVAL);
	check(io_op(&ring, device, IOWR(FETCH, 16), 0, 2, 1), -EINVAL);
	check(io_op(&ring, device, 'v' << 8 | FETCH, 0, 0, 1), -EOPNOTSUPP);
	check(io_op(&ring, device, FETCH, 0, 0, 1), 1000);
	check(io_op(&ring, device, IOWR(FETCH, 16), 0, 0, 1), -EBUSY);
	check(io_op(&ring, device, IOWR(COMMIT, 16), 0, 0, 1), -EBUSY);
	check(io_op(&ring, device, IOWR(COMMIT, 16), 0, 1, 1), -EINVAL);
	check(io_op(&ring, device, IOWR(NEED_GET_DATA, 16), 0, 1, 1), -EINVAL);
	pthread_create(&thread, 0, from_another_thread, &device);
	pthread_join(thread, &res);
	check((long)res, -EINVAL);

	/*
	 * Duplicates are the same device; it is closed with the last of them and of its commands.
	 */
	int twin = dup(device);
	close(device);
	check(io_op(&ring, twin, IOWR(FETCH, 16), 0, 0, 1), -EBUSY);
	check(open("/dev/ublkc0", O_RDWR), -1);
	close(twin);
	check(open("/dev/ublkc0", O_RDWR), -1);
	check(errno, EBUSY);
	ring_close(&ring);
	device = open_device();
	close(device);
	check(control(DEL_DEV, 0, 0, 0), 0);
}

/* A child of a program with a live device, which stays the parent's. */
static void forked(void)
{
	struct server server = { .depth = DEPTH };
	struct client client;
	static char data[4096];
	int status;

	control_open();
	check(add_device(0, DEPTH), 0);
	check(set_params(), 0);
	server_start(&server);
	check(control(START_DEV, 0, 0, 1), 0);
	client_open(&client, 8);
	for (int i = 0; i < 20; i++) {
		check(client_run(&client, WRITE, 0, 8, data), 4096);
		pid_t child = fork();
		if (child == 0)
			_exit(open("/dev/null", O_RDONLY) < 0);
		check(waitpid(child, &status, 0), child);
		check(status, 0);
	}
	client_close(&client);
	check(control(STOP_DEV, 0, 0, 0), 0);
	pthread_join(server.thread, 0);
	check(control(DEL_DEV, 0, 0, 0), 0);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	if (!strcmp(mode, "plain"))
		whole_life(0, COOP_TASKRUN | SINGLE_ISSUER | DEFER_TASKRUN, 1);
	else if (!strcmp(mode, "number"))
		whole_life(0, 0, 0);
	else if (!strcmp(mode, "get-data"))
		whole_life(F_NEED_GET_DATA, COOP_TASKRUN, 1);
	else if (!strcmp(mode, "user-copy"))
		whole_life(F_USER_COPY, COOP_TASKRUN | SINGLE_ISSUER | DEFER_TASKRUN, 0);
	else if (!strcmp(mode, "recover"))
		recover();
	else if (!strcmp(mode, "die"))
		die_for_good();
	else if (!strcmp(mode, "refuse"))
		refuse();
	else if (!strcmp(mode, "forked"))
		forked();
	else
		failures = 1;
	return failures != 0;
}
