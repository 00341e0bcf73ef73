/*
 * The answers of a ublk driver, case by case: "what => result" lines, the same from ublk_drv of
 * Linux 6.12 (as root, nothing else on the machine) and from the driver in user space. Newer
 * features and values of the machine (numbers of devices, addresses, tags) are not printed.
 */
#include "ublk.h"
#include <sys/ioctl.h>
#include <linux/fs.h>

static int is_ours;

static void say(const char *what, long result)
{
	printf("%s => %ld\n", what, result);
	fflush(stdout);
}
#define tell(call) say(#call, call)

static int add(unsigned id, unsigned info_id, unsigned queue, unsigned len, struct dev_info info)
{
	info.dev_id = info_id;
	return control_op(IOWR(ADD_DEV, 32), (struct ctrl_cmd){ id, queue, len, ADDR(&info) });
}
#define INFO(...) ((struct dev_info){ .nr_hw_queues = 1, .queue_depth = 2, .max_io_buf_bytes = MAX_BYTES, ##__VA_ARGS__ })

static int flags_of(uint64_t flags)
{
	struct dev_info info = INFO(.flags = flags);
	int res = control(ADD_DEV, &info, sizeof(info), 0);

	if (res == 0) {
		res = info.flags & 0xff;
		if (info.state || info.pid != -1)
			res += 100000;
		control(DEL_DEV, 0, 0, 0);
	}
	return res;
}

static struct params good_params(void)
{
	return (struct params){
		.len = sizeof(struct params), .types = 3, .attrs = 4, .logical_shift = 9, .physical_shift = 12, .opt_shift = 12, .min_shift = 9,
		.max_sectors = MAX_BYTES / 512, .dev_sectors = DISK / 512, .discard_granularity = 4096, .max_discard = DISK / 512,
		.max_zeroes = DISK / 512, .max_segments = 1,
	};
}
#define WITH(field, value) ({ struct params p = good_params(); p.field = value; control(SET_PARAMS, &p, sizeof(p), 0); })

