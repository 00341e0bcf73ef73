/*
 * Rights are given up by different roads, while a worker and a watcher exist that were started with
 * them. A request that runs afterwards has those of then; one that was captured before (it waits
 * for its turn in a drain, or in a chain whose head a worker has) has those of before. Argument:
 * the road.
 */
#include "identity.h"
#include <linux/landlock.h>

enum { LANDLOCK_CREATE_RULESET = 444, LANDLOCK_RESTRICT_SELF = 446 };
enum { GROUP = 12345 };

int raw_setresuid(int uid);

static int by_libc(void)
{
	return setresuid(NOBODY, NOBODY, NOBODY);
}

static int by_syscall(void)
{
	return syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY);
}

static int by_own_instruction(void)
{
	return raw_setresuid(NOBODY);
}

/* libc's function itself, past whatever precedes it. */
static int by_libcs_handle(void)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	int (*function)(uid_t, uid_t, uid_t) = libc ? dlsym(libc, "setresuid") : 0;

	return function ? function(NOBODY, NOBODY, NOBODY) : -1;
}

static int by_setfsuid(void)
{
	setfsuid(NOBODY);
	return setfsuid(-1) == NOBODY ? 0 : -1;
}

static int by_capset(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data))
		return -1;
	data[0].effective &= ~(1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH);
	return syscall(SYS_capset, &header, data);
}

