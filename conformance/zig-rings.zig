//! Files, pipes, timeouts, links and registered resources through std.os.linux.IoUring; prints
//! `all well` if every result is right. Exit status 77: no ring.
const std = @import("std");
const linux = std.os.linux;
const IoUring = linux.IoUring;

fn expect(is_right: bool, comptime what: []const u8) void {
    if (!is_right) {
        say(what ++ " went wrong\n");
        linux.exit_group(1);
    }
}

fn say(text: []const u8) void {
    _ = linux.write(1, text.ptr, text.len);
}

/// The result of the next completion, which must be that of `user_data`.
fn result(ring: *IoUring, user_data: u64) !i32 {
    const cqe = try ring.copy_cqe();
    expect(cqe.user_data == user_data, "the order of completions");
    return cqe.res;
}

fn files(ring: *IoUring) !void {
    const opened = linux.openat(linux.AT.FDCWD, "zig-data", .{ .ACCMODE = .RDWR, .CREAT = true, .TRUNC = true }, 0o600);
    expect(linux.errno(opened) == .SUCCESS, "open");
    const fd: linux.fd_t = @intCast(opened);
    var block: [4096]u8 = undefined;
    var back: [4096]u8 = undefined;
    for (0..64) |i| {
        @memset(&block, @truncate(i + 1));
        _ = try ring.write(i, fd, &block, i * 4096);
        _ = try ring.submit_and_wait(1);
        expect(try result(ring, i) == 4096, "a write");
    }
    _ = try ring.fsync(100, fd, 0);
    _ = try ring.submit();
    expect(try result(ring, 100) == 0, "fsync");
    for (0..64) |i| {
        _ = try ring.read(i, fd, .{ .buffer = &back }, i * 4096);
        _ = try ring.submit_and_wait(1);
        expect(try result(ring, i) == 4096, "a read");
        @memset(&block, @truncate(i + 1));
        expect(std.mem.eql(u8, &block, &back), "what is read");
    }
    _ = try ring.close(101, fd);
    _ = try ring.submit();
    expect(try result(ring, 101) == 0, "close");
    _ = linux.unlink("zig-data");
}

fn pipes(ring: *IoUring) !void {
    var ends: [2]i32 = undefined;
    expect(linux.errno(linux.pipe2(&ends, .{})) == .SUCCESS, "pipe");
    var back: [5]u8 = undefined;
    _ = try ring.read(1, ends[0], .{ .buffer = &back }, 0);
    _ = try ring.submit();
    _ = try ring.write(2, ends[1], "hello", 0);
    _ = try ring.submit_and_wait(2);
    var sum: u64 = 0;
    for (0..2) |_| {
        const cqe = try ring.copy_cqe();
        expect(cqe.res == 5, "a pipe's result");
        sum += cqe.user_data;
    }
    expect(sum == 3 and std.mem.eql(u8, &back, "hello"), "a pipe");
    _ = linux.close(ends[0]);
    _ = linux.close(ends[1]);
}

fn timeouts(ring: *IoUring) !void {
    const short = linux.kernel_timespec{ .sec = 0, .nsec = 20_000_000 };
    _ = try ring.timeout(7, &short, 0, 0);
    _ = try ring.submit();
    expect(try result(ring, 7) == -@as(i32, @intFromEnum(linux.E.TIME)), "a timeout");
}

fn links(ring: *IoUring) !void {
    const first = try ring.nop(1);
    first.flags |= linux.IOSQE_IO_LINK;
    const second = try ring.fsync(2, -1, 0);
    second.flags |= linux.IOSQE_IO_LINK;
    _ = try ring.nop(3);
    _ = try ring.submit_and_wait(3);
    expect(try result(ring, 1) == 0, "the first of a chain");
    expect(try result(ring, 2) == -@as(i32, @intFromEnum(linux.E.BADF)), "the second of a chain");
    expect(try result(ring, 3) == -@as(i32, @intFromEnum(linux.E.CANCELED)), "the last of a chain");
}

fn registered(ring: *IoUring) !void {
    var buffer: [4096]u8 = undefined;
    const opened = linux.openat(linux.AT.FDCWD, "/dev/zero", .{}, 0);
    const fds = [_]linux.fd_t{@intCast(opened)};
    try ring.register_files(&fds);
    var vectors = [_]std.posix.iovec{.{ .base = &buffer, .len = buffer.len }};
    try ring.register_buffers(&vectors);
    @memset(&buffer, 1);
    const sqe = try ring.read_fixed(1, 0, &vectors[0], 0, 0);
    sqe.flags |= linux.IOSQE_FIXED_FILE;
    _ = try ring.submit();
    expect(try result(ring, 1) == 4096 and std.mem.allEqual(u8, &buffer, 0), "registered files and buffers");
    try ring.unregister_buffers();
    try ring.unregister_files();
    _ = linux.close(fds[0]);
}

pub fn main() !void {
    var ring = IoUring.init(32, 0) catch {
        say("no ring\n");
        linux.exit_group(77);
    };
    defer ring.deinit();
    try files(&ring);
    try pipes(&ring);
    try timeouts(&ring);
    try links(&ring);
    try registered(&ring);
    say("all well\n");
}
