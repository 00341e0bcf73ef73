//! `memcpy` and its kin for an object without libc.
//!
//! They are assembly for two reasons. The compiler turns a copy loop written in Rust back into a
//! call to `memcpy`. `.hidden` keeps them inside the object: an exported `memcpy` would replace
//! libc's in the whole program, an imported one would be libc's AVX variant, which destroys the
//! upper halves of vector registers that a system call preserves.

/// The memory routines of [`freestanding!`](macro@crate::freestanding) alone. A test gives them
/// names of their own by `$prefix`.
#[doc(hidden)]
#[macro_export]
macro_rules! freestanding_memory {
    ($prefix:literal) => {
        ::core::arch::global_asm!(
            ".pushsection .text.freestanding_memory, \"ax\", @progbits",
            ".irp name, memcpy, memmove, memset, memcmp, bcmp, strlen",
            concat!(".globl ", $prefix, "\\name"),
            concat!(".hidden ", $prefix, "\\name"),
            concat!(".type ", $prefix, "\\name, @function"),
            ".endr",
            // The precompiled `alloc` names them in its unwind tables and landing pads; with panic
            // = "abort" they never run.
            ".irp name, rust_eh_personality, _Unwind_Resume",
            concat!(".weak ", $prefix, "\\name"),
            concat!(".hidden ", $prefix, "\\name"),
            concat!(".type ", $prefix, "\\name, @function"),
            concat!($prefix, "\\name:"),
            ".endr",
            "ud2",
            // memcpy is memmove: the test for overlap is two instructions.
            ".p2align 5",
            concat!($prefix, "memcpy:"),
            concat!($prefix, "memmove:"),
            "mov rax, rdi",
            "cmp rdx, 16",
            "jb 20f",
            "cmp rdx, 32",
            "ja 30f",
            "movups xmm0, [rsi]",
            "movups xmm1, [rsi + rdx - 16]",
            "movups [rdi], xmm0",
            "movups [rdi + rdx - 16], xmm1",
            "ret",
            // Up to 15 bytes: all loads before the first store, so overlap does not matter.
            "20: cmp edx, 8",
            "jb 21f",
            "mov rcx, [rsi]",
            "mov r8, [rsi + rdx - 8]",
            "mov [rdi], rcx",
            "mov [rdi + rdx - 8], r8",
            "ret",
            "21: cmp edx, 4",
            "jb 22f",
            "mov ecx, [rsi]",
            "mov r8d, [rsi + rdx - 4]",
            "mov [rdi], ecx",
            "mov [rdi + rdx - 4], r8d",
            "ret",
            "22: test edx, edx",
            "jz 23f",
            "mov r9, rdx",
            "shr r9, 1",
            "movzx ecx, byte ptr [rsi]",
            "movzx r8d, byte ptr [rsi + r9]",
            "movzx r10d, byte ptr [rsi + rdx - 1]",
            "mov [rdi], cl",
            "mov [rdi + r9], r8b",
            "mov [rdi + rdx - 1], r10b",
            "23: ret",
            // Downwards only if the target starts inside the source.
            "30: mov rcx, rdi",
            "sub rcx, rsi",
            "cmp rcx, rdx",
            "jb 40f",
            "cmp rdx, 512",
            "jae 50f",
            // Upwards. The last 16 bytes are loaded before anything is stored and stored last.
            "movups xmm1, [rsi + rdx - 16]",
            "lea r8, [rdi + rdx - 16]",
            "lea r9, [r8 - 48]",
            "cmp rdi, r9",
            "ja 32f",
            "31: movups xmm0, [rsi]",
            "movups xmm2, [rsi + 16]",
            "movups xmm3, [rsi + 32]",
            "movups xmm4, [rsi + 48]",
            "movups [rdi], xmm0",
            "movups [rdi + 16], xmm2",
            "movups [rdi + 32], xmm3",
            "movups [rdi + 48], xmm4",
            "add rsi, 64",
            "add rdi, 64",
            "cmp rdi, r9",
            "jbe 31b",
            "cmp rdi, r8",
            "jae 34f",
            "32: movups xmm0, [rsi]",
            "movups [rdi], xmm0",
            "add rsi, 16",
            "add rdi, 16",
            "cmp rdi, r8",
            "jb 32b",
            "34: movups [r8], xmm1",
            "ret",
            // Downwards. The first 16 bytes are loaded first and stored last.
            "40: movups xmm1, [rsi]",
            "41: movups xmm0, [rsi + rdx - 16]",
            "movups [rdi + rdx - 16], xmm0",
            "sub rdx, 16",
            "cmp rdx, 16",
            "ja 41b",
            "movups [rdi], xmm1",
            "ret",
            "50: mov rcx, rdx",
            "rep movsb",
            "ret",
            ".p2align 5",
            concat!($prefix, "memset:"),
            "mov rax, rdi",
            "movzx esi, sil",
            "mov r8, 0x0101010101010101",
            "imul r8, rsi",
            "cmp rdx, 16",
            "jb 60f",
            "cmp rdx, 512",
            "jae 70f",
            "movq xmm0, r8",
            "punpcklqdq xmm0, xmm0",
            "lea rcx, [rdi + rdx - 16]",
            "61: movups [rdi], xmm0",
            "add rdi, 16",
            "cmp rdi, rcx",
            "jb 61b",
            "movups [rcx], xmm0",
            "ret",
            "60: cmp edx, 8",
            "jb 62f",
            "mov [rdi], r8",
            "mov [rdi + rdx - 8], r8",
            "ret",
            "62: cmp edx, 4",
            "jb 63f",
            "mov [rdi], r8d",
            "mov [rdi + rdx - 4], r8d",
            "ret",
            "63: test edx, edx",
            "jz 64f",
            "mov r9, rdx",
            "shr r9, 1",
            "mov [rdi], r8b",
            "mov [rdi + r9], r8b",
            "mov [rdi + rdx - 1], r8b",
            "64: ret",
            "70: mov r9, rax",
            "mov eax, esi",
            "mov rcx, rdx",
            "rep stosb",
            "mov rax, r9",
            "ret",
            ".p2align 5",
            concat!($prefix, "memcmp:"),
            concat!($prefix, "bcmp:"),
            "xor ecx, ecx",
            "80: lea r8, [rcx + 8]",
            "cmp r8, rdx",
            "ja 81f",
            "mov r9, [rdi + rcx]",
            "mov r10, [rsi + rcx]",
            "cmp r9, r10",
            "jne 82f",
            "mov rcx, r8",
            "jmp 80b",
            // Big-endian order is memory order.
            "82: bswap r9",
            "bswap r10",
            "xor eax, eax",
            "cmp r9, r10",
            "seta al",
            "sbb eax, 0",
            "ret",
            "81: cmp rcx, rdx",
            "je 83f",
            "movzx eax, byte ptr [rdi + rcx]",
            "movzx r8d, byte ptr [rsi + rcx]",
            "inc rcx",
            "sub eax, r8d",
            "je 81b",
            "ret",
            "83: xor eax, eax",
            "ret",
            ".p2align 5",
            concat!($prefix, "strlen:"),
            "xor eax, eax",
            "90: cmp byte ptr [rdi + rax], 0",
            "je 91f",
            "inc rax",
            "jmp 90b",
            "91: ret",
            ".popsection",
        );
    };
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    freestanding_memory!("probe_");

    unsafe extern "C" {
        fn probe_memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
        fn probe_memset(to: *mut u8, byte: i32, len: usize) -> *mut u8;
        fn probe_memcmp(a: *const u8, b: *const u8, len: usize) -> i32;
        fn probe_strlen(text: *const u8) -> usize;
    }

    const LENGTHS: [usize; 30] =
        [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 79, 80, 81, 100, 128, 144, 511, 512, 513, 700];

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    #[test]
    fn memmove_copies_whatever_the_overlap() {
        for len in LENGTHS {
            for shift in [-70_isize, -33, -16, -15, -1, 0, 1, 8, 15, 16, 17, 40, 800] {
                let mut bytes = pattern(2000);
                let from = 100;
                let to = (from as isize + shift) as usize;
                let mut expected = bytes.clone();
                expected.copy_within(from..from + len, to);
                let base = bytes.as_mut_ptr();
                // SAFETY: both ranges lie inside `bytes`.
                let returned = unsafe { probe_memmove(base.add(to), base.add(from), len) };
                assert_eq!(returned, base.wrapping_add(to));
                assert!(bytes == expected, "len {len} shift {shift}");
            }
        }
    }

    #[test]
    fn memset_fills_exactly_its_range() {
        for len in LENGTHS {
            let mut bytes = pattern(1000);
            let mut expected = bytes.clone();
            expected[50..50 + len].fill(0xa5);
            // SAFETY: the range lies inside `bytes`.
            unsafe { probe_memset(bytes.as_mut_ptr().add(50), 0x1a5, len) };
            assert!(bytes == expected, "len {len}");
        }
    }

    #[test]
    fn memcmp_orders_as_slices_do() {
        for len in LENGTHS {
            let a = pattern(len);
            for at in 0..len {
                for change in [1_u8, 0x80, 0xff] {
                    let mut b = a.clone();
                    b[at] = b[at].wrapping_add(change);
                    // SAFETY: both slices are `len` long.
                    let order = unsafe { probe_memcmp(a.as_ptr(), b.as_ptr(), len) };
                    assert_eq!(order.cmp(&0), a.cmp(&b), "len {len} at {at}");
                }
            }
            // SAFETY: as above.
            assert_eq!(unsafe { probe_memcmp(a.as_ptr(), a.clone().as_ptr(), len) }, 0);
        }
    }

    #[test]
    fn strlen_stops_at_the_first_nul() {
        // SAFETY: the literals end in NUL.
        unsafe {
            assert_eq!(probe_strlen(c"".as_ptr().cast()), 0);
            assert_eq!(probe_strlen(c"uringlet".as_ptr().cast()), 8);
        }
    }
}
