// Requests one after the other, for a golden trace. In its own directory.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <liburing.h>

static struct io_uring ring;

static struct io_uring_sqe *sqe(unsigned long user_data) {
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
    memset(entry, 0, sizeof *entry);
    entry->user_data = user_data;
    return entry;
}

static void prepared(struct io_uring_sqe *entry, unsigned long user_data) { entry->user_data = user_data; }

// Submits, and takes so many CQEs.
static void take(int count) {
    struct io_uring_cqe *cqe;
    io_uring_submit(&ring);
    for (int n = 0; n < count; n++) {
        if (io_uring_wait_cqe(&ring, &cqe)) exit(1);
        io_uring_cqe_seen(&ring, cqe);
    }
}

#define ONE(number, call) do { struct io_uring_sqe *e = sqe(number); call; prepared(e, number); take(1); } while (0)

static void files(void) {
    static char text[] = "hello\nworld", read_back[64];
    struct iovec parts[2] = {{text, 5}, {text + 5, 6}};
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct io_uring_sqe *e = sqe(1);
    io_uring_prep_write(e, fd, text, 11, 0);
    e->flags |= IOSQE_IO_LINK;
    e->user_data = 1;
    e = sqe(2);
    io_uring_prep_read(e, fd, read_back, 64, 0);
    e->user_data = 2;
    take(2);
    ONE(3, io_uring_prep_writev(e, fd, parts, 2, 11));
    ONE(4, io_uring_prep_fsync(e, fd, IORING_FSYNC_DATASYNC));
    ONE(5, io_uring_prep_openat(e, AT_FDCWD, "no such", O_RDONLY | O_CLOEXEC, 0));
    ONE(6, io_uring_prep_mkdirat(e, AT_FDCWD, "directory", 0750));
    ONE(7, io_uring_prep_renameat(e, AT_FDCWD, "directory", AT_FDCWD, "renamed", RENAME_NOREPLACE));
    ONE(8, io_uring_prep_unlinkat(e, AT_FDCWD, "renamed", AT_REMOVEDIR));
    ONE(9, io_uring_prep_close(e, fd));
    // The number has another file now.
    fd = open("file", O_RDONLY);
    ONE(10, io_uring_prep_read(e, fd, read_back, 5, 6));
    io_uring_register_files(&ring, &fd, 1);
    ONE(11, (io_uring_prep_read(e, 0, read_back, 5, 0), e->flags |= IOSQE_FIXED_FILE));
    ONE(12, io_uring_prep_read(e, fd, (void *)8, 5, 0));
}

static void waits(void) {
    static char byte[8];
    int ends[2], pair[2];
    struct __kernel_timespec ts = {0, 1000000};
    pipe(ends);
    ONE(20, io_uring_prep_timeout(e, &ts, 0, 0));
    struct io_uring_sqe *e = sqe(21);
    io_uring_prep_read(e, ends[0], byte, 8, -1);
    e->user_data = 21;
    io_uring_submit(&ring);
    write(ends[1], "x", 1);
    take(1);
    e = sqe(22);
    io_uring_prep_read(e, ends[0], byte, 8, -1);
    e->user_data = 22;
    io_uring_submit(&ring);
    e = sqe(23);
    io_uring_prep_cancel64(e, 22, 0);
    e->user_data = 23;
    take(2);
    e = sqe(24);
    io_uring_prep_poll_multishot(e, ends[0], POLLIN);
    e->user_data = 24;
    io_uring_submit(&ring);
    write(ends[1], "y", 1);
    take(1);
    read(ends[0], byte, 1);
    e = sqe(25);
    io_uring_prep_cancel64(e, 24, 0);
    e->user_data = 25;
    take(2);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    ONE(26, io_uring_prep_send(e, pair[0], "message", 7, MSG_NOSIGNAL));
    ONE(27, io_uring_prep_recv(e, pair[1], byte, 8, 0));
}

static void oddities(void) {
    struct io_uring_sqe *e = sqe(30);
    io_uring_prep_nop(e);
    e->flags |= IOSQE_CQE_SKIP_SUCCESS;
    e->user_data = 30;
    ONE(31, io_uring_prep_nop(e));
    ONE(32, e->opcode = 200);
}

int main(int argc, char **argv) {
    static char byte;
    int ends[2];
    if (io_uring_queue_init(8, &ring, 0)) return 2;
    if (argc > 1 && !strcmp(argv[1], "children")) {
        // A forked child uses a ring of its own, and another program in a child.
        if (!fork()) {
            struct io_uring own;
            io_uring_queue_init(4, &own, 0);
            ring = own;
            ONE(40, io_uring_prep_nop(e));
            _exit(0);
        }
        wait(NULL);
        if (!fork()) execl(argv[0], argv[0], "nop", NULL);
        wait(NULL);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "nop")) {
        ONE(41, io_uring_prep_nop(e));
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "many")) {
        for (int n = 0; n < atoi(argv[2]); n++) ONE(n, io_uring_prep_nop(e));
        puts("done");
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "serve")) {
        // A request for each line.
        char line[16];
        puts("ready");
        fflush(stdout);
        while (fgets(line, sizeof line, stdin)) {
            ONE(atoi(line), io_uring_prep_nop(e));
            puts("done");
            fflush(stdout);
        }
        return 0;
    }
    files();
    waits();
    oddities();
    pipe(ends);
    struct io_uring_sqe *e = sqe(99);
    io_uring_prep_read(e, ends[0], &byte, 1, -1);
    e->user_data = 99;
    io_uring_submit(&ring);
    return 7;
}
