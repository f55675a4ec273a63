/* Preloaded into the ranks of tests. A rank that waits for another one looks again and again. Where there are more programs
 * than processors that costs as much as work, also when it calls sched_yield(2) in between: the kernel gives the processor
 * back to it before long, as its share. Here a rank that has looked a few times in vain sleeps for a moment.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { YIELDS = 4, LOOKS = 32, NANOSECONDS = 50000 };

static void rest(void) { nanosleep(&(struct timespec){.tv_nsec = NANOSECONDS}, NULL); }

int sched_yield(void) {
  static __thread unsigned yields;
  if (++yields % YIELDS) return (int)syscall(SYS_sched_yield);
  rest();
  return 0;
}

/* MPICH looks by UCX, and does not yield where threads may call it. */
typedef unsigned progress(void *worker);
static progress *of_ucx(void) {
  static progress *found;
  void *library = found ? NULL : dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
  if (library) found = (progress *)dlsym(library, "ucp_worker_progress");
  if (!found) abort();
  return found;
}
unsigned ucp_worker_progress(void *worker) {
  static __thread unsigned looks;
  unsigned events = of_ucx()(worker);
  if (events) looks = 0;
  else if (++looks % LOOKS == 0) rest();
  return events;
}
