/* System calls whose number is no constant in front of them: composed, or joined from two paths. */
#include "robust_ring.h"

#define CALL(name, text)                                                                                                       \
	static __attribute__((noinline)) long name(long a, long b, long c, long d, void *e, long f)                           \
	{                                                                                                                     \
		long ret;                                                                                                     \
		register long r10 asm("r10") = d, r8 asm("r8") = (long)e, r9 asm("r9") = f;                                    \
                                                                                                                              \
		asm volatile(text : "=a"(ret) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");  \
		return ret;                                                                                                   \
	}

CALL(sum, "mov $400, %%eax\n\tadd $26, %%eax\n\tsyscall")
CALL(halves, "xor %%eax, %%eax\n\tmov $0xaa, %%al\n\tmov $1, %%ah\n\tsyscall")
CALL(address, "xor %%ecx, %%ecx\n\tlea 426(%%rcx), %%eax\n\tsyscall")
CALL(bits, "mov $0x100, %%eax\n\tor $0xaa, %%eax\n\tsyscall")
CALL(through_a_register, "mov $426, %%ecx\n\tmov %%ecx, %%eax\n\tsyscall")
CALL(through_the_stack, "push $426\n\tpop %%rax\n\tsyscall")
CALL(through_memory, "movl $426, -100(%%rsp)\n\tmov -100(%%rsp), %%eax\n\tsyscall")
CALL(exchanged, "mov $426, %%ecx\n\txchg %%ecx, %%eax\n\tsyscall")
/* Submit or not: each path loads a number, and one jumps to the system call itself. */
CALL(joined, "test %%rsi, %%rsi\n\tjz 1f\n\tmov $426, %%eax\n\tjmp 2f\n1:\tmov $39, %%eax\n2:\tsyscall\n\tmov %%rax, %%rcx\n\tmov %%rcx, %%rax")
CALL(joined_behind, "test %%rsi, %%rsi\n\tjnz 1f\n\tmov $39, %%eax\n\tjmp 2f\n1:\tmov $426, %%eax\n2:\tsyscall\n\tmov %%rax, %%rcx\n\tmov %%rcx, %%rax")
CALL(joined_in_front, "mov $426, %%eax\n\ttest %%rsi, %%rsi\n\tjnz 1f\n\tmov $39, %%eax\n1:\tsyscall\n\tmov %%rax, %%rcx\n\tmov %%rcx, %%rax")

static const struct {
	const char *name;
	long (*call)(long, long, long, long, void *, long);
	int is_joined;
} calls[] = {
	{ "a sum", sum },
	{ "two halves", halves },
	{ "an address", address },
	{ "bits", bits },
	{ "through a register", through_a_register },
	{ "through the stack", through_the_stack },
	{ "through memory", through_memory },
	{ "exchanged", exchanged },
	{ "joined by a jump", joined, 1 },
	{ "joined by a jump over another", joined_behind, 1 },
	{ "joined by a jump over the second", joined_in_front, 1 },
};

int main(void)
{
	block_if_asked();
	struct ring r = new_ring(8);

	for (int i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		section = calls[i].name;
		push(&r, SQE(.opcode = NOP, .user_data = i));
		check("enter", calls[i].call(r.fd, 1, 1, GETEVENTS, 0, 0), 1);
		check("its CQE", next_cqe(&r).user_data, i);
		if (calls[i].is_joined)
			check("the other number", calls[i].call(r.fd, 0, 0, 0, 0, 0), getpid());
	}
	end_ring(&r);
	return finish();
}
