/* The functions that liburing 2.4 to 2.15 added, declared here because the installed header may be
 * older. If it is not, the compiler reports a contradiction. */
#ifndef NEWER_FUNCTIONS_H
#define NEWER_FUNCTIONS_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct io_uring_bpf;
struct io_uring_clock_register;
struct io_uring_mem_region_reg;
struct io_uring_napi;
struct io_uring_query_hdr;
struct io_uring_reg_wait;
struct io_uring_zcrx_ifq_reg;
struct zcrx_ctrl;

/* 2.4 */
int io_uring_major_version(void);
int io_uring_minor_version(void);
bool io_uring_check_version(int major, int minor);
int io_uring_close_ring_fd(struct io_uring *ring);
int io_uring_enable_rings(struct io_uring *ring);
int io_uring_register_restrictions(struct io_uring *ring, struct io_uring_restriction *res, unsigned nr);
struct io_uring_buf_ring *io_uring_setup_buf_ring(struct io_uring *ring, unsigned entries, int bgid, unsigned flags, int *err);
int io_uring_free_buf_ring(struct io_uring *ring, struct io_uring_buf_ring *br, unsigned entries, int bgid);

/* 2.5 */
int io_uring_queue_init_mem(unsigned entries, struct io_uring *ring, struct io_uring_params *p, void *buf, size_t size);

/* 2.6 */
int io_uring_buf_ring_head(struct io_uring *ring, int group, uint16_t *head);
int io_uring_register_napi(struct io_uring *ring, struct io_uring_napi *napi);
int io_uring_unregister_napi(struct io_uring *ring, struct io_uring_napi *napi);

/* 2.8 */
int io_uring_register_clock(struct io_uring *ring, struct io_uring_clock_register *arg);
int io_uring_submit_and_wait_min_timeout(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned nr, struct __kernel_timespec *ts,
					 unsigned min_wait, sigset_t *mask);
int io_uring_wait_cqes_min_timeout(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned nr, struct __kernel_timespec *ts,
				   unsigned min_wait, sigset_t *mask);
int io_uring_clone_buffers(struct io_uring *dst, struct io_uring *src);

/* 2.9 */
int io_uring_resize_rings(struct io_uring *ring, struct io_uring_params *p);
int io_uring_register_wait_reg(struct io_uring *ring, struct io_uring_reg_wait *reg, int nr);
int io_uring_submit_and_wait_reg(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned nr, int index);
int io_uring_clone_buffers_offset(struct io_uring *dst, struct io_uring *src, unsigned dst_off, unsigned src_off, unsigned nr, unsigned flags);
int io_uring_register_region(struct io_uring *ring, struct io_uring_mem_region_reg *reg);

/* 2.10 */
int io_uring_register_ifq(struct io_uring *ring, struct io_uring_zcrx_ifq_reg *reg);
int io_uring_set_iowait(struct io_uring *ring, bool enable);
int __io_uring_clone_buffers(struct io_uring *dst, struct io_uring *src, unsigned flags);
int __io_uring_clone_buffers_offset(struct io_uring *dst, struct io_uring *src, unsigned dst_off, unsigned src_off, unsigned nr, unsigned flags);

/* 2.11 */
ssize_t io_uring_memory_size(unsigned entries, unsigned flags);
ssize_t io_uring_memory_size_params(unsigned entries, struct io_uring_params *p);
int io_uring_register_sync_msg(struct io_uring_sqe *sqe);

/* 2.14 */
int io_uring_register_bpf_filter(struct io_uring *ring, struct io_uring_bpf *bpf);
int io_uring_register_bpf_filter_task(struct io_uring_bpf *bpf);

/* 2.15 */
int io_uring_register_zcrx_ctrl(struct io_uring *ring, struct zcrx_ctrl *ctrl);
int io_uring_register_query(struct io_uring_query_hdr *query);

#endif
