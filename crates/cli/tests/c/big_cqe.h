/* Rings with CQEs of 32 bytes: of them alone (CQE32), or among others (CQE_MIXED). */
#pragma once
#include "net_ring.h"

enum { CQSIZE = 1 << 3, CQE32 = 1 << 11, SINGLE_ISSUER = 1 << 12, DEFER_TASKRUN = 1 << 13, CQE_MIXED = 1 << 18 };
enum { F_SKIP = 1 << 5, F_32 = 1 << 15 };

static unsigned ring_flags, cq_entries;

/* Returns 0, or the errno of setup. */
static int ring(const char *name, unsigned flags, unsigned entries)
{
	uint32_t params[30] = { 0 };
	int probe;

	params[2] = flags | (entries ? CQSIZE : 0);
	params[1] = entries;
	probe = syscall(425, 32, params);
	if (probe < 0)
		return -errno;
	close(probe);
	if (ring_fd >= 0)
		close(ring_fd);
	memset(params, 0, sizeof(params));
	params[2] = flags | (entries ? CQSIZE : 0);
	params[1] = entries;
	open_ring(name, params);
	ring_flags = flags;
	cq_entries = params[1];
	return 0;
}

static inline void enter(unsigned n)
{
	check("submitted", syscall(426, ring_fd, n, 0, 1, 0, 0), n);
}

struct big {
	uint64_t user_data;
	int res;
	uint32_t flags;
	/* The second half; zero if the CQE has none. */
	uint64_t extra[2];
};

/* The next CQE of either size; the result is -9999 if none comes. */
static inline struct big next_big(void)
{
	struct big big = { .res = -9999 };
	uint64_t *words;
	int is_mixed = !(ring_flags & CQE32);

	if (!comes(60000))
		return big;
	words = (uint64_t *)cqes + ((*cq_head & *cq_mask) << (is_mixed ? 1 : 2));
	if (is_mixed && words[1] >> 32 & F_SKIP) {
		__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
		return next_big();
	}
	big = (struct big){ words[0], words[1], words[1] >> 32 };
	if (!is_mixed || big.flags & F_32)
		memcpy(big.extra, words + 2, 16);
	__atomic_store_n(cq_head, *cq_head + (big.flags & F_32 ? 2 : 1), __ATOMIC_RELEASE);
	return big;
}
