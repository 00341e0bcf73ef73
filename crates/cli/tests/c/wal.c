// A write-ahead log: appends records through a ring, and checkpoints them into a file.
// wal DIR [right|no-fsync|no-dir-fsync|late-fsync], wal DIR verify ACKNOWLEDGED
//
// What is acknowledged is written to the file ACKNOWLEDGED, which is on another disk.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <liburing.h>

enum { RECORDS = 12, EACH = 4, SIZE = 1500 };

struct record {
    uint32_t number, sum;
    unsigned char bytes[SIZE];
};

static struct io_uring ring;

static int done(struct io_uring_sqe *e) {
    struct io_uring_cqe *cqe;
    (void)e;
    if (io_uring_submit(&ring) != 1 || io_uring_wait_cqe(&ring, &cqe)) exit(3);
    int res = cqe->res;
    io_uring_cqe_seen(&ring, cqe);
    if (res < 0) exit(4);
    return res;
}

static void put(int fd, const void *bytes, unsigned len, long at) {
    struct io_uring_sqe *e = io_uring_get_sqe(&ring);
    io_uring_prep_write(e, fd, bytes, len, at);
    if (done(e) != (int)len) exit(5);
}

static void sync_file(int fd) {
    struct io_uring_sqe *e = io_uring_get_sqe(&ring);
    io_uring_prep_fsync(e, fd, 0);
    done(e);
}

static struct record record(uint32_t number) {
    struct record r = {number, number * 31};
    for (int n = 0; n < SIZE; n++) r.sum += r.bytes[n] = number * 7 + n;
    return r;
}

static int is_whole(const struct record *r) {
    struct record right = record(r->number);
    return r->number && !memcmp(&right, r, sizeof right);
}

static void acknowledge(const char *path, uint32_t number) {
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    if (pwrite(fd, &number, sizeof number, 0) != sizeof number) exit(6);
    close(fd);
}

static int verify(const char *acknowledged) {
    uint32_t promised = 0, found = 0;
    struct record r;
    int fd = open(acknowledged, O_RDONLY);
    if (fd >= 0 && read(fd, &promised, sizeof promised) != sizeof promised) promised = 0;
    // The checkpoint has the records that the log has no more.
    if ((fd = open("state", O_RDONLY)) >= 0) {
        if (read(fd, &found, sizeof found) != sizeof found) return printf("the state is cut off\n"), 1;
        close(fd);
    }
    if ((fd = open("log", O_RDONLY)) >= 0)
        while (read(fd, &r, sizeof r) == sizeof r && is_whole(&r)) found = r.number > found ? r.number : found;
    if (found < promised) return printf("record %u was acknowledged, the last one is %u\n", promised, found), 1;
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 4 || chdir(argv[1])) return 2;
    const char *how = argv[2], *acknowledged = argv[3];
    if (!strcmp(how, "verify")) return verify(acknowledged);
    if (io_uring_queue_init(8, &ring, 0)) return 2;
    unlink(acknowledged);
    int dir = open(".", O_RDONLY | O_DIRECTORY), log = open("log", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (strcmp(how, "no-dir-fsync")) sync_file(dir);
    for (uint32_t n = 1; n <= RECORDS; n++) {
        struct record r = record(n);
        put(log, &r, sizeof r, (long)((n - 1) % EACH) * sizeof r);
        if (strcmp(how, "no-fsync")) sync_file(log);
        acknowledge(acknowledged, n);
        if (n % EACH) continue;
        // A checkpoint: a new file in place of the old one, then the log begins again.
        int state = open("state.new", O_WRONLY | O_CREAT | O_TRUNC, 0644);
        put(state, &n, sizeof n, 0);
        if (strcmp(how, "late-fsync")) sync_file(state);
        if (rename("state.new", "state")) return 7;
        sync_file(dir);
        if (!strcmp(how, "late-fsync")) sync_file(state);
        close(state);
        if (ftruncate(log, 0)) return 8;
        sync_file(log);
    }
    return 0;
}
