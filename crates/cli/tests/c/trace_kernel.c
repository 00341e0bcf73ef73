// Rings of all kinds, each with a few requests: what `uringlet trace --kernel` is to see of them.
// Prints the kinds that this kernel has.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <liburing.h>

enum {
    NO_MMAP = 1 << 14,
    NO_SQARRAY = 1 << 16,
    CQE_MIXED = 1 << 18,
    OP_RESIZE = 33,
    NOP_CQE32 = 1 << 5,
    PAGES = 16 << 12,
};

struct ring {
    int fd;
    unsigned flags, enter_flags;
    struct io_uring_params p;
    char *rings, *sqes;
    unsigned taken;
};

static _Atomic unsigned *word(struct ring *ring, unsigned at) { return (_Atomic unsigned *)(ring->rings + at); }

static char *memory(void) { return mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); }

static void map(struct ring *ring) {
    struct io_uring_params *p = &ring->p;
    if (ring->flags & NO_MMAP) return;
    ring->rings = mmap(NULL, PAGES / 8, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQ_RING);
    ring->sqes = mmap(NULL, p->sq_entries * (ring->flags & IORING_SETUP_SQE128 ? 128 : 64), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
}

// Entries of the SQ.
static unsigned entries = 8;

// False: this kernel has no such rings.
static int make(struct ring *ring, unsigned flags) {
    memset(ring, 0, sizeof *ring);
    ring->flags = ring->p.flags = flags;
    ring->p.sq_thread_idle = 20;
    if (flags & NO_MMAP) {
        ring->rings = memory();
        ring->sqes = memory();
        ring->p.cq_off.resv2 = (unsigned long)ring->rings;
        ring->p.sq_off.resv2 = (unsigned long)ring->sqes;
    }
    ring->fd = syscall(__NR_io_uring_setup, entries, &ring->p);
    if (ring->fd < 0) return 0;
    map(ring);
    return 1;
}

static struct io_uring_sqe *sqe(struct ring *ring, unsigned opcode, unsigned long user_data) {
    unsigned tail = *word(ring, ring->p.sq_off.tail), at = tail & (ring->p.sq_entries - 1);
    struct io_uring_sqe *entry = (void *)(ring->sqes + at * (ring->flags & IORING_SETUP_SQE128 ? 128 : 64));
    memset(entry, 0, 64);
    entry->opcode = opcode;
    entry->user_data = user_data;
    if (!(ring->flags & NO_SQARRAY)) *word(ring, ring->p.sq_off.array + 4 * at) = at;
    atomic_store(word(ring, ring->p.sq_off.tail), tail + 1);
    return entry;
}

static int enter(struct ring *ring, unsigned submit, unsigned wait) {
    unsigned flags = ring->enter_flags | (wait || ring->flags & IORING_SETUP_DEFER_TASKRUN ? IORING_ENTER_GETEVENTS : 0);
    return syscall(__NR_io_uring_enter, ring->fd, submit, wait, flags, NULL, 0);
}

// Takes CQEs from memory, as many as there are.
static unsigned taken(struct ring *ring) {
    unsigned tail = atomic_load(word(ring, ring->p.cq_off.tail)), count = tail - ring->taken;
    ring->taken = tail;
    atomic_store(word(ring, ring->p.cq_off.head), tail);
    return count;
}

static void end(struct ring *ring) {
    munmap(ring->rings, PAGES / 8);
    munmap(ring->sqes, 4096);
    if (ring->fd >= 0) close(ring->fd);
}

static void nops(struct ring *ring, unsigned long first, int count) {
    for (int n = 0; n < count; n++) sqe(ring, IORING_OP_NOP, first + n);
    enter(ring, count, count);
    taken(ring);
}

static void kind(const char *name, unsigned flags, unsigned long first) {
    struct ring ring;
    if (!make(&ring, flags)) return;
    for (int round = 0; round < 10; round++) nops(&ring, first + 3 * round, 3);
    end(&ring);
    printf("%s %lu\n", name, first);
}

static void mixed_cqes(void) {
    struct ring ring;
    if (!make(&ring, CQE_MIXED)) return;
    for (int n = 0; n < 30; n++) {
        sqe(&ring, IORING_OP_NOP, 400 + n)->rw_flags = n % 3 ? NOP_CQE32 : 0;
        enter(&ring, 1, 1);
        taken(&ring);
    }
    end(&ring);
    puts("mixed 400");
}

static void registered(void) {
    struct ring ring;
    make(&ring, 0);
    struct io_uring_rsrc_update update = {.offset = -1U, .data = ring.fd};
    syscall(__NR_io_uring_register, ring.fd, 20, &update, 1);
    close(ring.fd);
    ring.fd = update.offset;
    ring.enter_flags = 1 << 4;
    for (int round = 0; round < 10; round++) nops(&ring, 800 + 3 * round, 3);
    update.data = 0;
    syscall(__NR_io_uring_register, ring.fd, 21 | 1U << 31, &update, 1);
    ring.fd = -1;
    end(&ring);
    puts("registered 800");
}

static void disabled(void) {
    struct ring ring;
    make(&ring, IORING_SETUP_R_DISABLED);
    sqe(&ring, IORING_OP_NOP, 1000);
    if (enter(&ring, 1, 0) != -1 || errno != EBADFD) exit(3);
    // It is another one by the time it is submitted.
    ((struct io_uring_sqe *)ring.sqes)->user_data = 1001;
    syscall(__NR_io_uring_register, ring.fd, 12, NULL, 0);
    enter(&ring, 1, 1);
    taken(&ring);
    end(&ring);
}

static void polled(void) {
    struct ring ring;
    // No SQE is overwritten, however late the look comes.
    entries = 64;
    int is_made = make(&ring, IORING_SETUP_SQPOLL);
    entries = 8;
    if (!is_made) return;
    for (int n = 0; n < 30; n += taken(&ring)) {
        sqe(&ring, IORING_OP_NOP, 1100 + n);
        if (atomic_load(word(&ring, ring.p.sq_off.flags)) & IORING_SQ_NEED_WAKEUP)
            syscall(__NR_io_uring_enter, ring.fd, 0, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0);
        while (atomic_load(word(&ring, ring.p.cq_off.tail)) == ring.taken) usleep(10);
    }
    end(&ring);
    puts("sqpoll 1100");
}

static void resized(void) {
    struct ring ring;
    if (!make(&ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | NO_SQARRAY)) return;
    nops(&ring, 1200, 3);
    struct io_uring_params p = {.sq_entries = 16, .cq_entries = 64, .flags = IORING_SETUP_CQSIZE};
    if (syscall(__NR_io_uring_register, ring.fd, OP_RESIZE, &p, 1)) return;
    p.flags = ring.flags;
    ring.p = p;
    map(&ring);
    for (int round = 1; round < 10; round++) nops(&ring, 1200 + 3 * round, 3);
    end(&ring);
    puts("resized 1200");
}

static void duplicated(void) {
    struct ring ring;
    make(&ring, 0);
    int other = dup(ring.fd);
    close(ring.fd);
    ring.fd = other;
    for (int round = 0; round < 10; round++) nops(&ring, 1300 + 3 * round, 3);
    end(&ring);
    puts("duplicated 1300");
}

// The last CQEs are taken without a call.
static void from_memory(void) {
    static char byte;
    struct ring ring;
    int ends[2];
    pipe(ends);
    make(&ring, 0);
    for (int n = 0; n < 30; n++) {
        struct io_uring_sqe *entry = sqe(&ring, IORING_OP_READ, 1400 + n);
        entry->fd = ends[0];
        entry->addr = (unsigned long)&byte;
        entry->len = 1;
        enter(&ring, 1, 0);
        write(ends[1], "x", 1);
        while (!taken(&ring)) usleep(10);
    }
    end(&ring);
    puts("memory 1400");
}

static void ambiguous(void) {
    static char byte;
    struct ring ring;
    int ends[2];
    pipe(ends);
    make(&ring, 0);
    for (int n = 0; n < 2; n++) {
        struct io_uring_sqe *entry = sqe(&ring, IORING_OP_READ, 1500);
        entry->fd = ends[0];
        entry->addr = (unsigned long)&byte;
        entry->len = 1;
    }
    enter(&ring, 2, 0);
    write(ends[1], "xy", 2);
    enter(&ring, 0, 2);
    // No CQE, and one because it fails.
    sqe(&ring, IORING_OP_NOP, 1600)->flags = IOSQE_CQE_SKIP_SUCCESS;
    sqe(&ring, 200, 1601)->flags = IOSQE_CQE_SKIP_SUCCESS;
    enter(&ring, 2, 1);
    end(&ring);
}

static void forked(void) {
    struct ring ring;
    make(&ring, 0);
    nops(&ring, 1700, 1);
    if (!fork()) {
        nops(&ring, 1701, 2);
        _exit(0);
    }
    wait(NULL);
    ring.taken = *word(&ring, ring.p.cq_off.tail);
    nops(&ring, 1703, 1);
    end(&ring);
    puts("forked 1700");
}

static void message(void) {
    struct ring ring, target;
    make(&ring, 0);
    make(&target, 0);
    struct io_uring_sqe *entry = sqe(&ring, IORING_OP_MSG_RING, 1900);
    entry->fd = target.fd;
    entry->len = 55;
    entry->off = 1901;
    enter(&ring, 1, 1);
    taken(&target);
    end(&ring);
    end(&target);
}

// A handler runs in the middle of a wait, and uses a ring itself.
static struct ring waiting;
static void on_alarm(int signal) {
    struct ring own;
    make(&own, 0);
    nops(&own, 2000, 1);
    end(&own);
}

static void interrupted(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    make(&waiting, 0);
    alarm(1);
    if (enter(&waiting, 0, 1) != -1 || errno != EINTR) exit(4);
    nops(&waiting, 2001, 1);
    end(&waiting);
    puts("interrupted 2000");
}

int main(void) {
    kind("plain", 0, 100);
    kind("sqe128", IORING_SETUP_SQE128, 200);
    kind("cqe32", IORING_SETUP_CQE32, 300);
    mixed_cqes();
    kind("no_mmap", NO_MMAP, 600);
    kind("no_sqarray", NO_SQARRAY, 700);
    registered();
    kind("defer", IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, 900);
    disabled();
    polled();
    resized();
    duplicated();
    from_memory();
    ambiguous();
    forked();
    message();
    interrupted();
    return 0;
}
