//! States of a process in which the engine could crash: each program runs on the kernel's ring and
//! on the engine's, and neither crashes nor hangs.

mod common;

use common::oracle;

oracle::compare! {
    /// A link chain as long as the SQ ends in every way that a chain can end.
    crash_chain,
    /// Every signal reset, ignored or blocked, and a handler of the program's for the signal that
    /// interrupts the engine's threads: cancels work, nobody dies, the program's own signals come.
    crash_dispositions,
}
