//! The ELF note that leads a reader to the counters.

/// Emits the section `.note.uringlet`: name `uringlet`, type 1, and as descriptor the layout's
/// version and the distance of the block of counters from that very word.
///
/// A note and no exported symbol: it is found in a stripped object too, and in a program that has
/// the engine built in.
macro_rules! stats_note {
    ($version:path, $stats:path) => {
        ::core::arch::global_asm!(
            ".pushsection .note.uringlet, \"a\", @note",
            ".balign 4",
            ".long 9, 8, 1",
            ".asciz \"uringlet\"",
            ".balign 4",
            ".long {version}",
            ".long {stats} - .",
            ".popsection",
            version = const $version,
            stats = sym $stats,
        );
    };
}

pub(crate) use stats_note;