static int by_landlock(void)
{
	struct landlock_ruleset_attr attr = { .handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE };
	int set = syscall(LANDLOCK_CREATE_RULESET, &attr, sizeof(attr), 0);

	if (set < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return syscall(LANDLOCK_RESTRICT_SELF, set, 0);
}

static int by_seteuid(void)
{
	return seteuid(NOBODY);
}

static int by_setgroups(void)
{
	return setgroups(0, 0);
}

struct road {
	const char *name;
	int (*give_up)(void);
	/* What only the former rights open. */
	const char *file;
	/* As which the case starts. */
	int (*start)(void);
	int (*regain)(void);
	/* The engine finds out when the submitter calls it again. */
	int is_unseen;
};

static int regain_euid(void)
{
	return seteuid(0);
}

static int regain_groups(void)
{
	gid_t group = GROUP;

	return setgroups(1, &group);
}

/* A member of the group without the rights of root. */
static int as_member(void)
{
	return regain_groups() || by_capset();
}

static int regain_fsuid(void)
{
	setfsuid(0);
	return setfsuid(-1) == 0 ? 0 : -1;
}

static const struct road roads[] = {
	{ "libc", by_libc, secret },
	{ "syscall", by_syscall, secret },
	{ "instruction", by_own_instruction, secret },
	{ "handle", by_libcs_handle, secret, .is_unseen = 1 },
	{ "setfsuid", by_setfsuid, secret, 0, regain_fsuid },
	{ "capset", by_capset, of_nobody },
	{ "landlock", by_landlock, secret },
	{ "seteuid", by_seteuid, secret, 0, regain_euid },
	{ "setgroups", by_setgroups, secret, as_member, regain_groups },
};
static const struct road *road;

static struct ring ring_with_rights(void)
{
	struct ring r;

	if (road->start)
		check("starts", road->start(), 0);
	r = used_ring();
	check("opened with the rights", open_both(&r, road->file), 0);
	return r;
}

static void give_up(void)
{
	check("given up", road->give_up(), 0);
}

static int afterwards(void)
{
	struct ring r = ring_with_rights();

	section = "a request afterwards";
	give_up();
	check("by a worker", open_async(&r, road->file), -EACCES);
	check("by the submitter", open_inline(&r, road->file), -EACCES);
	check("again by a worker", open_async(&r, road->file), -EACCES);
	if (road->regain) {
		check("regained", road->regain(), 0);
		check("by a worker with the rights back", open_async(&r, road->file), 0);
		check("by the submitter with the rights back", open_inline(&r, road->file), 0);
	}
	return 0;
}

static int behind_timeout(int is_linked, int flags, int expected)
{
	struct ring r = ring_with_rights();

	queue_behind_timeout(&r, road->file, is_linked, flags);
	give_up();
	check("afterwards", result_behind_timeout(&r), expected);
	return 0;
}

static int linked(void)
{
	section = "linked to a timeout";
	return behind_timeout(1, 0, -EACCES);
}

static int unattended(int is_linked, int expected)
{
	struct ring r = ring_with_rights();

	queue_behind_timeout(&r, road->file, is_linked, 0);
	give_up();
	check("afterwards", result_unattended(&r), expected);
	return 0;
}

static int linked_unattended(void)
{
	section = "linked to a timeout, unattended";
	return unattended(1, -EACCES);
}

static int drained_unattended(void)
{
	section = "drained, unattended";
	return unattended(0, 0);
}

static int linked_async(void)
{
	section = "linked to a timeout, for a worker";
	return behind_timeout(1, FORCE_ASYNC, -EACCES);
}

static int drained(void)
{
	section = "drained";
	return behind_timeout(0, 0, 0);
}

static int drained_async(void)
{
	section = "drained, for a worker";
	return behind_timeout(0, FORCE_ASYNC, 0);
}

/* Behind a read of an empty pipe: it is armed, or a worker has it with the rest of its chain. */
static int behind_read(int flags, int expected)
{
	struct ring r = ring_with_rights();
	int fds[2];
	char byte;

	check("a pipe", pipe(fds), 0);
	push(&r, SQE(.opcode = READ, .flags = LINK | flags, .fd = fds[0], .addr = ADDR(&byte), .len = 1, .off = -1, .user_data = 2));
	push(&r, open_request(road->file, 0));
	check("queued", enter_call(r.fd, 2, 0, 0, 0, 0), 2);
	give_up();
	check("fed", write(fds[1], "x", 1), 1);
	check("afterwards", result_behind_timeout(&r), expected);
	return 0;
}

static int linked_to_read(void)
{
	section = "linked to a read";
	return behind_read(0, -EACCES);
}

static int linked_to_async_read(void)
{
	section = "linked to a read that a worker has";
	return behind_read(FORCE_ASYNC, 0);
}

/* Given up, and only then queued behind a timeout, and the rights are back when it expires. */
static int queued_without(int is_linked, int expected)
{
	struct ring r = ring_with_rights();

	give_up();
	queue_behind_timeout(&r, road->file, is_linked, 0);
	check("regained", road->regain(), 0);
	check("afterwards", result_behind_timeout(&r), expected);
	return 0;
}

static int drained_without(void)
{
	section = "drained while the rights were given up";
	return queued_without(0, -EACCES);
}

static int linked_without(void)
{
	section = "linked to a timeout while the rights were given up";
	return queued_without(1, 0);
}

static void make_group_file(void)
{
	if (chown(secret, NOBODY, GROUP) || chmod(secret, 0040))
		perror(secret);
}

int main(int argc, char **argv)
{
	int (*cases[])(void) = {
		afterwards, linked, linked_unattended, linked_async, linked_to_read, linked_to_async_read, drained, drained_unattended, drained_async,
	};
	size_t i;

	for (i = 0; i < sizeof(roads) / sizeof(*roads); i++)
		if (argc > 1 && !strcmp(argv[1], roads[i].name))
			road = &roads[i];
	if (!road)
		return 2;
	if (road->give_up == by_landlock && syscall(LANDLOCK_CREATE_RULESET, 0, 0, 1) < 1) {
		printf("skipped: no Landlock\n");
		return 77;
	}
	block_if_asked();
	make_files();
	if (road->start)
		make_group_file();
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (!road->is_unseen || cases[i] != linked_unattended)
			failures += in_child(cases[i], 2) != 0;
	if (road->regain)
		failures += (in_child(drained_without, 2) != 0) + (in_child(linked_without, 2) != 0);
	remove_files();
	return finish();
}
