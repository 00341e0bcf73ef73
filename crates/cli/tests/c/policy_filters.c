/*
 * Since Linux 7.0: IORING_REGISTER_BPF_FILTER, of a ring and of the task, and
 * IORING_REGISTER_RESTRICTIONS of the task. On an older kernel's ring: exit status 77.
 */
#define _GNU_SOURCE
#include "robust_ring.h"
#include <linux/filter.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum { BPF_FILTER = 37, RESTRICTIONS = 11, PROBE = 8, OPENAT = 18, OPENAT2 = 28, SOCKET = 45, TASK = -1 };
enum { DENY_REST = 1, SZ_STRICT = 2 };
enum { REGISTER_OP, SQE_OP, FLAGS_ALLOWED, FLAGS_REQUIRED };
enum { AT_USER_DATA = 0, AT_OPCODE = 8, AT_FAMILY = 16, AT_TYPE = 20, AT_FLAGS = 16, AT_RESOLVE = 32 };

struct bpf {
	uint16_t cmd_type, cmd_flags;
	uint32_t resv, opcode, flags, filter_len;
	uint8_t pdu_size, resv1[3];
	uint64_t filter_ptr, resv2[5];
};

struct restriction {
	uint16_t opcode;
	uint8_t value, resv;
	uint32_t resv2[3];
};

struct task_restriction {
	uint16_t flags, nr_res;
	uint32_t resv[3];
	struct restriction list[4];
};

#define LOAD(k) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, k)
#define RETURN(k) BPF_STMT(BPF_RET | BPF_K, k)
#define IF_EQUAL(k, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k, yes, no)
#define IF_SET(k, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, k, yes, no)
#define FILTER(op, bits, program) ((struct bpf){ .cmd_type = 1, .opcode = op, .flags = bits, .filter_len = sizeof(program) / 8, .filter_ptr = ADDR(program) })

static struct sock_filter allow[] = { RETURN(1) }, deny[] = { RETURN(0) };
static struct sock_filter only_tcp[] = { LOAD(AT_FAMILY), IF_EQUAL(AF_INET, 0, 4), LOAD(AT_TYPE), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 15), IF_EQUAL(SOCK_STREAM, 0, 1), RETURN(1), RETURN(0) };
static struct sock_filter read_only[] = { LOAD(AT_FLAGS), IF_SET(O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 0, 1), RETURN(0), RETURN(1) };
static struct sock_filter beneath[] = { LOAD(AT_RESOLVE), IF_SET(8, 1, 0), RETURN(0), RETURN(1) };
static struct sock_filter not_7[] = { LOAD(AT_USER_DATA), IF_EQUAL(7, 0, 1), RETURN(0), RETURN(1) };
/* Opcode, flags, size of the details: those of a plain NOP that may be asynchronous. */
static struct sock_filter plain_nop[] = { LOAD(AT_OPCODE), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~(FORCE_ASYNC << 8)), IF_EQUAL(NOP, 0, 1), RETURN(1), RETURN(0) };

static int filter_call(int fd, struct bpf filter)
{
	return register_call(fd, BPF_FILTER, &filter, 1);
}

