//! Onto an engine stack and back, in assembly: at a rewritten site every register but `rax`, `rcx` and `r11` must come back as it was.
//!
//! Three ways in. [`site_entry`] is where trampolines jump: no C calling convention there, the vector registers are saved. `symbols::syscall`
//! is a C function and need not save them. [`on_engine_stack`] is for Rust code that was entered through one of the other symbols.
//!
//! Not saved anywhere: the upper halves of vector registers and AVX-512 state (this object contains no instruction that touches them, which a test checks)
//! and the direction flag (clear at every call by the ABI).

use core::arch::naked_asm;
use core::mem::MaybeUninit;

use crate::dispatch::{INTERCEPTED, dispatch};
use crate::stack::{self, POOL, STACK_BYTES, STACK_TOP};

/// What [`site_entry`] and `syscall` push, lowest address first: the call as the engine sees it.
#[repr(C)]
pub(crate) struct CallFrame {
    rbx: usize,
    /// The first five arguments, in the order of the pushes.
    pub(crate) a1: usize,
    pub(crate) a2: usize,
    pub(crate) a3: usize,
    pub(crate) a4: usize,
    pub(crate) a5: usize,
    pub(crate) a6: usize,
    flags: usize,
    /// The system call's number; [`site_entry`] returns the result in its place.
    pub(crate) nr: usize,
    resume: usize,
}

/// What became of a call: in `rax` and `rdx`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disposition {
    /// The result, as the kernel would return it.
    pub(crate) value: isize,
    /// Not 0: the engine leaves the call to the kernel.
    pub(crate) plain: usize,
}

/// `rdx` = the base of an engine stack, 0 if the list at `rdi` is empty. Clobbers `rax`, `rcx`, `rdi`.
macro_rules! take_stack {
    () => {
        concat!(
            "mov ecx, esp\n",
            "shr ecx, 17\n",
            "imul ecx, ecx, 0x9E3779B1\n",
            "shr ecx, 28\n",
            "shl ecx, 6\n",
            "lea rdi, [rip + {pool}]\n",
            "add rdi, rcx\n",
            "mov rax, [rdi]\n",
            "22: mov rdx, rax\n",
            "and rdx, {mask}\n",
            "jz 23f\n",
            "lea rcx, [rax + 1]\n",
            "and ecx, {tag}\n",
            "or rcx, [rdx + {top}]\n",
            "lock cmpxchg [rdi], rcx\n",
            "jne 22b\n",
            "23:\n",
        )
    };
}

/// Gives back the engine stack with base `r8`; must run on another stack, so that no signal is put off any more. Lets signals in that were. Keeps `rdi`,
/// `rsi` and the vector registers.
macro_rules! give_stack {
    () => {
        concat!(
            "mov r10, [r8 + {top} + 16]\n",
            "mov r11, [r8 + {top} + 24]\n",
            "push qword ptr [r8 + {top} + 32]\n",
            "mov qword ptr [r8 + {top} + 16], 0\n",
            "mov qword ptr [r8 + {top} + 40], 0\n",
            "mov r9, [r8 + {top} + 8]\n",
            "mov rax, [r9]\n",
            "24: mov rcx, rax\n",
            "and rcx, {mask}\n",
            "mov [r8 + {top}], rcx\n",
            "lea rdx, [rax + 1]\n",
            "and edx, {tag}\n",
            "or rdx, r8\n",
            "lock cmpxchg [r9], rdx\n",
            "jne 24b\n",
            "test r10, r10\n",
            "jz 25f\n",
            "mov r9, [rsp]\n",
            "call {deliver_pending}\n",
            "25: add rsp, 8\n",
        )
    };
}

