//! `liburinglet.so` as bytes. The build script builds it, in a target directory and with a release
//! profile of its own, or takes the one that `URINGLET_OBJECT` names.
#![no_std]
#![forbid(unsafe_code)]

include!(concat!(env!("OUT_DIR"), "/object.rs"));