static void probe_control(void)
{
	uint64_t features = 0, mask[4] = { 0 };
	struct params p;

	tell(add(0, 0, 0xffff, 63, INFO()));
	tell(add(0, 0, 0, 64, INFO()));
	tell(add(0, 1, 0xffff, 64, INFO()));
	tell(add(0, 0, 0xffff, 64, INFO(.queue_depth = 0)));
	tell(add(0, 0, 0xffff, 64, INFO(.queue_depth = 4097)));
	tell(add(0, 0, 0xffff, 64, INFO(.nr_hw_queues = 0)));
	tell(add(0, 0, 0xffff, 64, INFO(.nr_hw_queues = 4097)));
	tell(add(1 << 20, 1 << 20, 0xffff, 64, INFO()));
	tell(control_op(IOWR(ADD_DEV, 32), (struct ctrl_cmd){ 0, 0xffff, 64, 0 }));
	tell(control_op(IOWR(ADD_DEV, 32), (struct ctrl_cmd){ 0, 0xffff, 64, 8 }));
	tell(flags_of(0));
	tell(flags_of(F_NEED_GET_DATA));
	tell(flags_of(F_USER_COPY | F_NEED_GET_DATA));
	tell(flags_of(F_RECOVERY | F_REISSUE));
	tell(flags_of(1 << 0));
	tell(flags_of(1 << 5));
	tell(control_op(0x80207513, (struct ctrl_cmd){ .len = 8, .addr = ADDR(&features) }));
	tell((features & 0xfe) == 0xfe);
	tell(control_op(0x80207513, (struct ctrl_cmd){ .len = 7, .addr = ADDR(&features) }));
	tell(control_op(0x80207513, (struct ctrl_cmd){ .len = 8, .addr = 0 }));
	tell(control_op(0x80207513, (struct ctrl_cmd){ .len = 8, .addr = 8 }));
	tell(control_op(0xc0207613, (struct ctrl_cmd){ .len = 8, .addr = ADDR(&features) }));
	tell(control(GET_DEV_INFO, &features, 64, 0));
	tell(control(STOP_DEV, 0, 0, 0));
	tell(control(DEL_DEV, 0, 0, 0));

	tell(add_device(0, 2));
	tell(add_device(0, 2));
	tell(control_op(0x7530, (struct ctrl_cmd){ 0 }));
	tell(control_op(IOWR(0x30, 32), (struct ctrl_cmd){ .dev_id = 9 }));
	tell(control_op(GET_DEV_INFO, (struct ctrl_cmd){ .len = 64, .addr = ADDR(&p) }));
	tell(control_op(GET_DEV_INFO, (struct ctrl_cmd){ .len = 63, .addr = ADDR(&p) }));
	tell(control_op(GET_DEV_INFO, (struct ctrl_cmd){ .len = 64, .addr = 0 }));
	tell(control_op(GET_DEV_INFO, (struct ctrl_cmd){ .len = 64, .addr = 8 }));
	tell(control(GET_QUEUE_AFFINITY, mask, 32, 0));
	tell(control(GET_QUEUE_AFFINITY, mask, 32, 1));
	tell(control(GET_QUEUE_AFFINITY, mask, 31, 0));
	tell(control(GET_QUEUE_AFFINITY, 0, 32, 0));
	tell(mask[0] & 1);
	tell(WITH(logical_shift, 8));
	tell(WITH(logical_shift, 13));
	tell(WITH(physical_shift, 8));
	tell(WITH(max_sectors, 129));
	tell(WITH(max_sectors, 128));
	tell(WITH(discard_granularity, 0));
	tell(WITH(max_segments, 2));
	tell(WITH(types, 0));
	tell(WITH(types, 2));
	tell(WITH(types, 7));
	tell(WITH(types, 1 << 20));
	tell(WITH(len, 0));
	tell(WITH(len, 113));
	tell(WITH(len, 112));
	p = good_params();
	tell(control(SET_PARAMS, &p, 8, 0));
	tell(control(SET_PARAMS, 0, 112, 0));
	tell(control(SET_PARAMS, (void *)8, 112, 0));
	p.types = 0;
	tell(control(GET_PARAMS, &p, sizeof(p), 0));
	tell(p.types);
	tell(p.max_sectors);
	p.len = 0;
	tell(control(GET_PARAMS, &p, sizeof(p), 0));
	p.len = 200;
	tell(control(GET_PARAMS, &p, sizeof(p), 0));
	tell(WITH(types, 4));
	tell(control(START_DEV, 0, 0, 1));
	tell(set_params());
	tell(control(START_DEV, 0, 0, 0));
	tell(control(START_DEV, 0, 0, -1));
	tell(control(START_RECOVERY, 0, 0, 0));
	tell(control(STOP_DEV, 0, 0, 0));
	tell(control(DEL_DEV, 0, 0, 0));
	tell(control(DEL_DEV, 0, 0, 0));
}

/* A server, step by step -------------------------------------------------------------------- */

static struct ring queue;
static int device;
static uint64_t flags;
static struct io_desc *descriptors;
static char *buffers[2];

static void push_io(uint32_t op, unsigned q, unsigned tag, int result, uint64_t addr)
{
	struct io_cmd cmd = { q, tag, result, addr };
	struct sqe *sqe = ring_sqe(&queue);

	sqe->opcode = URING_CMD;
	sqe->fd = device;
	sqe->off = op;
	sqe->user_data = tag;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
	ring_push(&queue);
	ring_enter(&queue, 0);
}

/* Its result, 1000 while it waits. */
static int io(uint32_t op, unsigned q, unsigned tag, int result, uint64_t addr)
{
	struct cqe cqe;

	push_io(op, q, tag, result, addr);
	return ring_next(&queue, &cqe) ? cqe.res : 1000;
}

