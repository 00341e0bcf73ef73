//! What depends on the processor, one folder for each architecture.
//!
//! Only this file asks for the target. The rest of the crate uses the names re-exported here, and
//! those are the interface that a port has to supply:
//!
//! | name | what it is |
//! |---|---|
//! | `address_of_weak` | the address of a symbol that may be missing, without a libc |
//! | `is_got_relocation` | whether a relocation fills a slot of a global offset table |
//! | `syscall_entry` | what precedes libc's `syscall`: leaves no frame on the stack |
//! | `PAGE` | bytes of a page |
//!
//! The C calling convention is assumed to pass integers and pointers in the same registers whether
//! the function is variadic or not; so it does on every Linux architecture of 64 bits.

#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{PAGE, address_of_weak, is_got_relocation, syscall_entry};

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "uringlet-liburing supports x86-64 only. A port supplies a folder beside src/arch/x86_64 with the names that src/arch/mod.rs lists: \
     weak symbols, relocation types, the jump before `syscall`, page size."
);
