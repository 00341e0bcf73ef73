//! Weak symbols.

/// The address of a symbol, 0 if no loaded object defines it.
macro_rules! address_of_weak {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: loads a word of this object's own global offset table, which the dynamic linker
        // filled before any of our code ran.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {0}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        address
    }};
}

pub(crate) use address_of_weak;
