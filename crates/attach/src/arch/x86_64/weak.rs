//! Weak symbols.

/// The address of a symbol, 0 if no loaded object defines it: a weak reference that the dynamic
/// linker resolves, so no `dlsym` is needed.
macro_rules! weak_address {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: loads a word of this object's own global offset table.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        address
    }};
}
pub(crate) use weak_address;
