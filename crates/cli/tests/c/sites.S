/* One function for each way a program may issue a system call: long site(struct registers *). They load every register from the structure, make the call,
   and store every register back. The order of instructions around each `syscall` decides how it is rewritten. */

.macro enter name
	.globl \name
	.type \name, @function
	.p2align 4
\name:
	.cfi_startproc
	push %rbx
	push %rbp
	push %r12
	push %r13
	push %r14
	push %r15
	push %rdi
	.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	movdqu (128 + 16 * \n)(%rdi), %xmm\n
	.endr
	pushq 120(%rdi)
	popfq
	mov 8(%rdi), %rbx
	mov 16(%rdi), %rbp
	mov 24(%rdi), %r12
	mov 32(%rdi), %r13
	mov 40(%rdi), %r14
	mov 48(%rdi), %r15
	mov 64(%rdi), %rsi
	mov 72(%rdi), %rdx
	mov 80(%rdi), %r10
	mov 88(%rdi), %r8
	mov 96(%rdi), %r9
	mov 0(%rdi), %rax
	mov 56(%rdi), %rdi
	/* In the red zone, which a system call leaves alone. */
	movq $0x6b6b, -128(%rsp)
.endm

.macro leave_site
	mov %rdi, %rcx
	mov (%rsp), %rdi
	mov %rax, 0(%rdi)
	pushfq
	popq 120(%rdi)
	mov -128(%rsp), %rax
	mov %rax, 112(%rdi)
	mov %rbx, 8(%rdi)
	mov %rbp, 16(%rdi)
	mov %r12, 24(%rdi)
	mov %r13, 32(%rdi)
	mov %r14, 40(%rdi)
	mov %r15, 48(%rdi)
	mov %rcx, 56(%rdi)
	mov %rsi, 64(%rdi)
	mov %rdx, 72(%rdi)
	mov %r10, 80(%rdi)
	mov %r8, 88(%rdi)
	mov %r9, 96(%rdi)
	.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	movdqu %xmm\n, (128 + 16 * \n)(%rdi)
	.endr
	mov 0(%rdi), %rax
	pop %rdi
	pop %r15
	pop %r14
	pop %r13
	pop %r12
	pop %rbp
	pop %rbx
	ret
	.cfi_endproc
.endm

	.data
word:	.quad 0x1122334455667788

	.text
/* Constant number right before the call. */
enter load_setup
	mov $425, %eax
	syscall
	leave_site

/* A gap with an instruction that counts from its own address, and a jump out of it that is not taken. */
enter load_gap
	mov $425, %eax
	mov word(%rip), %rcx
	movabs $0x1122334455667788, %r11
	cmp %r11, %rcx
	jne 9f
	pushq 120(%rsp)
	popq %rcx
	syscall
9:	leave_site

/* The seven-byte load. */
enter load_long
	.byte 0x48, 0xc7, 0xc0
	.long 425
	syscall
	leave_site

/* Number in a register, plain instructions before. */
enter before_any
	lea (%rsp), %rcx
	mov word(%rip), %r11
	syscall
	leave_site

/* Somebody jumps between the instructions before the call, and to nothing else: what follows is moved. */
enter after_any
	test %rax, %rax
	js 2f
	nop
2:	nop
	syscall
	mov %rax, %rcx
	lea word(%rip), %r11
	leave_site

/* As before, with a short jump right behind the call. */
enter after_jump
	test %rax, %rax
	js 2f
	nop
2:	nop
	syscall
	cmp $-4095, %rax
	jae 3f
	nop
3:	leave_site

/* A call blocks the way forward, a jump inside the five bytes before, but not in the last three: those and the call itself. */
enter over_any
	mov $0, %ecx
	test %rax, %rax
	js 2f
	nop
2:	mov %rcx, %r11
	syscall
	call nothing
	leave_site

/* Two paths with two constants meet at the call: the number is looked up. */
enter joined
	cmp $425, %rax
	jne 1f
	mov $425, %eax
	jmp 2f
1:	mov $39, %eax
2:	lea (%rsp), %rcx
	mov word(%rip), %r11
	syscall
	leave_site

	.type nothing, @function
nothing:
	.cfi_startproc
	ret
	.cfi_endproc

/* Not code: the program copies the first and the third to memory that it makes executable. */
	.section .rodata
enter copied_setup
	mov $425, %eax
	syscall
	leave_site
enter copied_long
	.byte 0x48, 0xc7, 0xc0
	.long 425
	syscall
	leave_site
	.globl copied_end
copied_end:

	.section .note.GNU-stack, "", @progbits