static uint64_t early(unsigned tag)
{
	return flags & (F_USER_COPY | F_NEED_GET_DATA) ? 0 : ADDR(buffers[tag]);
}

static void open_queue(void)
{
	device = open_device();
	descriptors = mmap(0, 4096, PROT_READ, MAP_SHARED, device, 0);
	if (descriptors == MAP_FAILED)
		die("mmap");
	ring_open(&queue, 16, 0);
}

static void close_queue(void)
{
	munmap(descriptors, 4096);
	ring_close(&queue);
	close(device);
}

static struct { int op, sectors; uint64_t sector; int result; } asked;
static char *client_buffer;

static int ask_ours(void)
{
	static struct client client;

	client_open(&client, 4);
	int res = client_run(&client, asked.op, asked.sector, asked.sectors, client_buffer);
	client_close(&client);
	return res;
}

static int ask_kernel(void)
{
	uint64_t range[2] = { asked.sector * 512, asked.sectors * 512ull };
	int fd = open("/dev/ublkb0", O_RDWR | O_DIRECT), res = -1;

	if (fd < 0)
		die("/dev/ublkb0");
	switch (asked.op) {
	case READ:
		res = pread(fd, client_buffer, range[1], range[0]);
		break;
	case WRITE:
		res = pwrite(fd, client_buffer, range[1], range[0]);
		break;
	case FLUSH:
		res = fsync(fd);
		break;
	case DISCARD:
		res = ioctl(fd, BLKDISCARD, range);
		break;
	}
	if (res < 0)
		res = -errno;
	close(fd);
	return res;
}

static void *ask(void *arg)
{
	asked.result = is_ours ? ask_ours() : ask_kernel();
	return 0;
}

static unsigned show_cqe(void)
{
	struct cqe cqe = ring_wait(&queue);
	unsigned tag = cqe.user_data;
	struct io_desc *d = &descriptors[tag];

	printf("  cqe %d, op %x, sector %lu, sectors %u, addr %s\n", cqe.res, d->op_flags, (long)d->sector, d->sectors,
	       !d->addr ? "none" : d->addr == ADDR(buffers[tag]) ? "its buffer" : "?");
	fflush(stdout);
	return tag;
}

/* A request, and the server's answer to each CQE that it causes: INT_MIN ends. */
#define GET (-1000000)
static void request(int op, uint64_t sector, int sectors, const int *answers)
{
	pthread_t thread;

	asked.op = op;
	asked.sector = sector;
	asked.sectors = sectors;
	memset(client_buffer, op == WRITE ? 'w' : 0, MAX_BYTES);
	printf("request %d at %lu, %d sectors\n", op, (long)sector, sectors);
	pthread_create(&thread, 0, ask, 0);
	for (; *answers != INT32_MIN; answers++) {
		unsigned tag = show_cqe();

		if (op == READ)
			memset(buffers[tag], 'r', MAX_BYTES);
		if (*answers == GET)
			push_io(IOWR(NEED_GET_DATA, 16), 0, tag, 0, ADDR(buffers[tag]));
		else
			push_io(IOWR(COMMIT, 16), 0, tag, *answers, flags & F_USER_COPY ? 0 : ADDR(buffers[tag]));
		if (op == WRITE && *answers > 0 && !(flags & F_USER_COPY))
			say("  first byte", buffers[tag][0]);
		if (*answers != GET)
			memset(buffers[tag], 0, MAX_BYTES);
	}
	pthread_join(thread, 0);
	say("  the client gets", asked.result);
	if (op == READ && asked.result > 0 && !(flags & F_USER_COPY))
		say("  its last byte", client_buffer[asked.result - 1]);
}
#define REQUEST(op, sector, sectors, ...) request(op, sector, sectors, (int[]){ __VA_ARGS__, INT32_MIN })

