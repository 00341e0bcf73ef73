//go:build cgo

package main

// #cgo CFLAGS: -I${SRCDIR}/../../c -w
// #include "blocked.h"
// __attribute__((constructor)) static void block(void) { block_io_uring(); }
import "C"
