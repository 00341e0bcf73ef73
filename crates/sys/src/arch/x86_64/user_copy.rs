//! A copy whose loads and stores may fault.

core::arch::global_asm!(
    ".pushsection .text.uringlet_copy,\"ax\",@progbits",
    ".p2align 4",
    ".globl uringlet_copy, uringlet_copy_words, uringlet_copy_bytes, uringlet_copy_words_fault, uringlet_copy_bytes_fault",
    ".hidden uringlet_copy",
    ".hidden uringlet_copy_words",
    ".hidden uringlet_copy_bytes",
    ".hidden uringlet_copy_words_fault",
    ".hidden uringlet_copy_bytes_fault",
    // rdi destination, rsi source, rdx length; returns in rax the bytes that are not copied. Both
    // string instructions count rcx down as they go, also when they fault.
    "uringlet_copy:",
    "mov %rdx, %rcx",
    "shr $3, %rcx",
    "uringlet_copy_words:",
    "rep movsq",
    "mov %edx, %ecx",
    "and $7, %ecx",
    "uringlet_copy_bytes:",
    "rep movsb",
    "xor %eax, %eax",
    "ret",
    "uringlet_copy_words_fault:",
    "and $7, %edx",
    "lea (%rdx, %rcx, 8), %rax",
    "ret",
    "uringlet_copy_bytes_fault:",
    "mov %rcx, %rax",
    "ret",
    ".popsection",
    options(att_syntax)
);

unsafe extern "C" {
    fn uringlet_copy(to: usize, from: usize, len: usize) -> usize;
    fn uringlet_copy_words();
    fn uringlet_copy_bytes();
    fn uringlet_copy_words_fault();
    fn uringlet_copy_bytes_fault();
}

fn address(label: unsafe extern "C" fn()) -> usize {
    label as *const () as usize
}

/// Copies `len` bytes. Returns how many are not copied: a fault ends the copy.
///
/// # Safety
/// The ranges may be read and written by this process as far as they are mapped. Where they may not
/// be mapped, the handler of SIGSEGV and SIGBUS resumes at [`copy_fixup`].
#[inline]
pub(crate) unsafe fn copy_user(to: usize, from: usize, len: usize) -> usize {
    // SAFETY: the caller's.
    unsafe { uringlet_copy(to, from, len) }
}

/// The exception table: where a thread resumes whose instruction at `fault` has faulted. `None`:
/// not one of the copy's.
pub(crate) fn copy_fixup(fault: usize) -> Option<usize> {
    if fault == address(uringlet_copy_words) {
        Some(address(uringlet_copy_words_fault))
    } else if fault == address(uringlet_copy_bytes) {
        Some(address(uringlet_copy_bytes_fault))
    } else {
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn copies_of_all_lengths_and_alignments_are_exact() {
        let from: [u8; 40] = core::array::from_fn(|i| i as u8 + 1);
        for at in 0..8 {
            for len in 0..=24 {
                let mut to = [0_u8; 40];
                // SAFETY: both ranges lie in the arrays.
                let left = unsafe { copy_user(to.as_mut_ptr() as usize + 3, from.as_ptr() as usize + at, len) };
                assert_eq!((left, &to[3..3 + len], to[2], to[3 + len]), (0, &from[at..at + len], 0, 0));
            }
        }
    }

    #[test]
    fn only_the_two_string_instructions_have_a_fixup() {
        assert_eq!(copy_fixup(address(uringlet_copy_words)), Some(address(uringlet_copy_words_fault)));
        assert_eq!(copy_fixup(address(uringlet_copy_bytes)), Some(address(uringlet_copy_bytes_fault)));
        assert_eq!(copy_fixup(address(uringlet_copy_words_fault)), None);
        assert_eq!(copy_fixup(0), None);
    }
}