/* START_DEV or END_USER_RECOVERY, while another thread reads partitions. */
static int start(unsigned nr)
{
	struct ctrl_cmd cmd = { 0, 0xffff, 0, 0, getpid() };
	struct sqe *sqe = ring_sqe(&control_ring);
	struct cqe cqe;

	sqe->opcode = URING_CMD;
	sqe->fd = control_fd;
	sqe->off = IOWR(nr, 32);
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
	ring_push(&control_ring);
	ring_enter(&control_ring, 0);
	while (!ring_next(&control_ring, &cqe)) {
		struct cqe io;

		ring_enter(&queue, 0);
		if (ring_next(&queue, &io)) {
			unsigned tag = io.user_data, len = descriptors[tag].sectors * 512;

			memset(buffers[tag], 0, MAX_BYTES);
			push_io(IOWR(COMMIT, 16), 0, tag, len, flags & F_USER_COPY ? 0 : ADDR(buffers[tag]));
		} else {
			usleep(1000);
		}
	}
	return cqe.res;
}

static void live(uint64_t with)
{
	flags = with;
	say("ADD_DEV", add_device(flags, 2));
	say("SET_PARAMS", set_params());
	open_queue();
	for (unsigned tag = 0; tag < 2; tag++)
		say("FETCH_REQ", io(IOWR(FETCH, 16), 0, tag, 0, early(tag)));
	say("START_DEV", start(START_DEV));
}

/* STOP_DEV to DEL_DEV; `looks` is called in between. */
static void stop_and_look(int looks)
{
	struct cqe cqe;

	say("STOP_DEV", control(STOP_DEV, 0, 0, 0));
	say("state", device_state());
	for (int i = 0; i < 2; i++)
		say("the command's end", ring_wait(&queue).res);
	say("nothing more", ring_next(&queue, &cqe));
	if (looks) {
		tell(control(STOP_DEV, 0, 0, 0));
		tell(control(START_RECOVERY, 0, 0, 0));
		tell(set_params());
		tell(control(START_DEV, 0, 0, 0));
		say("no block device", open("/dev/ublkb0", O_RDWR) < 0);
	}
	close_queue();
	say("DEL_DEV", control(DEL_DEV, 0, 0, 0));
}

static void stop(void)
{
	stop_and_look(0);
}

static int info2(unsigned id, const char *path, unsigned path_len, unsigned len)
{
	char bytes[256] = { 0 };

	strcpy(bytes, path);
	return control_op(IOWR(0x12, 32), (struct ctrl_cmd){ id, 0xffff, len, ADDR(bytes), 0, path_len });
}

static void probe_paths(void)
{
	struct dev_info info;

	add_device(0, 2);
	tell(info2(0, "/dev/ublkc0", 12, 76));
	tell(info2(0, "/dev/ublkc0", 11, 75));
	tell(info2(0, "/dev/ublkc0", 12, 75));
	tell(info2(0, "/dev/ublkc0", 12, 11));
	tell(info2(0, "", 0, 64));
	tell(info2(0, "/dev/ublkc7", 12, 76));
	tell(info2(0, "/dev/null", 12, 76));
	tell(info2(0, "/dev/ublkc0", 5000, 64));
	tell(info2(1, "/dev/ublkc0", 12, 76));
	/* The path is checked for these commands only. */
	tell(control_op(IOWR(GET_DEV_INFO, 32), (struct ctrl_cmd){ 0, 0xffff, 64, ADDR(&info), 0, 12 }));
	tell(control_op(IOWR(0x14, 32), (struct ctrl_cmd){ 0, 0xffff }));
	tell(device_state());
}