macro_rules! vector_registers {
    ($op:tt) => {
        vector_registers!(@each $op, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@each "save", $($n:literal)*) => { concat!($("movaps [rsp + 16 * ", $n, "], xmm", $n, "\n",)*) };
    (@each "restore", $($n:literal)*) => { concat!($("movaps xmm", $n, ", [rsp + 16 * ", $n, "]\n",)*) };
}

/// Pushes what [`CallFrame`] holds below the number, and leaves its address in `rbx`.
macro_rules! push_call {
    () => {
        "push rax; push r9; push r8; push r10; push rdx; push rsi; push rdi; push rbx; mov rbx, rsp"
    };
}

/// Pops what [`push_call`] pushed: the flags end up in `rax`.
macro_rules! pop_call {
    () => {
        "pop rbx; pop rdi; pop rsi; pop rdx; pop r10; pop r8; pop r9; pop rax"
    };
}

/// Keeps the stack pointer's low bits away from a stack's base.
pub(crate) const BASE_MASK: i32 = -(STACK_BYTES as i32);
/// The counter bits of a list head.
pub(crate) const TAG_MASK: u32 = (STACK_BYTES - 1) as u32;

/// Where trampolines jump, with `r11` = where to go on.
///
/// At `r11` lies the two-byte instruction that performs (or jumps to) the plain system call; behind it the trampoline goes on as if the call had returned.
/// `rcx` is free (the system call instruction destroys it), everything else is as the program left it.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn site_entry() {
    naked_asm!(
        // Below the red zone. `lea` leaves the flags alone.
        "lea rsp, [rsp - 128]",
        "push r11",
        "push rax",
        "lahf",
        "seto al",
        push_call!(),
        "cld",
        take_stack!(),
        "test rdx, rdx",
        "jz 30f",
        "31: lea rsp, [rdx + {top} - 256]",
        vector_registers!("save"),
        "mov rdi, rbx",
        "call {dispatch}",
        vector_registers!("restore"),
        "mov r8, rsp",
        "and r8, {mask}",
        "mov rsp, rbx",
        "mov rdi, rax",
        "mov rsi, rdx",
        give_stack!(),
        // Plain: the number stays in its slot. Done: the result takes its place, and we resume two bytes further on.
        "test rsi, rsi",
        "jnz 33f",
        "mov [rbx + {nr}], rdi",
        "add qword ptr [rbx + {resume}], 2",
        "33:",
        pop_call!(),
        "add al, 127",
        "sahf",
        "pop rax",
        "pop r11",
        "lea rsp, [rsp + 128]",
        "jmp r11",
        // No stack in the list: `grow` is compiled code and may use vector registers.
        "30: sub rsp, 256",
        "and rsp, -16",
        vector_registers!("save"),
        "call {grow}",
        vector_registers!("restore"),
        "mov rsp, rbx",
        "mov rdx, rax",
        "test rdx, rdx",
        "jnz 31b",
        "mov rdi, {enomem}",
        "xor esi, esi",
        "mov [rbx + {nr}], rdi",
        "add qword ptr [rbx + {resume}], 2",
        "jmp 33b",
        pool = sym POOL,
        mask = const BASE_MASK,
        tag = const TAG_MASK,
        top = const STACK_TOP,
        dispatch = sym dispatch,
        grow = sym stack::grow,
        deliver_pending = sym deliver_pending,
        nr = const core::mem::offset_of!(CallFrame, nr),
        resume = const core::mem::offset_of!(CallFrame, resume),
        enomem = const ENOMEM,
    )
}

const ENOMEM: isize = -12;

/// `syscall(2)` of libc: arguments shifted by one register, `errno` set. Calls that are not ours take eleven instructions more than in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn syscall() {
    naked_asm!(
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "movzx ecx, ax",
        "lea r11, [rip + {ours}]",
        "cmp byte ptr [r11 + rcx], 0",
        "jne 40f",
        "41: syscall",
        "42: cmp rax, -4095",
        "jae 43f",
        "ret",
        "43: mov rdi, rax",
        "jmp {fail}",
        "40: sub rsp, 8",
        "push rax",
        "push rax",
        push_call!(),
        take_stack!(),
        "test rdx, rdx",
        "jz 50f",
        "51: lea rsp, [rdx + {top}]",
        "mov rdi, rbx",
        "call {dispatch}",
        "mov r8, rsp",
        "and r8, {mask}",
        "mov rsp, rbx",
        "mov rdi, rax",
        "mov rsi, rdx",
        give_stack!(),
        "test rsi, rsi",
        "jnz 44f",
        "mov rax, rdi",
        "52: mov rbx, [rsp]",
        "add rsp, {frame}",
        "jmp 42b",
        "44:",
        pop_call!(),
        "pop rax",
        "add rsp, 16",
        "jmp 41b",
        "50: call {grow}",
        "mov rdx, rax",
        "test rdx, rdx",
        "jnz 51b",
        "mov rax, {enomem}",
        "jmp 52b",
        ours = sym INTERCEPTED,
        fail = sym crate::symbols::fail,
        pool = sym POOL,
        mask = const BASE_MASK,
        tag = const TAG_MASK,
        top = const STACK_TOP,
        dispatch = sym dispatch,
        grow = sym stack::grow,
        deliver_pending = sym deliver_pending,
        frame = const size_of::<CallFrame>() + 8,
        enomem = const ENOMEM,
    )
}

