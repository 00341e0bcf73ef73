//! Links `liburinglet.so` without libc and asks the dynamic linker to run its constructor before
//! those of all other objects. Executed as a program, it starts at an entry of its own.

fn main() {
    for argument in
        ["-nostdlib", "-nostartfiles", "-Wl,-z,initfirst", "-Wl,-z,nodelete", "-Wl,-soname,liburinglet.so", "-Wl,-e,uringlet_program_entry"]
    {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
