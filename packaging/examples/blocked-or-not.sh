#!/bin/sh
# Runs a program on the kernel's io_uring where that works, and on the engine where it does not.
exec uringlet run --when-blocked -- "$@"