/// Lets in the signals that were put off while the program's thread was in the engine: `r10`, `r11` and `r9` are what `signals` left in the stack's top. Their
/// handlers run here, on the program's stack, with the engine left behind.
#[unsafe(naked)]
unsafe extern "C" fn deliver_pending() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rdi",
        "push rsi",
        "sub rsp, 256",
        "and rsp, -16",
        vector_registers!("save"),
        "mov rdi, r10",
        "mov rsi, r11",
        "mov rdx, r9",
        "call {deliver_deferred}",
        vector_registers!("restore"),
        "mov rdi, [rbp - 8]",
        "mov rsi, [rbp - 16]",
        "leave",
        "ret",
        deliver_deferred = sym crate::signals::deliver_deferred,
    )
}

/// Calls `run(data)` on an engine stack; on the present one if there is no memory for another.
#[unsafe(naked)]
unsafe extern "C" fn call_on_stack(run: unsafe extern "C" fn(*mut u8), data: *mut u8) {
    naked_asm!(
        "push rbx",
        "push rdi",
        "push rsi",
        "mov rbx, rsp",
        take_stack!(),
        "test rdx, rdx",
        "jz 60f",
        "61: lea rsp, [rdx + {top}]",
        "mov rdi, [rbx]",
        "call [rbx + 8]",
        "mov r8, rsp",
        "and r8, {mask}",
        "mov rsp, rbx",
        give_stack!(),
        "62: add rsp, 16",
        "pop rbx",
        "ret",
        "60: call {grow}",
        "mov rdx, rax",
        "test rdx, rdx",
        "jnz 61b",
        "mov rdi, [rbx]",
        "call [rbx + 8]",
        "jmp 62b",
        pool = sym POOL,
        mask = const BASE_MASK,
        tag = const TAG_MASK,
        top = const STACK_TOP,
        grow = sym stack::grow,
        deliver_pending = sym deliver_pending,
    )
}

/// Runs `f` on an engine stack.
pub(crate) fn on_engine_stack<R, F: FnOnce() -> R>(f: F) -> R {
    struct ClosureSlot<F, R> {
        f: MaybeUninit<F>,
        result: MaybeUninit<R>,
    }
    unsafe extern "C" fn run<R, F: FnOnce() -> R>(data: *mut u8) {
        // SAFETY: `data` is the slot below, and `f` is taken exactly once.
        unsafe {
            let slot = &mut *data.cast::<ClosureSlot<F, R>>();
            let f = slot.f.assume_init_read();
            slot.result.write(f());
        }
    }
    let mut slot: ClosureSlot<F, R> = ClosureSlot { f: MaybeUninit::new(f), result: MaybeUninit::uninit() };
    // SAFETY: `run` is given the slot it expects, which outlives the call; it has filled `result` when it returns.
    unsafe {
        call_on_stack(run::<R, F>, (&raw mut slot).cast());
        slot.result.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> usize {
        let local = 0_u8;
        &raw const local as usize
    }

    #[test]
    fn closures_run_on_a_stack_of_the_engine_and_give_it_back() {
        let outside = here();
        let (inside, nested) = on_engine_stack(|| (here(), on_engine_stack(here)));
        assert!(outside.abs_diff(inside) > STACK_BYTES);
        assert!(inside / STACK_BYTES != nested / STACK_BYTES);
        assert!(stack::resting() >= 2);
        let again = on_engine_stack(here);
        assert_eq!(again / STACK_BYTES, inside / STACK_BYTES);
    }

    #[test]
    fn a_stack_is_never_with_two_threads() {
        let threads: Vec<_> = (0..8)
            .map(|me: u64| {
                std::thread::spawn(move || {
                    for _ in 0..20_000 {
                        on_engine_stack(|| {
                            let mut mark = [me; 64];
                            core::hint::black_box(&mut mark);
                            assert!(mark.iter().all(|&m| m == me));
                        });
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
