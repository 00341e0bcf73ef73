#!/bin/sh
# Makes liburing.so.2 from the static library that cargo built: rustc cannot give the symbols of a
# shared object their versions, the C toolchain's linker can.
#
#   link.sh LIBRARY.a DIRECTORY
#
# CC names the compiler driver (default: cc). The result has no dependency, not even libc, and no
# thread-local storage.
set -eu

if [ $# -ne 2 ]; then
    echo "usage: link.sh LIBRARY.a DIRECTORY" >&2
    exit 2
fi
archive=$1
directory=$2
here=$(dirname "$0")

mkdir -p "$directory"
# nodelete: engine threads run in this object, and libc keeps its fork handlers.
# A rename puts it in place, so a program that starts meanwhile finds the old file or the new one.
fresh=$directory/liburing.so.2.$$
trap 'rm -f "$fresh"' EXIT
"${CC:-cc}" -shared -nostdlib -o "$fresh" \
    -Wl,-soname,liburing.so.2 -Wl,--version-script="$here/liburing.map" \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,--gc-sections -Wl,-z,defs -Wl,-z,now -Wl,-z,relro -Wl,-z,nodelete -Wl,-z,noexecstack
mv -f "$fresh" "$directory/liburing.so.2"
ln -sf liburing.so.2 "$directory/liburing.so"
