//! Registered and provided resources.

pub(crate) mod buf_ring;
pub(crate) mod buffers;
pub(crate) mod files;
pub(crate) mod zcrx;
