# uringlet: io_uring in user space. Two commands do everything on a fresh machine (Debian 12 with a Rust toolchain):
#   make demo    the main job: fio and PostgreSQL 18 where io_uring is blocked, without uringlet, with it, and how fast
#   make test    everything CI runs
# What they need is installed by package name, as root.

PREFIX ?= /usr/local
DESTDIR ?=
BUILD = target/release
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

.PHONY: all deb docs demo test install clean toolchain

# Rust needs a C linker; everything else is installed by the chores themselves.
toolchain:
	@command -v cc >/dev/null || { apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev; }

all: toolchain
	cargo xtask build

# target/deb/uringlet_VERSION_amd64.deb, and a tarball beside it.
deb: toolchain
	cargo xtask deb

# target/book: the documents, their links checked, their commands run.
docs: toolchain
	cargo xtask docs

demo: toolchain
	cargo xtask demo

test: toolchain
	cargo xtask ci

# The program, the library that it puts into others, its benchmarks' programs, the drop-in liburing (not on the linker's path), the C library, the man page.
install: all
	install -D -m 755 $(BUILD)/uringlet $(DESTDIR)$(PREFIX)/bin/uringlet
	install -D -m 755 $(BUILD)/liburinglet.so $(DESTDIR)$(PREFIX)/lib/uringlet/liburinglet.so
	install -D -m 755 $(BUILD)/uringlet-bench-worker $(DESTDIR)$(PREFIX)/lib/uringlet/uringlet-bench-worker
	install -D -m 755 $(BUILD)/uringlet-bench-pool $(DESTDIR)$(PREFIX)/lib/uringlet/uringlet-bench-pool
	install -D -m 755 $(BUILD)/liburing/liburing.so.2 $(DESTDIR)$(PREFIX)/lib/uringlet/liburing/liburing.so.2
	install -D -m 644 $(BUILD)/liburinglet.a $(DESTDIR)$(PREFIX)/lib/liburinglet.a
	install -D -m 644 crates/capi/uringlet.h $(DESTDIR)$(PREFIX)/include/uringlet.h
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed -e 's,@PREFIX@,$(PREFIX),; s,@LIBDIR@,$${prefix}/lib,; s,@VERSION@,$(VERSION),' crates/capi/uringlet.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/uringlet.pc
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	$(BUILD)/uringlet man > $(DESTDIR)$(PREFIX)/share/man/man1/uringlet.1

clean:
	cargo clean
