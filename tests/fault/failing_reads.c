/* Every way to read a file, failing with EIO from read number FAIL_AT on where FAIL_PATH is part of its name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
static int seen;
static int fails(int fd) {
  char link[64], path[4096];
  const char *part = getenv("FAIL_PATH");
  if (!part) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  return strstr(path, part) && ++seen >= atoi(getenv("FAIL_AT"));
}
#define INJECT(name, parameters, arguments) \
  ssize_t name parameters { \
    if (fails(fd)) { errno = EIO; return -1; } \
    return ((ssize_t(*) parameters)dlsym(RTLD_NEXT, #name)) arguments; \
  }
INJECT(read, (int fd, void *into, size_t n), (fd, into, n))
INJECT(pread, (int fd, void *into, size_t n, off_t at), (fd, into, n, at))
INJECT(pread64, (int fd, void *into, size_t n, off64_t at), (fd, into, n, at))
INJECT(readv, (int fd, const struct iovec *into, int n), (fd, into, n))
INJECT(preadv, (int fd, const struct iovec *into, int n, off_t at), (fd, into, n, at))
INJECT(preadv64, (int fd, const struct iovec *into, int n, off64_t at), (fd, into, n, at))