/* Two queues: each with its own tags and descriptors. */
static void probe_queues(void)
{
	struct dev_info info = INFO(.nr_hw_queues = 2);
	char *second;

	flags = 0;
	tell(control(ADD_DEV, &info, sizeof(info), 0));
	tell(set_params());
	open_queue();
	second = mmap(0, 4096, PROT_READ, MAP_SHARED, device, 98304);
	tell(second != MAP_FAILED);
	tell(mmap(0, 4096, PROT_READ, MAP_SHARED, device, 2 * 98304) == MAP_FAILED ? -errno : 0);
	tell(io(IOWR(FETCH, 16), 0, 0, 0, early(0)));
	tell(io(IOWR(FETCH, 16), 0, 1, 0, early(1)));
	tell(io(IOWR(FETCH, 16), 0, 1, 0, early(1)));
	tell(io(IOWR(FETCH, 16), 1, 0, 0, early(0)));
	tell(device_state());
	tell(io(IOWR(FETCH, 16), 2, 1, 0, early(1)));
	tell(control(STOP_DEV, 0, 0, 0));
	for (int i = 0; i < 3; i++)
		say("the command's end", ring_wait(&queue).res);
	munmap(second, 4096);
	close_queue();
	tell(control(DEL_DEV, 0, 0, 0));
}

static void probe_fetch(void)
{
	flags = 0;
	add_device(0, 2);
	set_params();
	open_queue();
	tell(io(IOWR(FETCH, 16), 0, 0, 0, 0));
	tell(io(IOWR(FETCH, 16), 1, 0, 0, 1));
	tell(io(IOWR(FETCH, 16), 0, 2, 0, 1));
	tell(io(IOWR(FETCH, 16), 0, 0xffff, 0, 1));
	tell(io(0x7600 | FETCH, 0, 0, 0, 1));
	tell(io(IOWR(0x30, 16), 0, 0, 0, 1));
	tell(io(IOWR(COMMIT, 16), 0, 0, 0, 1));
	tell(io(IOWR(NEED_GET_DATA, 16), 0, 0, 0, 1));
	tell(io(FETCH, 0, 0, 0, early(0)));
	tell(io(IOWR(FETCH, 16), 0, 0, 0, 1));
	tell(io(IOWR(COMMIT, 16), 0, 0, 0, 1));
	tell(io(IOWR(NEED_GET_DATA, 16), 0, 0, 0, 1));
	tell(io(IOWR(FETCH, 16), 0, 1, 0, early(1)));
	tell(io(IOWR(FETCH, 16), 0, 1, 0, 1));
	tell(control(START_RECOVERY, 0, 0, 0));
	tell(control(END_RECOVERY, 0, 0, 1));
	tell(start(START_DEV));
	tell(start(START_DEV));
	tell(set_params());
	tell(device_state());
	tell(io(IOWR(FETCH, 16), 0, 0, 0, 1));
	tell(open("/dev/ublkc0", O_RDWR) < 0 ? -errno : 0);
	tell(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, device, 0) == MAP_FAILED ? -errno : 0);
	tell(mmap(0, 8192, PROT_READ, MAP_SHARED, device, 0) == MAP_FAILED ? -errno : 0);
	tell(mmap(0, 4096, PROT_READ, MAP_SHARED, device, 98304) == MAP_FAILED ? -errno : 0);
	stop();
}

static void probe_requests(void)
{
	live(0);
	REQUEST(READ, 8, 8, 4096);
	REQUEST(WRITE, 8, 8, 4096);
	REQUEST(READ, 16, 8, 0);
	REQUEST(READ, 16, 8, -28);
	REQUEST(WRITE, 16, 8, -28);
	REQUEST(WRITE, 16, 8, -95);
	REQUEST(WRITE, 16, 8, -110);
	REQUEST(READ, 16, 8, -61);
	REQUEST(READ, 16, 8, -1);
	REQUEST(READ, 16, 8, -22);
	REQUEST(READ, 16, 8, -12);
	REQUEST(READ, 16, 8, -19);
	REQUEST(READ, 16, 8, -84);
	REQUEST(READ, 16, 8, -52);
	REQUEST(READ, 16, 8, -67);
	REQUEST(READ, 16, 8, -121);
	REQUEST(READ, 16, 8, -62);
	REQUEST(READ, 24, 8, 1024, 512, 2560);
	REQUEST(WRITE, 24, 8, 1024, 3072);
	REQUEST(FLUSH, 0, 0, 0);
	REQUEST(FLUSH, 0, 0, -5);
	REQUEST(DISCARD, 32, 8, 0);
	REQUEST(DISCARD, 32, 8, -28);
	REQUEST(READ, 40, 128, 65536);
	REQUEST(READ, 40, 8, 65536);
	REQUEST(WRITE, 40, 8, 0x7fffffff);
	REQUEST(READ, 40, 8, -4095);
	REQUEST(WRITE, 40, 8, -4096);
	REQUEST(WRITE, 40, 8, (int)0x80000001);
	REQUEST(READ, 40, 8, 2048, -5);
	REQUEST(WRITE, 40, 8, 512, 0, 3584);
	REQUEST(FLUSH, 0, 0, 77);
	stop_and_look(1);
}

