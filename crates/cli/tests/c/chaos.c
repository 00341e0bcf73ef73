// A store of blocks that is careful about what a kernel may do, or careless in one place.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <liburing.h>

enum { BLOCKS = 24, SIZE = 4096 };

static struct io_uring ring;
static int careless_reads, careless_order, careless_polls;
// Requests that are in flight together.
static int batch = 8;
static char written[BLOCKS][SIZE], back[BLOCKS][SIZE];

static struct io_uring_sqe *next(unsigned long user_data) {
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
    if (!entry) exit(3);
    entry->user_data = user_data;
    return entry;
}

static void submit(void) {
    while (io_uring_sq_ready(&ring)) {
        int done = io_uring_submit(&ring);
        if (done < 0 && done != -EINTR && done != -EAGAIN && done != -EBUSY) exit(4);
    }
}

// The CQE of a request, and which.
static int one(unsigned long *user_data, unsigned *flags) {
    struct io_uring_cqe *cqe;
    int error, res;
    while ((error = io_uring_wait_cqe(&ring, &cqe)) == -EINTR || error == -EAGAIN) {
    }
    if (error) exit(5);
    *user_data = cqe->user_data;
    if (flags) *flags = cqe->flags;
    res = cqe->res;
    io_uring_cqe_seen(&ring, cqe);
    return res;
}

// All blocks, several at a time, each as a whole.
static void transfer(int fd, int writes) {
    int done[BLOCKS] = {0}, left = BLOCKS;
    for (int first = 0; first < BLOCKS; first += batch) {
        for (int n = first; n < first + batch; n++) {
            struct io_uring_sqe *e = next(n);
            if (writes) io_uring_prep_write(e, fd, written[n], SIZE, (long)n * SIZE);
            else io_uring_prep_read(e, fd, back[n], SIZE, (long)n * SIZE);
            e->user_data = n;
        }
        submit();
        for (int open = batch; open;) {
            unsigned long n;
            int res = one(&n, 0);
            if (careless_order && n != first + batch - open) {
                printf("block %lu came out of order\n", n);
                exit(1);
            }
            if (res < 0 && res != -EINTR && res != -EAGAIN) exit(6);
            if (careless_reads && !writes && res != SIZE) {
                printf("block %lu: %d bytes\n", n, res);
                fflush(stdout);
                raise(SIGABRT);
            }
            done[n] += res > 0 ? res : 0;
            if (done[n] == SIZE) {
                open--, left--;
                continue;
            }
            struct io_uring_sqe *e = next(n);
            if (writes) io_uring_prep_write(e, fd, written[n] + done[n], SIZE - done[n], (long)n * SIZE + done[n]);
            else io_uring_prep_read(e, fd, back[n] + done[n], SIZE - done[n], (long)n * SIZE + done[n]);
            e->user_data = n;
            submit();
        }
    }
    if (left) exit(7);
}

// A message at a time, by a multishot poll that is armed again when it has ended.
static void messages(void) {
    int ends[2], is_armed = 0;
    if (pipe(ends)) exit(3);
    for (int n = 0; n < 12; n++) {
        char c;
        if (!is_armed) {
            struct io_uring_sqe *e = next(0);
            io_uring_prep_poll_multishot(e, ends[0], POLLIN);
            e->user_data = 100;
            submit();
            is_armed = 1;
        }
        if (write(ends[1], "x", 1) != 1) exit(3);
        unsigned long which;
        unsigned flags;
        one(&which, &flags);
        if (!(flags & IORING_CQE_F_MORE) && !careless_polls) is_armed = 0;
        if (read(ends[0], &c, 1) != 1) exit(3);
    }
}

int main(int argc, char **argv) {
    careless_reads = argc > 1 && !strcmp(argv[1], "reads");
    careless_order = argc > 1 && !strcmp(argv[1], "order");
    careless_polls = argc > 1 && !strcmp(argv[1], "polls");
    if (argc > 1 && !strcmp(argv[1], "single")) batch = 1;
    if (argc > 1 && !strcmp(argv[1], "fails")) return 9;
    char name[] = "chaos-XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    if (io_uring_queue_init(32, &ring, 0)) return 2;
    for (int n = 0; n < BLOCKS; n++) memset(written[n], 'a' + n, SIZE);
    transfer(fd, 1);
    transfer(fd, 0);
    if (memcmp(written, back, sizeof back)) {
        printf("other bytes\n");
        return 8;
    }
    messages();
    return 0;
}
