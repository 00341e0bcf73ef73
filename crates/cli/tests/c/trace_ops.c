// Requests one after the other, for a golden trace. In its own directory.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
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
    static char first[4], second[8];
    struct iovec into[2] = {{first, 4}, {second, 8}};
    ONE(13, io_uring_prep_readv(e, fd, into, 2, 0));
    // A worker executes it, with a copy of the iovecs.
    ONE(14, (io_uring_prep_readv(e, fd, into, 2, 1), e->flags |= IOSQE_ASYNC));
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

// Messages to a bound socket, and over TCP.
static void messages(void) {
    static char head[2], tail[8], wait_for[4];
    struct sockaddr_un name = {AF_UNIX, "bound"};
    struct sockaddr_in any = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof any;
    struct iovec out[2] = {{"ab", 2}, {"cdef", 4}}, in[2] = {{head, 2}, {tail, 8}};
    struct msghdr to = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = out, .msg_iovlen = 2};
    struct msghdr from = {.msg_iov = in, .msg_iovlen = 2};
    int bound = socket(AF_UNIX, SOCK_DGRAM, 0), sender = socket(AF_UNIX, SOCK_DGRAM, 0);
    unlink("bound");
    bind(bound, (struct sockaddr *)&name, sizeof name);
    ONE(50, io_uring_prep_sendmsg(e, sender, &to, 0));
    ONE(51, io_uring_prep_recvmsg(e, bound, &from, 0));
    // It waits, and the program uses its header for something else.
    struct io_uring_sqe *e = sqe(52);
    io_uring_prep_recvmsg(e, bound, &from, 0);
    e->user_data = 52;
    io_uring_submit(&ring);
    from.msg_iov = NULL;
    sendto(sender, "ghi", 3, 0, (struct sockaddr *)&name, sizeof name);
    take(1);
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (struct sockaddr *)&any, sizeof any);
    listen(listener, 1);
    getsockname(listener, (struct sockaddr *)&any, &size);
    ONE(53, io_uring_prep_connect(e, client, (struct sockaddr *)&any, sizeof any));
    ONE(54, io_uring_prep_send(e, client, "x", 1, 0));
    int server = accept(listener, NULL, NULL);
    ONE(55, io_uring_prep_recv(e, server, wait_for, 4, 0));
}

// CQEs of no request of the ring: a message of another one, and the tag of a file.
static void posts(void) {
    struct io_uring other;
    struct io_uring_cqe *cqe;
    __u64 tag = 0x77;
    int file = open("file", O_RDONLY);
    io_uring_queue_init(4, &other, 0);
    ONE(60, io_uring_prep_msg_ring(e, other.ring_fd, 5, 61, 0));
    if (io_uring_wait_cqe(&other, &cqe)) exit(1);
    io_uring_register_files_tags(&other, &file, &tag, 1);
    io_uring_cqe_seen(&other, cqe);
    io_uring_unregister_files(&other);
    if (io_uring_wait_cqe(&other, &cqe) || cqe->user_data != tag) exit(1);
    io_uring_queue_exit(&other);
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
    // The numbers in the trace must not depend on what the test's own starter left open.
    for (int fd = 3; fd < 100; fd++) close(fd);
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
    messages();
    posts();
    oddities();
    pipe(ends);
    struct io_uring_sqe *e = sqe(99);
    io_uring_prep_read(e, ends[0], &byte, 1, -1);
    e->user_data = 99;
    io_uring_submit(&ring);
    return 7;
}
