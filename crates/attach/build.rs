//! Links `liburinglet.so` without libc and asks the dynamic linker to run its constructor before
//! those of all other objects.

fn main() {
    for argument in ["-nostdlib", "-nostartfiles", "-Wl,-z,initfirst", "-Wl,-z,nodelete", "-Wl,-soname,liburinglet.so"] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