static int socket_of(struct ring *r, int family, int type)
{
	int fd = run(r, SQE(.opcode = SOCKET, .fd = family, .off = type));

	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static int open_with(struct ring *r, int flags)
{
	int fd = run(r, SQE(.opcode = OPENAT, .fd = AT_FDCWD, .addr = ADDR("filtered"), .op_flags = flags, .len = 0600));

	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static int open_how(struct ring *r, uint64_t resolve)
{
	uint64_t how[3] = { O_RDONLY, 0, resolve };
	int fd = run(r, SQE(.opcode = OPENAT2, .fd = AT_FDCWD, .addr = ADDR("filtered"), .off = ADDR(how), .len = sizeof(how)));

	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static void refused(void)
{
	static struct sock_filter endless[] = { BPF_STMT(BPF_LD | BPF_IMM, 1) }, outside[] = { LOAD(40), RETURN(1) }, odd[] = { LOAD(2), RETURN(1) }, packet[] = { BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), RETURN(1) };
	struct bpf good = FILTER(NOP, 0, allow), bad;
	struct ring r = new_ring(4);

	section = "refused";
	check("no filter", register_call(r.fd, BPF_FILTER, 0, 1), -EFAULT);
	check("two", register_call(r.fd, BPF_FILTER, &good, 2), -EINVAL);
#define REFUSES(...) (bad = good, __VA_ARGS__, check(#__VA_ARGS__, filter_call(r.fd, bad), -EINVAL))
	REFUSES(bad.cmd_type = 2);
	REFUSES(bad.cmd_flags = 1);
	REFUSES(bad.resv = 1);
	REFUSES(bad.opcode = 200);
	REFUSES(bad.flags = 4);
	REFUSES(bad.filter_len = 0);
	REFUSES(bad.filter_len = 5000);
	REFUSES(bad.filter_ptr = 0);
	REFUSES(bad.resv1[1] = 1);
	REFUSES(bad.resv2[4] = 1);
	check("a program without an end", filter_call(r.fd, FILTER(NOP, 0, endless)), -EINVAL);
	check("a load from outside", filter_call(r.fd, FILTER(NOP, 0, outside)), -EINVAL);
	check("an odd load", filter_call(r.fd, FILTER(NOP, 0, odd)), -EINVAL);
	check("a load of a byte", filter_call(r.fd, FILTER(NOP, 0, packet)), -EINVAL);
	bad = good, bad.filter_ptr = 8;
	check("a bad address", filter_call(r.fd, bad), -EFAULT);
	check("nothing of it counts", run(&r, SQE(.opcode = NOP)), 0);
	end_ring(&r);
}

static void sizes(void)
{
	struct bpf filter = FILTER(SOCKET, SZ_STRICT, allow);
	struct ring r = new_ring(4);

	section = "sizes";
	check("less than there is, strictly", register_call(r.fd, BPF_FILTER, &filter, 1), -EMSGSIZE);
	check("how many there are", filter.pdu_size, 12);
	check("as many", register_call(r.fd, BPF_FILTER, &filter, 1), 0);
	filter = FILTER(NOP, 0, allow), filter.pdu_size = 4;
	check("more than there are", register_call(r.fd, BPF_FILTER, &filter, 1), -EMSGSIZE);
	check("none", filter.pdu_size, 0);
	filter = FILTER(OPENAT, 0, allow), filter.pdu_size = 8;
	check("fewer", register_call(r.fd, BPF_FILTER, &filter, 1), 0);
	check("how many there are", filter.pdu_size, 24);
	end_ring(&r);
}

static void of_a_ring(void)
{
	struct ring r = new_ring(8);

	section = "of a ring";
	close(open("filtered", O_CREAT | O_WRONLY, 0600));
	check("before", socket_of(&r, AF_UNIX, SOCK_STREAM), 0);
	check("only TCP", filter_call(r.fd, FILTER(SOCKET, 0, only_tcp)), 0);
	check("unix", socket_of(&r, AF_UNIX, SOCK_STREAM), -EACCES);
	check("TCP", socket_of(&r, AF_INET, SOCK_STREAM | SOCK_CLOEXEC), 0);
	check("UDP", socket_of(&r, AF_INET, SOCK_DGRAM), -EACCES);
	check("malformed", run(&r, SQE(.opcode = SOCKET, .fd = AF_UNIX, .addr = 1)), -EINVAL);
	check("another opcode", run(&r, SQE(.opcode = NOP)), 0);
	check("read only", filter_call(r.fd, FILTER(OPENAT, 0, read_only)), 0);
	check("to read", open_with(&r, O_RDONLY), 0);
	check("to write", open_with(&r, O_WRONLY), -EACCES);
	check("to make", open_with(&r, O_CREAT), -EACCES);
	check("openat2 is another opcode", open_how(&r, 0), 0);
	check("beneath", filter_call(r.fd, FILTER(OPENAT2, 0, beneath)), 0);
	check("not beneath", open_how(&r, 0), -EACCES);
	check("beneath", open_how(&r, 8), 0);
	check("not 7", filter_call(r.fd, FILTER(NOP, 0, not_7)), 0);
	check("plain ones", filter_call(r.fd, FILTER(NOP, 0, plain_nop)), 0);
	check("7", run(&r, SQE(.opcode = NOP, .user_data = 7)), -EACCES);
	check("8", run(&r, SQE(.opcode = NOP, .user_data = 8)), 0);
	check("asynchronous", run(&r, SQE(.opcode = NOP, .flags = FORCE_ASYNC)), 0);
	check("drained", run(&r, SQE(.opcode = NOP, .flags = DRAIN)), -EACCES);
	/* A denied request breaks its chain. */
	push(&r, SQE(.opcode = NOP, .flags = LINK, .user_data = 7));
	push(&r, SQE(.opcode = NOP, .user_data = 9));
	check("a chain", enter_call(r.fd, 2, 2, GETEVENTS, 0, 0), 2);
	check("its head", next(&r), -EACCES);
	check("the rest", next(&r), -ECANCELED);
	check("the rest is denied", filter_call(r.fd, FILTER(READ, DENY_REST, allow)), 0);
	check("a read", run(&r, SQE(.opcode = READ, .fd = -1)), -EBADF);
	check("a write", run(&r, SQE(.opcode = WRITE, .fd = -1)), -EACCES);
	check("TCP still", socket_of(&r, AF_INET, SOCK_STREAM), 0);
	check("a filter for a denied one", filter_call(r.fd, FILTER(WRITE, 0, allow)), 0);
	check("is in vain", run(&r, SQE(.opcode = WRITE, .fd = -1)), -EACCES);
	end_ring(&r);
	r = new_ring(4);
	check("another ring", socket_of(&r, AF_UNIX, SOCK_STREAM), 0);
	end_ring(&r);
}

static int without_privileges(void)
{
	section = "without privileges";
	if (getuid() == 0 && syscall(SYS_setresuid, 65534, 65534, 65534))
		return check("another user", -errno, 0), 1;
	check("a filter", filter_call(TASK, FILTER(NOP, 0, deny)), -EACCES);
	check("restrictions", register_call(TASK, RESTRICTIONS, 0, 1), -EACCES);
	check("no new privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	check("a filter", filter_call(TASK, FILTER(NOP, 0, deny)), 0);
	struct ring r = new_ring(4);
	check("a NOP", run(&r, SQE(.opcode = NOP)), -EACCES);
	end_ring(&r);
	return 0;
}

static int grandchild(void)
{
	struct ring r = new_ring(4);

	section = "of a child";
	check("inherited", socket_of(&r, AF_UNIX, SOCK_STREAM), -EACCES);
	check("loosened", filter_call(TASK, FILTER(SOCKET, 0, allow)), 0);
	check("in vain", socket_of(&r, AF_UNIX, SOCK_STREAM), -EACCES);
	end_ring(&r);
	return 0;
}

/* Runs this program again, which finds the filters and restrictions of its starter. */
static int executed(char *const environment[])
{
	char *const arguments[] = { "policy_filters", "inherited", NULL };
	int status;

	if (fork() == 0) {
		execve("/proc/self/exe", arguments, environment);
		_exit(99);
	}
	wait(&status);
	return status;
}

static int inherited(void)
{
	struct ring r = new_ring(4);

	section = "inherited";
	check("UNIX", socket_of(&r, AF_UNIX, SOCK_STREAM), -EACCES);
	check("TCP", socket_of(&r, AF_INET, SOCK_STREAM), 0);
	check("a NOP", run(&r, SQE(.opcode = NOP)), 0);
	check("a timer", run(&r, SQE(.opcode = TIMEOUT)), -EACCES);
	check("loosened", filter_call(TASK, FILTER(SOCKET, 0, allow)), 0);
	end_ring(&r);
	r = new_ring(4);
	check("in vain", socket_of(&r, AF_UNIX, SOCK_STREAM), -EACCES);
	end_ring(&r);
	return finish();
}

static int of_the_task(void)
{
	struct ring before = new_ring(4), after;

	section = "of the task";
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	check("only TCP", filter_call(TASK, FILTER(SOCKET, 0, only_tcp)), 0);
	check("a ring that was there", socket_of(&before, AF_UNIX, SOCK_STREAM), 0);
	after = new_ring(8);
	check("a new one", socket_of(&after, AF_UNIX, SOCK_STREAM), -EACCES);
	check("TCP", socket_of(&after, AF_INET, SOCK_STREAM), 0);
	check("a filter of its own", filter_call(after.fd, FILTER(SOCKET, 0, deny)), 0);
	check("both count", socket_of(&after, AF_INET, SOCK_STREAM), -EACCES);
	end_ring(&after);
	after = new_ring(8);
	check("that was the ring's", socket_of(&after, AF_INET, SOCK_STREAM), 0);
	end_ring(&after);
	check("a child", in_child(grandchild, 5), 0);
	struct task_restriction list = { .nr_res = 2, .list = { { SQE_OP, NOP }, { SQE_OP, SOCKET } } };
	char *const other[] = { "A=b", "URINGLET_TASK_POLICY=d:0", NULL };
	check("restrictions", register_call(TASK, RESTRICTIONS, &list, 1), 0);
	check("an executed program", executed(environ), 0);
	check("one without an environment", executed(other + 2), 0);
	check("one with another environment", executed(other), 0);
	end_ring(&before);
	return 0;
}

static int restricted_task(void)
{
	struct task_restriction list = { .nr_res = 2, .list = { { SQE_OP, NOP }, { SQE_OP, READ } } }, bad = list;
	struct restriction more = { SQE_OP, WRITE };
	struct ring r;

	section = "restricted";
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	check("no count", register_call(TASK, RESTRICTIONS, &list, 0), -EINVAL);
	check("a bad address", register_call(TASK, RESTRICTIONS, (void *)8, 1), -EFAULT);
	bad.flags = 1;
	check("flags", register_call(TASK, RESTRICTIONS, &bad, 1), -EINVAL);
	bad = list, bad.resv[2] = 1;
	check("reserved", register_call(TASK, RESTRICTIONS, &bad, 1), -EINVAL);
	bad = list, bad.list[1].opcode = 9;
	check("no such rule", register_call(TASK, RESTRICTIONS, &bad, 1), -EINVAL);
	check("good", register_call(TASK, RESTRICTIONS, &list, 1), 0);
	check("twice", register_call(TASK, RESTRICTIONS, &list, 1), -EPERM);
	r = new_ring(4);
	check("a NOP", run(&r, SQE(.opcode = NOP)), 0);
	check("a linked one", run(&r, SQE(.opcode = NOP, .flags = LINK)), -EACCES);
	check("a timer", run(&r, SQE(.opcode = TIMEOUT)), -EACCES);
	int pipes[2];
	check("a pipe", pipe(pipes), 0);
	check("nothing is said of register operations", register_call(r.fd, 2, pipes, 2), 0);
	end_ring(&r);
	r = new_ring_with(4, 64, 0);
	check("a ring's own, beside the task's", register_call(r.fd, RESTRICTIONS, &more, 1), -EBUSY);
	end_ring(&r);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "inherited") == 0)
		return inherited();
	if (argc > 1) {
		check("without privileges", in_child(without_privileges, 10), 0);
		return finish();
	}
	block_if_asked();
	struct ring r = new_ring(4);
	int first = filter_call(r.fd, FILTER(NOP, 0, allow));

	if (first == -EINVAL && !getenv("BLOCK_IO_URING"))
		return 77;
	check("a filter", first, 0);
	end_ring(&r);
	refused();
	sizes();
	of_a_ring();
	check("of the task", in_child(of_the_task, 10), 0);
	check("restricted", in_child(restricted_task, 10), 0);
	return finish();
}
