#!/bin/sh
# Makes liburinglet.a from the static library that cargo built: one object file whose only global
# symbols are the functions of uringlet.h. Rust's runtime, the engine's memcpy and its allocator stay
# out of the program's way.
#
#   link.sh LIBRARY.a FILE.a
#
# LD, OBJCOPY and AR name the tools.
set -eu

if [ $# -ne 2 ]; then
    echo "usage: link.sh LIBRARY.a FILE.a" >&2
    exit 2
fi
# A folder beside the archive, so that a rename puts that in place.
fresh=$2.$$
object=$fresh/uringlet.o
trap 'rm -rf "$fresh"' EXIT
mkdir "$fresh"
"${LD:-ld}" -r --gc-sections -o "$object" \
    -u uringlet_init -u uringlet_strerror -u uringlet_version "$1"
# Rust's own libraries carry LLVM bitcode, which other versions of LLVM's ar refuse. The counters are
# the engine's, not this copy's: without its note `uringlet stat` looks on.
"${OBJCOPY:-objcopy}" --strip-debug --strip-unneeded --remove-section=.llvmbc --remove-section=.llvmcmd \
    --remove-section=.note.uringlet --remove-section=.rela.note.uringlet \
    -G uringlet_init -G uringlet_strerror -G uringlet_version "$object"
"${AR:-ar}" rcsD "$fresh/liburinglet.a" "$object"
mv -f "$fresh/liburinglet.a" "$2"
