/* Calls every function of sites.S and compares all registers. */
#include "blocked.h"
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/time.h>

struct registers {
	uint64_t rax, rbx, rbp, r12, r13, r14, r15, rdi, rsi, rdx, r10, r8, r9, pad, red, flags;
	uint8_t xmm[256];
};
_Static_assert(offsetof(struct registers, flags) == 120 && offsetof(struct registers, xmm) == 128, "as in sites.S");

typedef long site(struct registers *);
site load_setup, load_gap, load_long, before_any, over_any, after_any, after_jump, joined, copied_setup, copied_long;
extern char copied_end[];

static struct {
	const char *name;
	site *call;
	int any, keeps_flags;
} sites[] = {
	{ "load_setup", load_setup, 0, 1 }, { "load_gap", load_gap, 0 }, { "load_long", load_long, 0, 1 },  { "before_any", before_any, 1 },
	{ "over_any", over_any, 1 },     { "after_any", after_any, 1 }, { "after_jump", after_jump, 1 }, { "joined", joined, 0 },
};
enum { SITES = sizeof(sites) / sizeof(sites[0]) };

/*
 * Carry, parity, adjust, zero, sign, overflow: the flags of arithmetic. The sites' own comparisons
 * change them, so flags are compared for `load_*` alone.
 */
#define ARITHMETIC 0x8d5

static void fill(struct registers *r, long nr, unsigned seed)
{
	uint64_t *words = (uint64_t *)r;

	for (unsigned i = 0; i < sizeof(*r) / 8; i++)
		words[i] = 0x9e3779b97f4a7c15ull * (i + 1 + 1000 * seed);
	r->rax = nr;
	r->rdi = 0xffffff00ffffff00 | seed;
	r->rsi = 0;
	r->flags = 0x202 | (seed & 1 ? ARITHMETIC : 0);
}

/* Whether everything but rax (and the flags) is unchanged. */
static int kept(const struct registers *before, const struct registers *after, int flags)
{
	struct registers expected = *before;

	expected.rax = after->rax;
	expected.red = 0x6b6b;
	expected.pad = after->pad;
	if (!flags)
		expected.flags = after->flags;
	expected.flags = (expected.flags & ARITHMETIC) | (after->flags & ~ARITHMETIC);
	return memcmp(&expected, after, sizeof(expected)) == 0;
}

static long try(int i, long nr, unsigned seed)
{
	struct registers before, after;

	fill(&before, nr, seed);
	after = before;
	sites[i].call(&after);
	if (!kept(&before, &after, sites[i].keeps_flags)) {
		printf("%s: registers changed\n", sites[i].name);
		exit(1);
	}
	return (long)after.rax;
}

static volatile sig_atomic_t ticks;

static void tick(int signal)
{
	/* Enters the engine again, on top of the interrupted call. */
	for (int i = 0; i < SITES; i++)
		try(i, 425, 7);
	syscall(425, 0, 0);
	ticks++;
}

/* Code that was made at run time: in the place of the two sites that may lie anywhere. */
static void copy_sites(void)
{
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(page, copied_setup, copied_end - (char *)copied_setup);
	mprotect(page, 4096, PROT_READ | PROT_EXEC);
	sites[0].call = (site *)page;
	sites[2].call = (site *)(page + ((char *)copied_long - (char *)copied_setup));
}

int main(int argc, char **argv)
{
	struct itimerval every = { { 0, 300 }, { 0, 300 } };
	long seen[SITES];

	if (argc > 1)
		copy_sites();
	block_io_uring();
	for (int i = 0; i < SITES; i++) {
		seen[i] = try(i, 425, 2);
		printf("%s %s\n", sites[i].name, seen[i] == -EPERM ? "kernel" : "engine");
		if (sites[i].any && try(i, SYS_getpid, 3) != getpid())
			return printf("%s: getpid is another\n", sites[i].name), 1;
		if (sites[i].any && try(i, 100000, 3) != -ENOSYS)
			return printf("%s: a number that does not exist\n", sites[i].name), 1;
	}
	signal(SIGALRM, tick);
	setitimer(ITIMER_REAL, &every, NULL);
	for (unsigned round = 0; ticks < 300; round++)
		for (int i = 0; i < SITES; i++)
			if (try(i, 425, round & 255) != seen[i])
				return printf("%s: the result changed\n", sites[i].name), 1;
	puts("interrupted and kept");
	return 0;
}
