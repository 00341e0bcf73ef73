//! libc's exec functions with a variable number of arguments.

/// Defines each function: it calls `before`, which returns the address of libc's function, and
/// jumps there with all arguments as they came.
macro_rules! variadic_exec {
    ($($name:ident => $before:ident;)*) => {
        $(#[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                "call {before}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp r11",
                before = sym $before,
            )
        })*
    };
}
pub(crate) use variadic_exec;
