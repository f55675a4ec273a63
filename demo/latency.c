/* latency: a library to preload. Each call that names a file below $DEMO_SLOW_DIRECTORY, or changes attributes of one,
 * waits $DEMO_SLOW_US microseconds first, as it would wait for the metadata server of shared storage.
 *
 * open, stat, access, mkdir, unlink, rename, link, symlink, chmod, utimens and their relatives, and fchmod, fchown and
 * futimens; not read, write and close. The file is the same one: only the wait is added.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *directory;
static size_t directory_length;
static struct timespec wait_time;

__attribute__((constructor)) static void begin(void) {
    const char *us = getenv("DEMO_SLOW_US");
    directory = getenv("DEMO_SLOW_DIRECTORY");
    if (!directory || !us) return;
    directory_length = strlen(directory);
    wait_time.tv_nsec = atol(us) * 1000;
}

static int is_below(const char *path) {
    return strncmp(path, directory, directory_length) == 0 &&
           (path[directory_length] == '/' || path[directory_length] == '\0');
}

static void slow(int at, const char *path) {
    char where[PATH_MAX], link[64];
    if (!directory_length || !path) return;
    if (path[0] != '/') {
        ssize_t length;
        if (at == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        length = readlink(link, where, sizeof where - 1);
        if (length < 0) return;
        where[length] = '\0';
        path = where;
    }
    if (is_below(path)) nanosleep(&wait_time, NULL);
}

/* Of an open file. */
static void slow_open(int file) { slow(file, ""); }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define NAMED(type, name, parameters, at, path, arguments)                                                           \
    type name parameters {                                                                                           \
        slow(at, path);                                                                                              \
        return REAL(name) arguments;                                                                                 \
    }
#define OF_OPEN(name, parameters, arguments)                                                                         \
    int name parameters {                                                                                            \
        slow_open(file);                                                                                             \
        return REAL(name) arguments;                                                                                 \
    }
#define OPENED(name, first, at, path, arguments)                                                                     \
    int name first {                                                                                                 \
        mode_t mode = 0;                                                                                             \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                                       \
            va_list rest;                                                                                            \
            va_start(rest, flags);                                                                                   \
            mode = va_arg(rest, mode_t);                                                                             \
            va_end(rest);                                                                                            \
        }                                                                                                            \
        slow(at, path);                                                                                              \
        return REAL(name) arguments;                                                                                 \
    }

OPENED(open, (const char *path, int flags, ...), AT_FDCWD, path, (path, flags, mode))
OPENED(open64, (const char *path, int flags, ...), AT_FDCWD, path, (path, flags, mode))
OPENED(openat, (int at, const char *path, int flags, ...), at, path, (at, path, flags, mode))
OPENED(openat64, (int at, const char *path, int flags, ...), at, path, (at, path, flags, mode))
NAMED(FILE *, fopen, (const char *path, const char *how), AT_FDCWD, path, (path, how))
NAMED(FILE *, fopen64, (const char *path, const char *how), AT_FDCWD, path, (path, how))
NAMED(int, creat, (const char *path, mode_t mode), AT_FDCWD, path, (path, mode))
NAMED(int, stat, (const char *path, struct stat *out), AT_FDCWD, path, (path, out))
NAMED(int, stat64, (const char *path, struct stat64 *out), AT_FDCWD, path, (path, out))
NAMED(int, lstat, (const char *path, struct stat *out), AT_FDCWD, path, (path, out))
NAMED(int, lstat64, (const char *path, struct stat64 *out), AT_FDCWD, path, (path, out))
NAMED(int, fstatat, (int at, const char *path, struct stat *out, int flags), at, path, (at, path, out, flags))
NAMED(int, fstatat64, (int at, const char *path, struct stat64 *out, int flags), at, path, (at, path, out, flags))
NAMED(int, statx, (int at, const char *path, int flags, unsigned mask, struct statx *out), at, path,
      (at, path, flags, mask, out))
NAMED(int, access, (const char *path, int mode), AT_FDCWD, path, (path, mode))
NAMED(int, faccessat, (int at, const char *path, int mode, int flags), at, path, (at, path, mode, flags))
NAMED(int, mkdir, (const char *path, mode_t mode), AT_FDCWD, path, (path, mode))
NAMED(int, mkdirat, (int at, const char *path, mode_t mode), at, path, (at, path, mode))
NAMED(int, rmdir, (const char *path), AT_FDCWD, path, (path))
NAMED(int, unlink, (const char *path), AT_FDCWD, path, (path))
NAMED(int, unlinkat, (int at, const char *path, int flags), at, path, (at, path, flags))
NAMED(int, rename, (const char *from, const char *to), AT_FDCWD, to, (from, to))
NAMED(int, renameat, (int at, const char *from, int to_at, const char *to), to_at, to, (at, from, to_at, to))
NAMED(int, link, (const char *from, const char *to), AT_FDCWD, to, (from, to))
NAMED(int, linkat, (int at, const char *from, int to_at, const char *to, int flags), to_at, to,
      (at, from, to_at, to, flags))
NAMED(int, symlink, (const char *text, const char *path), AT_FDCWD, path, (text, path))
NAMED(int, symlinkat, (const char *text, int at, const char *path), at, path, (text, at, path))
NAMED(int, chmod, (const char *path, mode_t mode), AT_FDCWD, path, (path, mode))
NAMED(int, fchmodat, (int at, const char *path, mode_t mode, int flags), at, path, (at, path, mode, flags))
NAMED(int, utimensat, (int at, const char *path, const struct timespec times[2], int flags), at, path,
      (at, path, times, flags))
OF_OPEN(fchmod, (int file, mode_t mode), (file, mode))
OF_OPEN(fchown, (int file, uid_t user, gid_t group), (file, user, group))
OF_OPEN(futimens, (int file, const struct timespec times[2]), (file, times))
