/* io_uring where it is blocked: one call at the start of main.
 *
 *     cc $(pkg-config --cflags uringlet) program.c $(pkg-config --libs uringlet) -luring
 */
#ifndef URINGLET_H
#define URINGLET_H

#ifdef __cplusplus
extern "C" {
#endif

/* The kernel's io_uring works for this process. */
#define URINGLET_KERNEL 0
/* The engine answers the io_uring calls of this process. */
#define URINGLET_ENGINE 1

/* Makes io_uring work in this program. Call it first in main, or in a constructor.
 *
 * Where the kernel's io_uring works, it returns URINGLET_KERNEL and has changed nothing. Where it
 * is blocked, the program is executed again with the engine in it: same process, arguments,
 * environment and descriptors. main starts anew there, and this returns URINGLET_ENGINE. What the
 * program has done before is lost.
 *
 * A negative value: the program could not be attached and goes on as it is.
 *
 *     -EBUSY       other threads run already
 *     -EPERM       the program has gained privileges by its start (set-uid)
 *     -EOPNOTSUPP  it was executed again, and its code may not be changed here
 *     -EINVAL      URINGLET is none of kernel, engine, when-blocked
 *     -ENOENT      the archive was built without the engine, and URINGLET_LIB is not set
 *     -ELIBACC     URINGLET_LIB is not the absolute path of a file
 *     -ENOMEM      memfd_create(2) makes no executable file
 *     -ENXIO       /proc cannot be read
 *     -EACCES      the program is static, and its own file cannot be read
 *     -ENOEXEC     the program cannot be executed again
 */
int uringlet_init(void);

/* The text of what uringlet_init returned. Static. */
const char *uringlet_strerror(int result);

/* The version of the archive, "MAJOR.MINOR.PATCH". */
const char *uringlet_version(void);

#ifdef __cplusplus
}
#endif

#endif
