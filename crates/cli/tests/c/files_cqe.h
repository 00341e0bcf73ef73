/* What a ring posts, or does not. */
#pragma once
#include "robust_ring.h"

#define no_cqe(r) check("no CQE", comes(r, 20), 0)
#define a_cqe(r, data, result) cqe_at(__LINE__, r, data, result)

static inline void cqe_at(int line, struct ring *r, uint64_t data, int result)
{
	struct cqe cqe = next_cqe(r);

	check_at(line, "user_data", cqe.user_data, data);
	check_at(line, "result", cqe.res, result);
}
