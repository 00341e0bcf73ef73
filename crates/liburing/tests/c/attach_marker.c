/* Preloaded, this symbol tells the library that attach is present. Its calls become plain system
 * calls: the library's own code over the kernel's rings. */
int uringlet_attached = 1;
