/* A program of another architecture (i386) that prints its environment. */
.globl _start
_start:
	movl (%esp), %ecx
	leal 8(%esp,%ecx,4), %esi
next:
	movl (%esi), %ecx
	testl %ecx, %ecx
	jz done
	xorl %edx, %edx
length:
	cmpb $0, (%ecx,%edx)
	je print
	incl %edx
	jmp length
print:
	movl $4, %eax
	movl $1, %ebx
	int $0x80
	movl $4, %eax
	movl $newline, %ecx
	movl $1, %edx
	int $0x80
	addl $4, %esi
	jmp next
done:
	movl $1, %eax
	movl $7, %ebx
	int $0x80
newline:
	.ascii "\n"
.section .note.GNU-stack,"",@progbits
