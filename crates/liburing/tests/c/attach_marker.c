/* Preloaded, this makes the library believe that attach is there, so its calls become plain system calls: the library's own code over the kernel's rings. */
int uringlet_attached = 1;
