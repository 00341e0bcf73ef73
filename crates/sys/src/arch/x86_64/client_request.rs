//! How a program speaks to valgrind.

/// A client request: its number and five arguments. The answer; 0 where valgrind does not run the
/// program.
///
/// The rotations add up to 128 bits, so they leave `rdi` as it was, and the exchange does nothing
/// either: on a processor the sequence has no effect. valgrind recognises the five instructions and
/// finds the request at `rax` (valgrind manual, "The Client Request mechanism").
#[inline]
pub(crate) fn client_request(request: &[usize; 6]) -> usize {
    let answer;
    // SAFETY: no register but `rdx` and the flags changes; valgrind reads the live array.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") 0_usize => answer,
            options(nostack),
        );
    }
    answer
}