static void probe_get_data(void)
{
	live(F_NEED_GET_DATA);
	REQUEST(READ, 8, 8, 4096);
	REQUEST(WRITE, 8, 8, GET, 4096);
	REQUEST(WRITE, 8, 8, GET, 1024, GET, 3072);
	REQUEST(WRITE, 8, 8, GET, -28);
	/* The wrong command at each step. */
	pthread_t thread;
	asked.op = WRITE;
	asked.sector = 8;
	asked.sectors = 8;
	pthread_create(&thread, 0, ask, 0);
	unsigned tag = show_cqe();
	say("COMMIT before the data", io(IOWR(COMMIT, 16), 0, tag, 4096, ADDR(buffers[tag])));
	say("FETCH before the data", io(IOWR(FETCH, 16), 0, tag, 4096, ADDR(buffers[tag])));
	push_io(IOWR(NEED_GET_DATA, 16), 0, tag, 0, ADDR(buffers[tag]));
	show_cqe();
	say("data again", io(IOWR(NEED_GET_DATA, 16), 0, tag, 0, ADDR(buffers[tag])));
	say("COMMIT without a buffer", io(IOWR(COMMIT, 16), 0, tag, 4096, 0));
	pthread_join(thread, 0);
	say("the client gets", asked.result);
	stop();
}

static void probe_user_copy(void)
{
	char byte[4096];
	pthread_t thread;
	unsigned tag;

	live(F_USER_COPY);
	memset(client_buffer, 'w', MAX_BYTES);
	asked.op = WRITE;
	asked.sector = 8;
	asked.sectors = 8;
	pthread_create(&thread, 0, ask, 0);
	tag = show_cqe();
	say("pread", pread(device, byte, 4096, SLOT(tag)));
	say("first byte", byte[0]);
	say("COMMIT with a buffer", io(IOWR(COMMIT, 16), 0, tag, 4096, ADDR(buffers[tag])));
	say("COMMIT", io(IOWR(COMMIT, 16), 0, tag, 4096, 0));
	pthread_join(thread, 0);
	say("the client gets", asked.result);
	asked.op = READ;
	pthread_create(&thread, 0, ask, 0);
	tag = show_cqe();
	memset(byte, 'r', 4096);
	say("pwrite", pwrite(device, byte, 4096, SLOT(tag)));
	say("COMMIT", io(IOWR(COMMIT, 16), 0, tag, 4096, 0));
	pthread_join(thread, 0);
	say("the client gets", asked.result);
	say("its last byte", client_buffer[4095]);
	/* Read in two pieces: each begins at the slot's beginning. */
	memset(client_buffer, 0, MAX_BYTES);
	pthread_create(&thread, 0, ask, 0);
	tag = show_cqe();
	memset(byte, 'a', 4096);
	say("pwrite", pwrite(device, byte, 1024, SLOT(tag)));
	push_io(IOWR(COMMIT, 16), 0, tag, 1024, 0);
	tag = show_cqe();
	memset(byte, 'b', 4096);
	say("pwrite", pwrite(device, byte, 3072, SLOT(tag)));
	say("COMMIT", io(IOWR(COMMIT, 16), 0, tag, 3072, 0));
	pthread_join(thread, 0);
	say("the client gets", asked.result);
	say("byte 1023", client_buffer[1023]);
	say("byte 1024", client_buffer[1024]);
	say("byte 4095", client_buffer[4095]);
	asked.op = WRITE;
	for (int i = 0; i < 4096; i++)
		client_buffer[i] = i / 512;
	pthread_create(&thread, 0, ask, 0);
	tag = show_cqe();
	push_io(IOWR(COMMIT, 16), 0, tag, 1024, 0);
	tag = show_cqe();
	say("pread", pread(device, byte, 3072, SLOT(tag)));
	say("byte 0", byte[0]);
	say("byte 3071", byte[3071]);
	say("COMMIT", io(IOWR(COMMIT, 16), 0, tag, 3072, 0));
	pthread_join(thread, 0);
	say("the client gets", asked.result);
	stop();
}

