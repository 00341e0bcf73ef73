/* A library whose system calls are its own instructions. It knows nothing of io_uring. */

int raw_setresuid(int uid)
{
	long result;

	asm volatile("movl $117, %%eax\n\tsyscall" : "=&a"(result) : "D"((long)uid), "S"((long)uid), "d"((long)uid) : "rcx", "r11", "memory");
	return result;
}

