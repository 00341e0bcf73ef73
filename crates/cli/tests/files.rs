//! Nothing reaches another file: requests go on with the file and the buffer that they were issued
//! with, whatever becomes of a number or a slot. Each program runs on the engine and on the
//! kernel's ring.

mod common;

common::oracle::compare! {
    /// Requests hold registered files and buffers beyond their slots.
    files_held,
    /// A closed number does not disturb what is armed on its file.
    files_closed,
    /// Workers of a closed ring write to the files of that ring.
    files_ring_end,
    /// Numbers that libc closes: the request goes on with its file, the next file is served.
    files_libc,
    /// Numbers that the program takes from the engine.
    files_numbers,
    /// Registered files take what a hard limit of 1,024 descriptors leaves.
    files_limit,
}
