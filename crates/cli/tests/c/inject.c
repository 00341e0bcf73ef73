// Requests that something is done to on purpose: prints what the program sees of each.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <liburing.h>

static struct io_uring ring;
static char bytes[1000], back[1000];

static struct io_uring_sqe *next(void) {
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
    if (!entry) exit(3);
    return entry;
}

// Prints so many CQEs as `user_data=res`, `+` if more follow.
static void show(int count) {
    for (int n = 0; n < count; n++) {
        struct io_uring_cqe *cqe;
        int error;
        while ((error = io_uring_wait_cqe(&ring, &cqe)) == -EINTR) {
        }
        if (error) {
            printf("wait=%d\n", error);
            exit(1);
        }
        printf("%llu=%d%s ", (unsigned long long)cqe->user_data, cqe->res, cqe->flags & IORING_CQE_F_MORE ? "+" : "");
        io_uring_cqe_seen(&ring, cqe);
    }
}

static void submit(int count) {
    int submitted = io_uring_submit(&ring);
    if (submitted != count) printf("submit=%d ", submitted);
    while (submitted < 0) submitted = io_uring_submit(&ring);
}

#define ONE(number, call) do { struct io_uring_sqe *e = next(); call; e->user_data = number; submit(1); show(1); } while (0)

static void files(void) {
    struct iovec parts[4] = {{back, 100}, {back + 100, 200}, {back + 300, 300}, {back + 600, 400}};
    struct iovec one = {back, 1000};
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644), other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0644);
    ONE(1, io_uring_prep_write(e, fd, bytes, 1000, 0));
    ONE(2, io_uring_prep_write(e, other, bytes, 1000, 0));
    ONE(3, io_uring_prep_read(e, fd, back, 1000, 0));
    ONE(4, io_uring_prep_readv(e, fd, parts, 4, 0));
    ONE(5, io_uring_prep_readv(e, other, &one, 1, 0));
    ONE(6, io_uring_prep_fsync(e, fd, 0));
    ONE(7, io_uring_prep_openat(e, AT_FDCWD, "file", O_RDONLY, 0));
    struct io_uring_sqe *e = next();
    io_uring_prep_read(e, other, back, 1000, 0);
    e->flags |= IOSQE_IO_LINK;
    e->user_data = 8;
    io_uring_prep_nop(e = next());
    e->user_data = 9;
    submit(2);
    show(2);
}

static void nops(int count) {
    for (int n = 1; n <= count; n++) ONE(n, io_uring_prep_nop(e));
}

// Two at once.
static void order(void) {
    for (int n = 1; n <= 2; n++) {
        struct io_uring_sqe *e = next();
        io_uring_prep_nop(e);
        e->user_data = n;
    }
    submit(2);
    show(2);
}

static void net(void) {
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    ONE(1, io_uring_prep_send(e, pair[0], bytes, 1000, MSG_NOSIGNAL));
    ONE(2, io_uring_prep_recv(e, pair[1], back, 1000, 0));
    ONE(3, io_uring_prep_send(e, pair[0], bytes, 1000, MSG_NOSIGNAL));
    ONE(4, io_uring_prep_recv(e, pair[1], back, 1000, 0));
    ONE(5, io_uring_prep_send(e, pair[0], bytes, 10, MSG_NOSIGNAL));
}

static void polls(void) {
    int ends[2];
    char c;
    if (pipe(ends)) exit(3);
    struct io_uring_sqe *e = next();
    io_uring_prep_poll_multishot(e, ends[0], POLLIN);
    e->user_data = 1;
    submit(1);
    for (int n = 0; n < 2; n++) {
        if (write(ends[1], "x", 1) != 1) exit(3);
        show(1);
        if (read(ends[0], &c, 1) != 1) exit(3);
    }
    // Is anything armed?
    ONE(2, io_uring_prep_cancel64(e, 1, 0));
}

static void ready(void) {
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair);
    struct io_uring_sqe *e = next();
    io_uring_prep_poll_add(e, pair[0], POLLIN);
    e->user_data = 1;
    submit(1);
    struct __kernel_timespec soon = {0, 50 * 1000 * 1000};
    struct io_uring_cqe *cqe;
    int waited = io_uring_wait_cqe_timeout(&ring, &cqe, &soon);
    printf("wait=%d read=%d ", waited, (int)read(pair[0], back, 1) < 0 ? -errno : 0);
    if (!waited) show(1);
}

static void overflow(void) {
    struct io_uring_sqe *e = next();
    io_uring_prep_nop(e);
    e->user_data = 1;
    submit(1);
    printf("ready=%u overflow=%d ", io_uring_cq_ready(&ring), !!(*ring.sq.kflags & IORING_SQ_CQ_OVERFLOW));
    show(1);
    printf("overflow=%d ", !!(*ring.sq.kflags & IORING_SQ_CQ_OVERFLOW));
}

static void calls(void) {
    int fd = 0;
    printf("register=%d ", io_uring_register_files(&ring, &fd, 1));
    printf("register=%d ", io_uring_unregister_files(&ring));
    nops(2);
}

static void late(void) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    ONE(1, io_uring_prep_nop(e));
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%s ", (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 >= 30 ? "late" : "soon");
    // A delayed request can be cancelled, and is guarded by a timeout.
    struct __kernel_timespec soon = {0, 1000 * 1000};
    struct io_uring_sqe *e = next();
    io_uring_prep_nop(e);
    e->flags |= IOSQE_IO_LINK;
    e->user_data = 2;
    io_uring_prep_link_timeout(e = next(), &soon, 0);
    e->user_data = 3;
    submit(2);
    show(2);
    // Its descriptor is closed meanwhile.
    {
        int fd = open("late", O_RDWR | O_CREAT | O_TRUNC, 0644);
        e = next();
        io_uring_prep_write(e, fd, bytes, 10, 0);
        e->user_data = 4;
        submit(1);
        close(fd);
        show(1);
    }
}

int main(int argc, char **argv) {
    const char *what = argv[1];
    int made = io_uring_queue_init(8, &ring, 0);
    if (made) {
        printf("setup=%d\n", made);
        return 0;
    }
    memset(bytes, 'x', sizeof bytes);
    if (!strcmp(what, "files")) files();
    else if (!strcmp(what, "nops")) nops(argc > 2 ? atoi(argv[2]) : 8);
    else if (!strcmp(what, "order")) order();
    else if (!strcmp(what, "net")) net();
    else if (!strcmp(what, "polls")) polls();
    else if (!strcmp(what, "ready")) ready();
    else if (!strcmp(what, "overflow")) overflow();
    else if (!strcmp(what, "calls")) calls();
    else if (!strcmp(what, "late")) late();
    else if (!strcmp(what, "children")) {
        fflush(stdout);
        if (!fork()) execl(argv[0], argv[0], "nops", "3", (char *)0);
        wait(0);
        nops(3);
    }
    printf("\n");
    return 0;
}