static void probe_recovery(uint64_t with)
{
	pthread_t thread;

	live(with);
	say("START_USER_RECOVERY of a live one", control(START_RECOVERY, 0, 0, 0));
	asked.op = WRITE;
	asked.sector = 8;
	asked.sectors = 8;
	memset(client_buffer, 'w', MAX_BYTES);
	pthread_create(&thread, 0, ask, 0);
	show_cqe();
	close_queue();
	int wanted = with & F_RECOVERY ? QUIESCED : DEAD;
	for (int i = 0; i < 10000 && device_state() != wanted; i++)
		usleep(1000);
	say("state", device_state());
	if (!(with & F_REISSUE)) {
		pthread_join(thread, 0);
		say("the client gets", asked.result);
	}
	int res = control(START_RECOVERY, 0, 0, 0);
	for (int i = 0; i < 1000 && res == -EBUSY; i++) {
		usleep(1000);
		res = control(START_RECOVERY, 0, 0, 0);
	}
	say("START_USER_RECOVERY", res);
	if (with & F_RECOVERY) {
		say("once more", control(START_RECOVERY, 0, 0, 0));
		open_queue();
		for (unsigned tag = 0; tag < 2; tag++)
			say("FETCH_REQ", io(IOWR(FETCH, 16), 0, tag, 0, early(tag)));
		say("END_USER_RECOVERY", control(END_RECOVERY, 0, 0, 4711));
		say("state", device_state());
		if (with & F_REISSUE) {
			unsigned tag = show_cqe();

			say("its first byte", buffers[tag][0]);
			say("COMMIT", io(IOWR(COMMIT, 16), 0, tag, 4096, early(tag)));
			pthread_join(thread, 0);
			say("the client gets", asked.result);
		}
		say("END_USER_RECOVERY of a live one", control(END_RECOVERY, 0, 0, 4711));
		stop();
	} else {
		say("DEL_DEV", control(DEL_DEV, 0, 0, 0));
	}
}

int main(void)
{
	if (getenv("BLOCK_IO_URING"))
		block_io_uring();
	/*
	 * There is no node of a kernel's driver; where the test says so, `uringlet run` answers as
	 * if there were one.
	 */
	is_ours = getenv("BLOCK_IO_URING") || access("/dev/ublk-control", F_OK) != 0;
	for (int i = 0; i < 2; i++)
		buffers[i] = aligned_alloc(4096, MAX_BYTES);
	client_buffer = aligned_alloc(4096, MAX_BYTES);
	control_open();
	puts("# control");
	probe_control();
	puts("# fetch");
	probe_fetch();
	puts("# paths");
	probe_paths();
	puts("# queues");
	probe_queues();
	puts("# requests");
	probe_requests();
	puts("# get data");
	probe_get_data();
	puts("# user copy");
	probe_user_copy();
	puts("# lost");
	probe_recovery(0);
	puts("# recovery");
	probe_recovery(F_RECOVERY);
	puts("# reissue");
	probe_recovery(F_RECOVERY | F_REISSUE);
	puts("# end");
	return 0;
}
